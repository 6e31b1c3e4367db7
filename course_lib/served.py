"""The one pass through served engines: the same `Trace`, from a target and a draft that vLLM serves.

    prompts -> /tokenize -> the target writes -> both engines read prompt and text again -> Trace
    a log of prompts and responses -> /tokenize ---------------^

Reading costs one request a text and engine: with `prompt_logprobs` a completion says of every token of its
prompt how likely it was, and which token was likeliest. So a draft can be tried on real traffic without being
deployed, at any size that the engines can serve.

What these numbers cannot show. They are of the whole vocabulary at temperature 1: at another temperature the
normaliser is missing, with top-p or top-k which tokens were left, so both are refused. And two laws are seen
at one token only, so a trace at temperature 1 has no overlap and no entropy; in their place stand unbiased
estimates from that token x ~ p: E[accept(x)] = sum of min(p, q), and E[-log p(x)] is the entropy of p.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pandas as pd

from course_lib.bars import Progress, progress_bar
from course_lib.engines.client import connect, request, root, served_models
from course_lib.engines.kept import each_once, read_kept
from course_lib.lookup import MODEL
from course_lib.measure import check_arguments, choose_prompts, drafts_a_round, finish
from course_lib.options import split
from course_lib.prompts import Logged, Prompt, read_log
from course_lib.traces import SCHEMA, Trace, check_rows

TIMEOUT = 600.0  # seconds for a whole answer, waiting in the engine's queue included
RARE = 10.0  # nats: by chance once in 10,000 measurements at most (2 exp(-10))
ESTIMATES = ("Served engines show the laws at the text's tokens only: α (the overlap) is estimated by the "
             "chances of acceptance, without bias.")
_FORMAT = "course_lib served 1"
_ZERO = -9999.0  # how vLLM writes the log-probability of chance 0
_PROBE = "Zwei Wörter, 1234.5 + x_1 == f(y);\n\tSELECT * FROM 表 — “naïve” 🙂"


def run_served(asked: SimpleNamespace, command: str, say: Callable[[str], None]) -> dict:
    """`measure --served-target … --served-draft …`: its options in, the JSON document out."""
    if not asked.served_target or not asked.served_draft:
        raise ValueError("--served-target and --served-draft go together, and --log needs both: give the "
                         "address of each engine")
    for name in ("target", "draft", "lookup", "device", "dtype"):
        if getattr(asked, name) is not None:
            raise ValueError(f"--{name} is for models loaded here, not for served ones: leave it out")
    if asked.log and asked.prompts:
        raise ValueError("give --log (texts that exist) or --prompts (for the target to answer), not both")
    refuse_unseen(asked.temperature, asked.top_k, asked.top_p)
    drafts = drafts_a_round(asked.ks)
    check_arguments(asked.new_tokens, asked.seed, asked.out, asked.figure)
    reader = {"read": partial(read_log, temperature=asked.temperature)} if asked.log else {}
    prompts = choose_prompts(asked.log or asked.prompts, split(asked.routes), asked.limit, asked.skip_bad,
                             say, **reader)
    urls = [split(text) for text in (asked.served_target, asked.served_draft)]
    name = f"course_lib-{_digest([command, _said(prompts)])}" if asked.out is None else asked.out.name
    kept = (asked.out or Path(tempfile.gettempdir(), name)).with_name(f"{name}.requests")
    with progress_bar() as bar:
        trace = measure_served(*urls, prompts, kept, asked.temperature, asked.new_tokens, asked.draft_mode,
                               asked.seed, asked.cut, asked.served_concurrency, command, bar)
    found = finish(trace, drafts, asked.out, asked.figure, say)
    kept.unlink()
    return found


def measure_served(targets: Sequence[str], drafts: Sequence[str], prompts: Sequence[Prompt], kept: Path,
                   temperature: float = 0.0, new_tokens: int = 96, draft_mode: str = "sample", seed: int = 0,
                   cut: bool = False, concurrency: int = 8, command: str = "",
                   progress: Progress = lambda stage, done, total: None) -> Trace:
    """Let the served target answer the prompts (`Logged` ones have an answer), then score with both engines.

    targets, drafts: addresses; replicas take turns. kept: the file of finished requests, from which a run
    that was stopped goes on; whoever has saved the trace removes it. temperature: 0 or 1. concurrency:
    requests under way, to all engines together. Other arguments as in `traces.measure_trace`. In meta beside
    the usual: logged (texts that came from a log), estimates (what is one) and doubt (see `doubt`).
    Raises ValueError where a request failed, once the others are done and kept.
    """
    refuse_unseen(temperature)
    if concurrency < 1:
        raise ValueError(f"concurrency must be 1 or more requests at a time, not {concurrency}")
    if draft_mode not in ("sample", "greedy"):
        raise ValueError(f'draft_mode is "sample" or "greedy", not {draft_mode!r}')
    with connect(TIMEOUT) as client:
        engines = {"target": _engine(client, targets), "draft": _engine(client, drafts)}
        send = partial(_send, client, engines)
        if send("target", 0, "tokenize", _plain(_PROBE)) != send("draft", 0, "tokenize", _plain(_PROBE)):
            raise ValueError("target and draft tokenise a text differently: a draft must have the target's "
                             "vocabulary")
        settings = {"format": _FORMAT, "temperature": temperature, "seed": seed, "new_tokens": new_tokens,
                    "cut": cut, "prompts": _digest(_said(prompts)),
                    **{role: [engine["name"], engine["version"]] for role, engine in engines.items()}}
        done, every = read_kept(kept, settings), range(len(prompts))

        def stage(name: str, jobs: list[tuple[str, int]], work: Callable) -> float:
            return each_once(name, jobs, work, kept, done, concurrency, progress)

        def tokenize(kind: str, at: int) -> list[int]:
            body = _plain(prompts[at].response) if kind == "text" else \
                {"messages": prompts[at].messages, "add_generation_prompt": True}
            return send("target", at, "tokenize", body)

        logged = [at for at in every if isinstance(prompts[at], Logged)]
        stage("tokenised", [("prompt", at) for at in every] + [("text", at) for at in logged], tokenize)
        lengths = [new_tokens] * len(prompts)
        for at in logged:
            lengths[at] = len(done["text", at])
        context = min(engine["context"] for engine in engines.values())
        ids, shortened = _fit(prompts, [done["prompt", at] for at in every], lengths, context, cut)

        def write(kind: str, at: int) -> list[int]:
            # Where a request is silent, vLLM takes what the model's generation_config.json says.
            law = {"temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
                   "repetition_penalty": 1.0, "seed": (seed + at) % 2**63}
            return send("target", at, "write", {"prompt": ids[at], "max_tokens": new_tokens,
                                                "return_token_ids": True, **law})

        def score(role: str, at: int) -> dict:
            return send(role, at, "score", ids[at] + texts[at], len(texts[at]))

        seconds = {"write": stage("the target writes", [("text", at) for at in every], write)}
        texts = [done["text", at] for at in every]
        each = [(role, at) for at in every for role in engines]
        seconds["score"] = stage("both engines score", each, score)
    rows = pd.concat([_rows(prompts[at], texts[at], done["target", at], done["draft", at], temperature,
                            draft_mode) for at in every], ignore_index=True)[SCHEMA.names]
    rows = rows.astype({field.name: field.type.to_pandas_dtype() for field in list(SCHEMA)[2:]})
    check_rows(rows, "the served trace")
    top, best = (np.concatenate([done["target", at][name] for at in every]) for name in ("top", "best"))
    near_ties = rows.token != top if temperature == 0 else np.exp(rows.logp) == 0
    return Trace(rows, _meta(engines, temperature, draft_mode) | {
        "seed": seed, "new_tokens": max(lengths), "cut": shortened, "command": command, "seconds": seconds,
        "near_ties": int(near_ties.sum()), "logged": len(logged),
        "doubt": doubt(rows.token.to_numpy() == top, best, temperature)})


def refuse_unseen(temperature: float, top_k: int = 0, top_p: float = 1.0) -> None:
    """Raise ValueError for laws that log-probabilities of single tokens at temperature 1 do not give."""
    missing = "" if temperature in (0, 1) else f"at temperature {temperature:g} the normaliser"
    if temperature and (top_k or top_p < 1):
        missing = "with top-k or top-p which tokens are left, and their sum,"
    if missing:
        raise ValueError("engines show log-probabilities over the whole vocabulary at temperature 1: "
                         f"{missing} cannot be seen. Take --temperature 0, or 1 without --top-k and --top-p, "
                         "or let measure load both models here (--target, --draft)")


def doubt(hits: np.ndarray, best: np.ndarray, temperature: float) -> str | None:
    """A sentence if the target did not write this text at this temperature, None if it may have.

    hits: is the text's token the target's likeliest? best: the likeliest one's log-probability. At
    temperature 1 a hit has the chance exp(best) whatever came before, so hits less chances are a martingale
    with steps below 1 and the variance sum of chance (1 - chance). Source: Freedman 1975, theorem 1.6.
    """
    chance = np.exp(np.minimum(best, 0.0))
    if temperature == 0:
        said = (f"{(~hits).sum()} of {len(hits)} tokens are not the target's likeliest: it does not write "
                "this text at temperature 0. Was it sampled, or written by another model?")
        return said if (~hits).mean() > 0.02 else None
    off, variance = abs((hits - chance).sum()), (chance * (1 - chance)).sum()
    said = (f"{hits.mean():.1%} of {len(hits)} tokens are the target's likeliest, where at temperature 1 "
            f"{chance.mean():.1%} are to be expected: this text was written at another temperature, with "
            "top-p or top-k, or by another model, and the numbers describe none of these.")
    return said if off and off ** 2 / (2 * (variance + off / 3)) > RARE else None


def _engine(client: httpx.Client, urls: Sequence[str]) -> dict:
    """urls, name, context (tokens) and version of an engine and its replicas, which must serve one model."""
    names, contexts, versions = {}, [], []
    for url in urls:
        models = served_models(client, url)
        names |= {str(each["id"]): url for each in models}
        contexts += [each.get("max_model_len") or np.inf for each in models]
        try:
            versions.append(request(client, f"{root(url)}/version").get("version"))
        except ValueError:  # not every engine says
            versions.append(None)
    if len(names) != 1:
        raise ValueError(f"{', '.join(urls)} serve {len(names)} models ({', '.join(list(names)[:5])}): give "
                         "engines that serve one, and the same")
    return {"urls": [root(url) for url in urls], "name": next(iter(names)), "context": min(contexts),
            "version": versions[0]}


def _plain(text: str) -> dict:
    return {"prompt": text, "add_special_tokens": False}


def _send(client: httpx.Client, engines: dict, role: str, at: int, what: str, body: dict | list[int],
          tokens: int = 0) -> list | dict:
    """One request to the replica whose turn it is, and what is needed of the answer."""
    engine, path = engines[role], "/tokenize" if what == "tokenize" else "/v1/completions"
    address = engine["urls"][at % len(engine["urls"])] + path
    if what == "score":
        body = {"prompt": body, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 1}
    answer = request(client, address, {"model": engine["name"], **body})
    try:
        if what == "score":
            return _scores(body["prompt"], answer["choices"][0]["prompt_logprobs"], tokens)
        found = answer["tokens"] if what == "tokenize" else answer["choices"][0]["token_ids"]
        if found and all(type(token) is int for token in found):
            return found
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        pass
    needed = {"tokenize": "tokens", "write": "token_ids", "score": "prompt_logprobs"}[what]
    raise ValueError(f"{address} does not answer with the {needed} that were asked for: is this vLLM, 0.10.2 "
                     "or newer, with the log-probabilities that it shows unless told otherwise?")


def _scores(prompt: list[int], said: list, tokens: int) -> dict[str, list]:
    """Of the last so many tokens of a prompt: logprob, the likeliest token (top) and its logprob (best)."""
    found = {"logprob": [], "top": [], "best": []}
    for token, entry in zip(prompt[-tokens:], said[len(prompt) - tokens:], strict=True):
        values = {int(each): float(one["logprob"]) for each, one in entry.items()}
        # Of equal ones the first, as argmax has it. The rank would not do: vLLM counts equals before it.
        top = max(values, key=lambda each: (values[each], -each))
        if not values[top] < 0.01:  # nan, or logits
            raise ValueError
        for name, value in (("logprob", values[token]), ("top", top), ("best", values[top])):
            found[name].append(value)
    return found


def _fit(prompts, rows: list[list[int]], lengths: list[int], context: float,
         cut: bool) -> tuple[list[list[int]], list[str]]:
    """Token ids that leave room for the text and one more token, which scoring must ask for."""
    fitted, shortened = [], []
    for prompt, row, length in zip(prompts, rows, lengths, strict=True):
        room = context - length - 1
        if len(row) > room:
            if not cut or room < 1:
                advice = "shorten it, or pass --cut" if room >= 1 else "the text alone is too long"
                raise ValueError(f"prompt {prompt.id} has {len(row)} tokens, and with a text of {length} and "
                                 f"one to score that exceeds the engines' context of {context:g}: {advice}")
            shortened.append(prompt.id)
        fitted.append(row[-room:] if len(row) > room else row)
    return fitted, shortened


def _rows(prompt: Prompt, text: list[int], target: dict, draft: dict, temperature: float,
          draft_mode: str) -> pd.DataFrame:
    logp, logq = (np.minimum(one["logprob"], 0.0) for one in (target, draft))
    match = np.array(draft["top"]) == text
    if temperature == 0:
        logp = np.zeros(len(text))  # the text says which of two near-equal tokens won
    if temperature == 0 or draft_mode == "greedy":
        accept = match.astype(float)
        logq = np.where(match, 0.0, -np.inf)
    else:
        accept = np.exp(np.minimum(logq - logp, 0.0))
        logq = np.where(logq <= _ZERO, -np.inf, logq)
    return pd.DataFrame({"route": prompt.route, "prompt": prompt.id, "t": np.arange(len(text)), "token": text,
                         "logp": logp, "logq": logq, "match": match, "overlap": accept, "accept": accept,
                         "entropy": np.abs(logp), "drafter": MODEL})


def _meta(engines: dict, temperature: float, draft_mode: str) -> dict:
    names = {role: Path(each["name"]).name if Path(each["name"]).is_absolute() else each["name"]
             for role, each in engines.items()}
    versions = {f"{role} engine": each["version"] for role, each in engines.items()}
    return {"pair": f"{names['target']} + {names['draft']}", **names, "lookup": None, "device": "vLLM",
            "dtype": "as served", "temperature": float(temperature), "top_k": 0, "top_p": 1.0,
            "draft_mode": draft_mode if temperature else "greedy", "machine": "served",
            "versions": versions | {"course_lib": importlib.metadata.version("course_lib")},
            "date": datetime.now().astimezone().isoformat(timespec="seconds"),
            "estimates": ESTIMATES if temperature else None}


def _said(prompts: Sequence[Prompt]) -> list:
    return [[prompt.id, prompt.messages, getattr(prompt, "response", None)] for prompt in prompts]


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:32]
