"""A draft for any Llama: some of its layers, trained on its own text or on given text, for so long.

    target, prompts -> text, and the target's states behind it (`teacher`) -> steps (`learning`) -> a folder

The folder is a plain Hugging Face one. Its subfolder `work` holds what a killed run goes on from: the text,
written portion by portion as training comes to it, and a checkpoint. Each portion is read READS times on
average, the first time when it is fresh. On some prompts of every route, which are never trained on, the
target's text is written before all else: Σ min(p, q) there is the α that is reported.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from transformers import GenerationConfig
from transformers.utils import logging

from course_lib.fetch import FREQUENCY, PROPOSES
from course_lib.intervals import ratio_interval
from course_lib.learning import FREQUENT, batches, overlaps
from course_lib.pairs import Pair
from course_lib.plans import DONE, PLAN, Plan, load_both, sign, split
from course_lib.prompts import Logged, Prompt
from course_lib.scoring import hidden_states
from course_lib.teacher import answer, by_frequency, load_rows, save_rows
from course_lib.traces import machine

PORTION, TOGETHER = 64, 32  # texts in a file, and written in one batch
READS = 4  # of each text
MARKS = 5  # times that α is measured on the way
EVERY = 50  # steps between checkpoints


def make_draft(plan: Plan, out: Path, prompts: Sequence[Prompt], others: Sequence[Prompt] = (),
               device: str | None = None, say=print) -> dict:
    """Train a draft as planned into the folder `out`; return what DONE says of it.

    prompts: what it learns from, but for those held back; with their responses for a corpus. others: of
    other routes, only measured on. The same call goes on after a kill, and does nothing once it is done.
    say: is told of progress. The result: alpha by route (before, after and gain, with intervals over
    prompts), curve (α by step), what it took, and where it came from. Raises ValueError (PairError) for a
    plan that does not fit the models, too few prompts, or a folder that holds something else.
    """
    trained, held = split(prompts, others)
    if plan.text == "corpus" and not all(isinstance(prompt, Logged) for prompt in trained):
        raise ValueError("a corpus needs responses: give a file whose lines have a prompt and a response")
    signed = sign(plan, out, [*prompts, *others])
    if (out / DONE).exists():
        say(f"{out} is finished already")
        return json.loads((out / DONE).read_text(encoding="utf-8"))
    teacher, learner, fixed, dtype = load_both(plan, device)
    (out / "work").mkdir(parents=True, exist_ok=True)
    (out / "work" / PLAN).write_text(signed, encoding="utf-8")
    run = _Run(plan, out / "work", teacher, learner, fixed, trained, held, say)
    run.train()
    return _finish(run, out, dtype)


class _Run:
    """The state of one run: its text, its learner, and what was measured."""

    def __init__(self, plan, work, teacher, learner, fixed, trained, held, say):
        self.plan, self.work, self.teacher, self.learner, self.say = plan, work, teacher, learner, say
        self.fixed, self.trained, self.held = fixed, trained, held
        self.seconds = {"writing": 0.0, "measuring": 0.0}
        self.measured: list[list[float]] = []  # by time: Σ min(p, q) over each held-back text
        self.held_rows = self._rows("held-back", held, True, 0)
        self.times = np.zeros(len(learner.heads[0]), int)  # of each token, in the text read so far
        if plan.steps != 0:
            self._count(self.portion(0))
            learner.frequent = by_frequency(self.times)[:FREQUENT]

    def train(self) -> None:
        """Go on from the checkpoint, if there is one, to the end of the plan."""
        plan, learner, checkpoint = self.plan, self.learner, self.work / "checkpoint.pt"
        stream = self._batches()
        if checkpoint.exists():
            saved = learner.load(checkpoint)
            self.seconds, self.measured = saved["seconds"], saved["measured"]
            for _ in range(learner.done):
                next(stream)
        else:
            learner.curve.append({"step": 0, "tokens": 0})
            self._measure()
        while (before := plan.progress(learner)) < 1:
            learner.step(next(stream), before)
            mark = int(plan.progress(learner) * MARKS) > int(before * MARKS)
            if mark:
                self._measure()
            if mark or learner.done % EVERY == 0:
                learner.save(checkpoint, seconds=self.seconds, measured=self.measured)

    def portion(self, number: int) -> list[dict]:
        """The rows of a portion of text, written when they are first asked for."""
        own, count, chosen = self.plan.text == "target", len(self.trained), []
        for i in range(number * PORTION, (number + 1) * PORTION):
            if own or i < count:  # a corpus ends; the target can answer once more
                order = np.random.default_rng((self.plan.seed, i // count)).permutation(count)
                chosen.append(self.trained[order[i % count]])
        return self._rows(f"text-{number:04d}", chosen, own, number + 1)

    def proposes(self) -> np.ndarray | None:
        """The tokens that the draft proposes, by the text it has read so far; None for all."""
        few = self.plan.proposes
        return self.fixed if few is None else by_frequency(self.times)[:few]

    def alphas(self, sums: Sequence[float]) -> dict[str, tuple]:
        """By route, Σ min(p, q) of each held-back text, and its tokens."""
        routes = np.array([prompt.route for prompt in self.held])
        tokens = np.array([len(row["text"]) for row in self.held_rows])
        return {str(route): (np.array(sums)[routes == route], tokens[routes == route])
                for route in dict.fromkeys(routes)}

    def _measure(self) -> None:
        started, learner = time.perf_counter(), self.learner
        self.measured.append(overlaps(learner.draft, learner.heads, self.held_rows, self.proposes()))
        alphas = {route: float(sums.sum() / tokens.sum())
                  for route, (sums, tokens) in self.alphas(self.measured[-1]).items()}
        learner.curve[-1] |= {f"alpha_{route}": round(alpha, 4) for route, alpha in alphas.items()}
        self.seconds["measuring"] += time.perf_counter() - started
        said = "  ".join(f"{route} {alpha:.3f}" for route, alpha in alphas.items())
        self.say(f"step {learner.done}, {learner.seen} tokens, {learner.spent / 60:.1f} min: α {said}")

    def _batches(self) -> Iterator[list[dict]]:
        """Batches without end, in an order that depends on the seed alone."""
        portions = math.inf if self.plan.text == "target" else math.ceil(len(self.trained) / PORTION)
        for turn in itertools.count():
            order = np.random.default_rng((self.plan.seed, turn))
            fresh = [turn] if turn < portions else []
            if fresh and turn:
                self._count(self.portion(turn))
            older = order.integers(min(turn + 1, portions), size=READS - len(fresh))
            for number in (*fresh, *older.tolist()):
                yield from batches(self.portion(number), self.plan.batch, order)

    def _count(self, rows: Sequence[dict]) -> None:
        self.times += np.bincount(torch.cat([row["text"] for row in rows]), minlength=len(self.times))

    def _rows(self, name: str, prompts: Sequence[Prompt], own: bool, number: int) -> list[dict]:
        path = self.work / f"{name}.safetensors"
        if not path.exists():
            started, plan = time.perf_counter(), self.plan
            ids = [list(self.teacher.encode(prompt.messages)) for prompt in prompts]
            ids = [row[-(self.teacher.context - plan.new_tokens):] for row in ids]
            if own:
                texts, hidden = write_answers(self.teacher, ids, plan.new_tokens, (plan.seed, number))
            else:
                texts, hidden = _read(self.teacher, ids, [prompt.response for prompt in prompts],
                                      plan.new_tokens)
            save_rows(path, self.teacher.target.lm_head, ids, texts, hidden)
            seconds = time.perf_counter() - started
            self.seconds["writing"] += seconds
            count = sum(map(len, texts))
            self.say(f"{name}: {count} tokens of text, {count / seconds:.0f} a second")
        return load_rows(path)


def write_answers(teacher: Pair, ids, new_tokens: int, seed: tuple[int, int]):
    """The target's answers at temperature 1, and the states behind their tokens; similar lengths together."""
    generator = torch.Generator(teacher.device).manual_seed(int(np.random.default_rng(seed).integers(2**63)))
    texts, hidden = [None] * len(ids), [None] * len(ids)
    by_length = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    for at in range(0, len(ids), TOGETHER):
        group = by_length[at:at + TOGETHER]
        found = answer(teacher.target, [ids[i] for i in group], torch.arange(len(group)), new_tokens,
                       generator, teacher.eos)
        for i, text, states in zip(group, *found, strict=True):
            texts[i], hidden[i] = text, states
    return texts, hidden


