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
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pandas as pd

from course_lib.engines.client import Answer, ask_all, connect, request, root
from course_lib.measure import check_arguments, choose_prompts, finish, numbers, progress_bar
from course_lib.options import split
from course_lib.prompts import Prompt, _request, _text
from course_lib.traces import MODEL, SCHEMA, Progress, Trace, check_rows

TIMEOUT = 600.0  # seconds for a whole answer, waiting in the engine's queue included
UNLIKELY = 4.0  # standard errors: by chance once in 16,000 measurements
ESTIMATES = ("Served engines show the laws at the text's tokens only: α (the overlap) is estimated by the "
             "chances of acceptance, without bias.")
_FORMAT = "course_lib served 1"
_ZERO = -9999.0  # how vLLM writes the log-probability of chance 0
_PROBE = "Zwei Wörter, 1234.5 + x_1 == f(y);\n\tSELECT * FROM 表 — “naïve” 🙂"


@dataclass(frozen=True)
class Logged(Prompt):
    """A request of a log, and what the target answered."""

    response: str = ""


def run_served(asked: SimpleNamespace, command: str, say: Callable[[str], None]) -> dict:
    """`measure --served-target … --served-draft …`: its options in, the JSON document out."""
    if not asked.served_target or not asked.served_draft:
        raise ValueError("--served-target and --served-draft go together (--log needs both): give the address "
                         "of each engine")
    for name in ("target", "draft", "lookup", "device", "dtype"):
        if getattr(asked, name) is not None:
            raise ValueError(f"--{name} is for models loaded here, not for served ones: leave it out")
    if asked.log and asked.prompts:
        raise ValueError("give --log (texts that exist) or --prompts (for the target to answer), not both")
    refuse_unseen(asked.temperature, asked.top_k, asked.top_p)
    drafts = numbers(asked.ks, "--ks")
    check_arguments(asked.new_tokens, asked.seed, asked.out, asked.figure)
    reader = {"read": partial(read_log, temperature=asked.temperature)} if asked.log else {}
    prompts = choose_prompts(asked.log or asked.prompts, split(asked.routes), asked.limit, asked.skip_bad, say,
                             **reader)
    urls = [[each.strip() for each in split(text)] for text in (asked.served_target, asked.served_draft)]
    kept = asked.out and asked.out.with_name(f"{asked.out.name}.requests")
    kept = kept or Path(tempfile.gettempdir(), f"course_lib-{_digest([urls, _said(prompts), asked.seed])}.requests")
    with progress_bar() as bar:
        trace = measure_served(*urls, prompts, kept, asked.temperature, asked.new_tokens, asked.draft_mode,
                               asked.seed, asked.cut, asked.served_concurrency, command, bar, say)
    found = finish(trace, drafts, asked.out, asked.figure, say)
    kept.unlink()
    return found


