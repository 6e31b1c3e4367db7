"""The target's own text, scored once by both models: one row a token, enough to replay every k.

The target writes, and its law p at every position comes with that; one forward of the draft over prompt
and text gives q at all of them. What is kept of them is a few numbers a token, above all `accept`: the
chance that a draft at this position is accepted, given the token x_t that the text has there. A draft
d ~ q is accepted with chance min(1, p(d)/q(d)), so by Bayes

    P(accepted | x_t) = q(x_t) min(1, p(x_t)/q(x_t)) / p(x_t) = min(1, q(x_t)/p(x_t))

which holds for a greedy draft too, whose q is a point mass, and at temperature 0, where both are.
Source: Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.5, read backwards. `replay` does the rest.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from course_lib.bars import Progress
from course_lib.files import replacing
from course_lib.lookup import LOOKUP, NONE, guesses

FORMAT = 2  # 1: no column `drafter`, always the model
KEY = b"course_lib.trace"
SCHEMA = pa.schema([("route", pa.string()), ("prompt", pa.string()), ("t", pa.int32()), ("token", pa.int32()),
                    ("logp", pa.float32()), ("logq", pa.float32()), ("match", pa.bool_()),
                    ("overlap", pa.float32()), ("accept", pa.float32()), ("entropy", pa.float32()),
                    ("drafter", pa.int8())])
LIMITS = (("token", 0, np.inf), ("logp", -np.inf, 0), ("logq", -np.inf, 0), ("overlap", 0, 1),
          ("accept", 0, 1), ("entropy", 0, np.finfo(np.float32).max), ("drafter", 0, 2))


@dataclass
class Trace:
    """One row a token, in the order of the text, and where it all came from.

    rows: route, prompt (its id), t (position in the text, from 0), token, logp and logq (of the token,
    under the laws that are sampled from, in nats; -inf for chance 0), match (the draft's likeliest token
    is this one), overlap (sum of min(p, q) over the vocabulary), accept (see above), entropy (of p, nats),
    drafter (what drafts here: 0 NOTHING, 1 the MODEL, 2 a LOOKUP in the text).
    meta: pair, target, draft, lookup (the shortest and longest match; None without), device, dtype,
    temperature, top_k, top_p, draft_mode, seed, new_tokens, versions, machine, date, command; near_ties (see
    `score_trace`), cut (ids of shortened prompts) and seconds (write, score_target, score_draft).
    """

    rows: pd.DataFrame
    meta: dict

    def accepts(self, route: str | None = None) -> list[np.ndarray]:
        """The chances a_t of each prompt, a 1-D array each, in order; of one route or of all."""
        return self.column("accept", route)

    def column(self, name: str, route: str | None = None) -> list[np.ndarray]:
        """Any column, one array a prompt. `column("token")` are the texts, to score with another draft."""
        rows = self.rows if route is None else self.rows[self.rows.route == route]
        if rows.empty:
            known = ", ".join(self.rows.route.unique())
            raise ValueError(f"the trace has no route {route!r}: it has {known}")
        starts = np.flatnonzero(rows.t.to_numpy() == 0)
        return np.split(rows[name].to_numpy(), starts[1:])

    def save(self, path: str | Path) -> None:
        """Write a Parquet file that `load` reads back. Raises ValueError rather than write a bad trace."""
        if missing := [name for name in SCHEMA.names if name not in self.rows]:
            raise ValueError(f"this trace lacks the columns {', '.join(missing)}")
        check_rows(self.rows, "this trace")
        table = pa.Table.from_pandas(self.rows, schema=SCHEMA, preserve_index=False)
        table = table.replace_schema_metadata({KEY: json.dumps({"format": FORMAT, **self.meta})})
        with replacing(path) as part:
            pq.write_table(table, part, compression="zstd", write_page_checksum=True)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote. Raises ValueError, with the reason, for any other file."""
        table, meta, form = _read(Path(path))
        if form == 1:
            meta.setdefault("lookup", None)
            table = table.append_column("drafter", pa.array(np.ones(len(table)), pa.int8()))
        if missing := [name for name in SCHEMA.names if name not in table.column_names]:
            raise ValueError(f"{path} lacks the columns {', '.join(missing)}: measure again")
        try:
            table = table.select(SCHEMA.names).cast(SCHEMA)
        except pa.ArrowException as error:
            raise ValueError(f"{path} has a column of the wrong type ({error}): measure again") from error
        if empty := [name for name in SCHEMA.names if table[name].null_count]:
            raise ValueError(f"{path} has empty cells in {', '.join(empty)}: measure again")
        rows = table.to_pandas()
        check_rows(rows, str(path))
        return cls(rows, meta)