@torch.inference_mode()
def _read(teacher: Pair, ids, responses: Sequence[str], new_tokens: int):
    """Given answers as tokens, with an end of text, and the states of the target that reads them."""
    end = sorted(teacher.eos)[:1]
    texts = [(teacher.tokenizer(response, add_special_tokens=False)["input_ids"] + end)[:new_tokens]
             for response in responses]
    hidden = []
    for at in range(0, len(ids), 8):
        here = slice(at, at + 8)
        hidden += hidden_states(teacher.target, ids[here], texts[here], teacher.device).split(
            [len(text) for text in texts[here]])
    return texts, hidden


def _finish(run: _Run, out: Path, dtype: torch.dtype) -> dict:
    """Write the folder; return what DONE says."""
    plan, learner, part = run.plan, run.learner, run.work / "folder"
    shutil.rmtree(part, ignore_errors=True)
    draft = learner.draft.to("cpu", dtype)
    # How the target likes to be sampled is no business of the draft, and not every such file may be saved.
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    said = run.teacher.target.generation_config
    draft.generation_config = GenerationConfig(**{name: getattr(said, name) for name in names})
    logging.disable_progress_bar()
    draft.save_pretrained(part)
    run.teacher.tokenizer.save_pretrained(part)
    if run.times.any():
        np.save(part / FREQUENCY, by_frequency(run.times))
    if (proposes := run.proposes()) is not None:
        np.save(part / PROPOSES, proposes)
    learner.write_curve(part / "curve.csv")
    alpha = {}
    ends = zip(*(run.alphas(run.measured[i]).items() for i in (0, -1)), strict=True)
    for (route, (before, tokens)), (_, (after, _)) in ends:
        alpha[route] = {"learned": route in {prompt.route for prompt in run.trained}, "prompts": len(tokens),
                        **{name: _json(ratio_interval(sums, tokens)) for name, sums in
                           (("before", before), ("after", after), ("gain", after - before))}}
    found = {**asdict(plan), "proposes": None if proposes is None else len(proposes),
             "parameters": draft.num_parameters(), "dtype": str(dtype).removeprefix("torch."), "alpha": alpha,
             "curve": [row for row in learner.curve if any(name.startswith("alpha_") for name in row)],
             "steps": learner.done, "tokens": learner.seen, "text_tokens": int(run.times.sum()),
             "seconds": {"training": learner.spent, **run.seconds},
             "versions": {name: importlib.metadata.version(name)
                          for name in ("torch", "transformers", "course_lib")},
             "threads": torch.get_num_threads(), "machine": machine(run.teacher.device),
             "date": datetime.now().astimezone().isoformat(timespec="seconds")}
    words = json.dumps(found, indent=1)
    (part / DONE).write_text(words + "\n", encoding="utf-8")
    for file in sorted(part.iterdir(), key=lambda file: file.name == DONE):
        file.chmod(0o644)  # safetensors writes files that only their owner can read
        os.replace(file, out / file.name)
    part.rmdir()
    return json.loads(words)


def _json(interval) -> dict:
    return {name: None if math.isnan(value) else value for name, value in interval._asdict().items()}