def measure_served(targets: Sequence[str], drafts: Sequence[str], prompts: Sequence[Prompt], kept: Path,
                   temperature: float = 0.0, new_tokens: int = 96, draft_mode: str = "sample", seed: int = 0,
                   cut: bool = False, concurrency: int = 8, command: str = "",
                   progress: Progress = lambda stage, done, total: None,
                   say: Callable[[str], None] = print) -> Trace:
    """Let the served target answer the prompts (`Logged` ones have an answer), then score with both engines.

    targets, drafts: addresses; replicas take turns. kept: the file of finished requests, from which a run that
    was stopped goes on; whoever has saved the trace removes it. temperature 0 or 1. concurrency: requests
    under way, to all engines together. say: is told what makes the numbers doubtful. Other arguments as in
    `traces.measure_trace`. Raises ValueError where a request failed, once the others are done and kept.
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
        done, every = _read_kept(kept, settings), range(len(prompts))

        def stage(name: str, jobs: list[tuple[str, int]], work: Callable) -> float:
            return _stage(name, jobs, work, kept, done, concurrency, progress)

        def tokenize(kind: str, at: int) -> list[int]:
            body = _plain(prompts[at].response) if kind == "text" else \
                {"messages": prompts[at].messages, "add_generation_prompt": True}
            return send("target", at, "tokenize", body)

        logged = [("text", at) for at in every if isinstance(prompts[at], Logged)]
        stage("tokenised", [("prompt", at) for at in every] + logged, tokenize)
        lengths = [len(done["text", at]) if ("text", at) in logged else new_tokens for at in every]
        context = min(engine["context"] for engine in engines.values())
        ids, shortened = _fit(prompts, [done["prompt", at] for at in every], lengths, context, cut)

        def write(kind: str, at: int) -> list[int]:
            # All of them: where a request is silent, vLLM takes what the model's generation_config.json says.
            law = {"temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
            return send("target", at, "write", {"prompt": ids[at], "max_tokens": new_tokens,
                                                "return_token_ids": True, "seed": (seed + at) % 2**63, **law})

        seconds = {"write": stage("the target writes", [("text", at) for at in every], write)}
        texts = [done["text", at] for at in every]
        seconds["score"] = stage("both engines score", [(role, at) for at in every for role in engines],
                                 lambda role, at: send(role, at, "score", ids[at] + texts[at], len(texts[at])))
    read = {role: [done[role, at] for at in every] for role in engines}
    rows = pd.concat([_rows(prompt, *each, temperature, draft_mode)
                      for prompt, *each in zip(prompts, texts, *read.values(), strict=True)], ignore_index=True)
    rows = rows[SCHEMA.names].astype({field.name: field.type.to_pandas_dtype() for field in list(SCHEMA)[2:]})
    check_rows(rows, "the served trace")
    target = {name: np.concatenate([one[name] for one in read["target"]]) for name in ("logprob", "top", "best")}
    if doubt := _doubt(rows.token.to_numpy(), target, temperature):
        say(doubt)
    near_ties = rows.token != target["top"] if temperature == 0 else np.exp(rows.logp) == 0
    return Trace(rows, _meta(engines, temperature, draft_mode) | {
        "seed": seed, "new_tokens": max(lengths), "cut": shortened, "command": command, "seconds": seconds,
        "near_ties": int(near_ties.sum()), "logged": len(logged), "doubt": doubt})


def refuse_unseen(temperature: float, top_k: int = 0, top_p: float = 1.0) -> None:
    """Raise ValueError for laws that log-probabilities of single tokens at temperature 1 do not give."""
    missing = "" if temperature in (0, 1) else f"at temperature {temperature:g} the normaliser"
    if temperature and (top_k or top_p < 1):
        missing = "with top-k or top-p which tokens are left, and their sum,"
    if missing:
        raise ValueError(f"engines show log-probabilities over the whole vocabulary at temperature 1: {missing} "
                         "cannot be seen. Take --temperature 0, or 1 without --top-k and --top-p, or let measure "
                         "load both models here (--target, --draft)")


def read_log(path: Path, skip_bad: bool = False, say: Callable[[str], None] = print,
             temperature: float = 0.0) -> list[Logged]:
    """The requests of a log, each with the id FILE:LINE: prompts as in `prompts.read_prompts`, in JSONL, and a
    "response". Lines that were not written at this temperature, or with top-p or top-k, are bad lines.

    Repeated lines stay: traffic repeats itself. Responses are tokenised anew, without the end of text, so a
    token that the target spelled differently counts as written otherwise.
    """
    logged, bad, silent = [], [], 0
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            route, messages = _request(line)
            row = json.loads(line)
            response = _response(row, temperature)
        except ValueError as error:
            if not skip_bad:
                raise ValueError(f"{path.name} line {number} {error}, or pass --skip-bad to leave such lines "
                                 "out.") from None
            bad.append(number)
            continue
        silent += "temperature" not in row
        logged.append(Logged(f"{path.name}:{number}", route, "own", messages, response=response))
    if bad:
        say(f"{path.name}: left out {len(bad)} lines, which cannot be used: {', '.join(map(str, bad[:8]))}"
            + (" …" if len(bad) > 8 else ""))
    if silent:
        say(f"{path.name}: {silent} lines name no temperature, taken as written at {temperature:g}")
    if not logged:
        raise ValueError(f"{path.name} holds no usable line: write {{\"prompt\": …, \"response\": …}} on each")
    return logged


def _response(row: dict, temperature: float) -> str:
    """The response of a log's line; a ValueError's text goes on from "FILE line N"."""
    said, written = row.get("response"), row.get("temperature", temperature)
    if not isinstance(said, str) or not said:
        raise ValueError('has no "response", or an empty one. Write the text that was answered')
    if not said.isascii() and any("\ud800" <= letter <= "\udfff" for letter in said):
        raise ValueError("has half of a surrogate pair in its response, which is no character. Mend it")
    if isinstance(written, bool) or not isinstance(written, int | float) or written != temperature:
        raise ValueError(f"was written at temperature {written!r}, and this measures at {temperature:g}. Measure "
                         "each temperature alone")
    if temperature and (row.get("top_p") not in (None, 1) or row.get("top_k") not in (None, 0, -1)):
        raise ValueError("was written with top-p or top-k, which engines do not show. Leave it away")
    return said


def _engine(client: httpx.Client, urls: Sequence[str]) -> dict:
    """urls, name, context (tokens) and version of an engine and its replicas, which must serve one model."""
    names, contexts, versions = {}, [], []
    for url in urls:
        address = f"{root(url)}/v1/models"
        try:
            models = request(client, address)["data"]
            names |= {str(each["id"]): url for each in models}
            contexts += [each.get("max_model_len") or np.inf for each in models]
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{address} does not list models: is this an OpenAI-compatible engine?") from None
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
    engine = engines[role]
    address = f"{engine['urls'][at % len(engine['urls'])]}/{'tokenize' if what == 'tokenize' else 'v1/completions'}"
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
    raise ValueError(f"{address} does not answer with the {needed} that were asked for: is this vLLM 0.10.2 or "
                     "newer, and are its log-probabilities logarithms (--logprobs-mode)?")


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
                raise ValueError(f"prompt {prompt.id} has {len(row)} tokens, and with a text of {length} and one "
                                 f"to score that exceeds the engines' context of {context:g}: "
                                 f"{'shorten it, or pass --cut' if room >= 1 else 'ask for fewer new tokens'}")
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


def _doubt(tokens: np.ndarray, target: dict, temperature: float) -> str | None:
    """A sentence if the target did not write this text at this temperature, None if it may have.

    At temperature 1 the text's token is the likeliest one with the chance that this has, so hits less chances
    are a martingale, whose variance is the sum of chance (1 - chance).
    """
    hits, chance = tokens == target["top"], np.exp(np.minimum(target["best"], 0.0))
    if temperature == 0:
        wrong = int((~hits).sum())
        return None if wrong <= len(hits) * 0.02 else (
            f"{wrong} of {len(hits)} tokens are not the target's likeliest: this is no text that it writes at "
            "temperature 0. Was it written by another model, or sampled?")
    off = (hits - chance).sum() / max(np.sqrt((chance * (1 - chance)).sum()), 1e-9)
    return None if abs(off) <= UNLIKELY else (
        f"The target's likeliest token was written {hits.mean():.1%} of the time, and {chance.mean():.1%} were to "
        f"be expected at temperature 1 ({off:+.0f} standard errors): it was written at another temperature, with "
        "top-p or top-k, or by another model, and these acceptances describe neither.")


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


def _stage(name: str, jobs: Sequence[tuple[str, int]], work: Callable, kept: Path, done: dict, concurrency: int,
           progress: Progress) -> float:
    """Do the jobs that are not done, and keep each as soon as it is; the seconds that took."""
    left, lock, started = [job for job in jobs if job not in done], threading.Lock(), time.perf_counter()
    finished = len(jobs) - len(left)
    with open(kept, "a", encoding="utf-8") as file:
        def one(job: tuple[str, int]) -> Answer:
            nonlocal finished
            try:
                value = work(*job)
            except ValueError as error:
                return Answer(error="failed", detail=str(error))
            with lock:
                done[job] = value
                file.write(json.dumps([*job, value]) + "\n")
                file.flush()
                finished += 1
                progress(name, finished, len(jobs))
            return Answer()

        failed = [answer for answer in ask_all(one, left, concurrency) if answer.error]
    if failed:
        first = next(answer for answer in failed if answer.error != "not sent")
        raise ValueError(f"{len(failed)} of {len(jobs)} requests failed ({name}). {first.detail}. The finished ones "
                         "are kept: run the same command again to go on")
    return time.perf_counter() - started


def _read_kept(path: Path, settings: dict) -> dict[tuple[str, int], list | dict]:
    """What an earlier run finished, by (kind, prompt); a new file if there is none."""
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[:raw.rfind(b"\n") + 1]  # a run that was killed may have left half a line
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
        found = {(kind, at): value for kind, at, value in lines[1:]}
    except (ValueError, TypeError):
        lines, found = [None], {}
    if lines and lines[0] != settings:
        raise ValueError(f"{path} holds requests of another measurement: remove it, or name another --out")
    if not lines:
        path.write_text(json.dumps(settings) + "\n", encoding="utf-8")
    else:
        os.truncate(path, len(whole))
    return found


def _said(prompts: Sequence[Prompt]) -> list:
    return [[prompt.id, prompt.messages, getattr(prompt, "response", None)] for prompt in prompts]


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:32]