def measure_trace(pair, prompts: Sequence, sampling, new_tokens: int, draft_mode: str = "sample",
                  batch: int = 16, seed: int = 0, cut: bool = False, command: str = "",
                  progress: Progress | None = None) -> Trace:
    """Let the target write `new_tokens` for each prompt (fewer where it ends the text), and score them.

    pair: `pairs.Pair`. prompts: `prompts.Prompt`s, different ids. sampling: the law that writes and that
    will verify. draft_mode: "sample" or "greedy", as in `speculate.decode`. batch: texts written or scored
    at a time. cut: shorten a prompt that is too long for the models' context, from its beginning; without
    it such a prompt is refused by name. progress: called with a stage, prompts done and prompts in all.
    """
    return measure_traces([pair], prompts, sampling, new_tokens, draft_mode, batch, seed, cut, command,
                          progress)[0]


def measure_traces(pairs: Sequence, prompts: Sequence, sampling, new_tokens: int, draft_mode: str = "sample",
                   batch: int = 16, seed: int = 0, cut: bool = False, command: str = "",
                   progress: Progress | None = None) -> list[Trace]:
    """As `measure_trace`, for several drafts of one target: a trace for each pair, of the same text."""
    import torch

    from course_lib.scoring import write_and_score

    pair = min(pairs, key=lambda pair: pair.context)
    ids, shortened = encode_prompts(pair, prompts, new_tokens, cut)
    generator = torch.Generator(pair.device).manual_seed(seed)
    found = write_and_score(pairs, ids, new_tokens, sampling, draft_mode, batch, generator, progress)
    traces = _traces(pairs, prompts, sampling, draft_mode, *found)
    for trace in traces:
        trace.meta |= {"seed": seed, "new_tokens": new_tokens, "cut": shortened, "command": command}
    return traces


def score_trace(pair, prompts: Sequence, texts: Sequence[Sequence[int]], sampling, draft_mode: str = "sample",
                batch: int = 16, progress: Progress | None = None) -> Trace:
    """Score texts (token ids, one list a prompt) that exist already, as in `measure_trace`.

    The result describes these texts only if the target wrote them under the same `sampling`.
    meta["near_ties"] counts tokens that the target, reading, would not have written: at temperature 0 not
    its argmax, else cut off by top-k or top-p. Of its own text that happens where two logits lie within
    rounding, and the text is believed; many of them mean that something else wrote it. While it writes
    (`measure_trace`) the laws are those that the tokens came from, and there are hardly any.
    """
    return score_traces([pair], prompts, texts, sampling, draft_mode, batch, progress)[0]


def score_traces(pairs: Sequence, prompts: Sequence, texts: Sequence[Sequence[int]], sampling,
                 draft_mode: str = "sample", batch: int = 16,
                 progress: Progress | None = None) -> list[Trace]:
    """As `score_trace`, for several drafts of one target: a trace for each pair."""
    from course_lib.scoring import score_drafts

    if len(texts) != len(prompts) or not all(len(text) for text in texts):
        raise ValueError(f"{len(prompts)} prompts need as many texts, each of at least one token")
    ids, _ = encode_prompts(min(pairs, key=lambda pair: pair.context), prompts, max(map(len, texts)), False)
    texts = [list(text) for text in texts]
    scores, near_ties, seconds = score_drafts(pairs, ids, texts, sampling, draft_mode, batch, progress)
    return _traces(pairs, prompts, sampling, draft_mode, texts, scores, near_ties, {"write": 0.0, **seconds})


def add_lookup(trace: Trace, encode: Callable, prompts: Sequence, lookup, draft: bool = True) -> Trace:
    """The trace that `measure_trace` would give with a lookup before the draft, or without a draft at all.

    No model is run: at temperature 0 a guess is accepted where it is the text's token, and both are known.
    encode: messages to token ids, the pair's own (`pairs.load_encoder`). prompts: at least those of the
    trace. Raises ValueError at a temperature above 0, where the target's chance of a guess would be needed,
    and where a prompt is missing or was cut.
    """
    if trace.meta["temperature"]:
        raise ValueError("a trace at a temperature above 0 does not say how likely a guess was: measure "
                         "again with --lookup")
    if trace.meta.get("lookup") or trace.meta.get("cut"):
        raise ValueError("the trace was measured with a lookup, or with prompts that were cut: measure again "
                         "with the --lookup you want")
    known = {(prompt.route, prompt.id): prompt for prompt in prompts}
    texts = list(trace.rows.groupby(["route", "prompt"], sort=False).token)
    if missing := [name for name, _ in texts if name not in known]:
        raise ValueError(f"prompt {missing[0][1]} of the trace is not among the prompts: give the file it "
                         "was measured on")
    guess = np.concatenate([guesses(lookup, encode(known[name].messages), tokens.tolist())
                            for name, tokens in texts])
    rows, sure = trace.rows.copy(), guess != NONE
    right = guess == rows.token
    columns = {"match": right, "overlap": right, "accept": right, "logq": np.where(right, 0.0, -np.inf),
               "drafter": LOOKUP * sure}
    for name, value in columns.items():
        rows[name] = np.where(sure | (not draft), value, rows[name]).astype(rows[name].dtype)
    named = {"lookup": [lookup.shortest, lookup.longest]} | ({} if draft else {"draft": None})
    return Trace(rows, trace.meta | named)


def encode_prompts(pair, prompts: Sequence, new_tokens: int, cut: bool) -> tuple[list[list[int]], list[str]]:
    """Token ids of each prompt, and the ids of those that had to be cut to fit the context."""
    if not prompts:
        raise ValueError("there is no prompt to measure")
    name, times = Counter((prompt.route, prompt.id) for prompt in prompts).most_common(1)[0]
    if times > 1:
        raise ValueError(f"prompt {name[1]} of route {name[0]} is there {times} times: give each its own id")
    room, rows, shortened = pair.context - new_tokens, [], []
    if room < 1:
        raise ValueError(f"{new_tokens} new tokens leave no room in a context of {pair.context}: "
                         "ask for fewer")
    for prompt in prompts:
        row = list(pair.encode(prompt.messages))
        if len(row) > room:
            if not cut:
                raise ValueError(f"prompt {prompt.id} has {len(row)} tokens, and with {new_tokens} new ones "
                                 f"that exceeds the context of {pair.context}: shorten it, or pass --cut")
            shortened.append(prompt.id)
        rows.append(row[-room:])  # what was said last, and the template's cue to answer, are at the end
    return rows, shortened


def check_rows(rows: pd.DataFrame, where: str) -> None:
    """Raise ValueError unless every value can be what its name says and every text runs 0, 1, 2, ..."""
    if rows.empty:
        raise ValueError(f"{where} holds no rows: measure at least one prompt")
    for name, low, high in LIMITS:
        values = rows[name].to_numpy()
        bad = np.flatnonzero(~((values >= low) & (values <= high)))  # also true of nan
        if bad.size:
            raise ValueError(f"{where} has {name} {values[bad[0]]} in row {bad[0]}, which must lie between "
                             f"{low} and {high}: measure again")
    t = rows.t.to_numpy()
    begins = np.flatnonzero(t == 0)
    text = rows.groupby(["route", "prompt"], sort=False).ngroup().to_numpy()
    same = np.diff(text) == 0
    if t[0] != 0 or len(begins) != text.max() + 1 or not np.where(same, np.diff(t) == 1, t[1:] == 0).all():
        raise ValueError(f"{where} has a text whose positions are not 0, 1, 2, ...: rows are missing, "
                         "doubled or out of order")


def _traces(pairs, prompts, sampling, draft_mode, texts, scores, near_ties, seconds) -> list[Trace]:
    lengths = [len(text) for text in texts]
    texts = {"route": np.repeat([prompt.route for prompt in prompts], lengths),
             "prompt": np.repeat([prompt.id for prompt in prompts], lengths),
             "t": np.concatenate([np.arange(length) for length in lengths]), "token": np.concatenate(texts)}
    types, traces = {field.name: field.type.to_pandas_dtype() for field in list(SCHEMA)[2:]}, []
    for pair, each in zip(pairs, scores, strict=True):
        columns = {name: np.concatenate([text[name] for text in each]) for name in each[0]}
        traces.append(Trace(pd.DataFrame(texts | columns)[SCHEMA.names].astype(types),
                            provenance(pair, sampling, draft_mode)
                            | {"near_ties": near_ties, "seconds": dict(seconds)}))
    return traces


def provenance(pair, sampling, draft_mode: str) -> dict:
    """The meta of what this pair measures now: its names, device, sampling, versions, machine and date."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "course_lib")}
    return {"pair": pair.name, **names(pair), "device": str(pair.device),
            "dtype": str(pair.dtype).removeprefix("torch."), "temperature": sampling.temperature,
            "top_k": sampling.top_k, "top_p": sampling.top_p, "draft_mode": draft_mode, "seed": None,
            "new_tokens": None, "cut": [], "command": "", "versions": versions,
            "machine": machine(pair.device),
            "date": datetime.now().astimezone().isoformat(timespec="seconds")}


def names(pair) -> dict:
    """Target and draft as a trace names them: hub ids, or the last part of a folder; draft None and
    lookup None where there is none of these."""
    models = {"target": pair.target, "draft": pair.draft}
    found = {role: None if model is None else str(model.name_or_path) for role, model in models.items()}
    found = {role: Path(name).name if name and Path(name).is_absolute() else name
             for role, name in found.items()}
    return found | {"lookup": pair.lookup and [pair.lookup.shortest, pair.lookup.longest]}


def machine(device) -> str:
    """What computed, in words: the GPU's name, or the processor's and how many cores there are."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _read(path: Path) -> tuple[pa.Table, dict, int]:
    with open(path, "rb") as file:
        begin = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        end = file.read(4)
    if begin != b"PAR1":
        raise ValueError(f"{path} is not a Parquet file: a trace is what `measure --out` writes")
    if end != b"PAR1" or path.stat().st_size < 12:
        raise ValueError(f"{path} is truncated: copy it again, or measure again")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            described = file.schema_arrow.metadata or {}
            table = file.read() if KEY in described else None
        meta = json.loads(described.get(KEY, b"null"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({str(error).splitlines()[0][:100]}): copy it again, or "
                         "measure again") from error
    if table is None:
        raise ValueError(f"{path} is a Parquet file but not a trace: it lacks the note that "
                         "`measure --out` leaves")
    form = meta.pop("format", None) if isinstance(meta, dict) else None
    if not isinstance(form, int) or form < 1:
        raise ValueError(f"{path} is damaged: its note names no format")
    if form > FORMAT:
        raise ValueError(f"{path} has format {form} and this course_lib reads up to {FORMAT}: update it")
    return table, meta, form
