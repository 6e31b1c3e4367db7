"""The shipped draft: a few of the embedded target's layers, trained on its answers to the training prompts.

Embedding and head stay the target's, so this draft is stored as its layers alone. `learning` has the step,
`teacher` the text; a draft for any other target, or for one route, is made by `make_draft`.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from course_lib.fetch import DRAFT_DATA, FREQUENCY, TARGET_FOLDER, assemble_draft, finished_folder, sha256
from course_lib.files import replacing, write_text
from course_lib.learning import FREQUENT, Learner, batches, keep_layers, overlaps, prune
from course_lib.prompts import ROUTES
from course_lib.teacher import PASSES, WORK, by_frequency, load_model, read_pass, token_counts

LAYERS = (0, 1, 2, 29)
# The shipped draft's training: up to which step, on the schedule of how many. It was shortened four times
# while it ran, to end in the time there was, and twice taken up again with more text.
SHIPPED = ((200, 3200), (600, 2500), (1000, 1800), (1600, 1600), (2300, 4600), (3600, 3600), (4400, 6000),
           (5500, 5500))
# The pass of text that each epoch reads: the first again and again while the others are being written, then
# in turn, so that no text is read much oftener than another. After the last, round and round from pass 1.
READ = (0, 0, 0, 0, 0, *(1, 2, 3, 4) * 2, 1, 2)  # up to step 1600
READ += (3, 4, 0, 1, 2, 5, 3, 5, 4, 6, 5, 6, 2, 1, 6, 5, 3, 6, 4)  # up to step 3600 in the last but one
READ += (5, 6, 0, 3, 2, 7, 7, 1, 8, 8, 7, 9, 8, 9, 7, 9, 8)
PROPOSED = 16384  # tokens that the shipped draft proposes; the others held 0.003 of the overlap


def train(
    steps: int,
    layers=LAYERS,
    batch: int = 8,
    rate: float = 1e-3,
    seed: int = 0,
    work: Path = WORK,
    run: str = "run",
    until: int | None = None,
    read=READ,
    start: Path | None = None,
    say=print,
) -> Path:
    """Train the draft for `steps` batches of written text; return its folder.

    start: the folder of a draft that was trained before, to take these layers from instead of the target.
    Text that is not written yet is waited for. Goes on from the last checkpoint; `until` ends this call
    at that step (the schedule stays that of `steps`). read: the pass of text of each epoch; after the last,
    all but pass 0 in turn. Loss curve: curve.csv in the folder.
    """
    folder = work / run
    folder.mkdir(parents=True, exist_ok=True)
    target = load_model(TARGET_FOLDER)
    head = target.lm_head.weight.detach()
    times = np.bincount(torch.cat([row["text"] for row in read_pass(work, 0)]))
    frequent = by_frequency(times)[:min(FREQUENT, (times > 0).sum())]
    draft = prune(target, layers)
    if start is not None:
        draft.load_state_dict(_layers_of(start, layers), strict=False)
    learner = Learner(draft, (head, head), frequent, rate, seed)
    del target
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        learner.load(checkpoint)
    for step, rows in enumerate(_batches(work, batch, seed, steps, read)):
        if until is not None and step >= until:
            break
        if step < learner.done:
            continue
        row = learner.step(rows, step / steps)
        done = learner.done
        if done % 200 == 0 or done == steps:
            row |= {f"validation_{route}": round(value, 4)
                    for route, value in validate(learner.draft, head, work).items()}
            say(f"{learner.spent / 60:.1f} min {row}")
        if done % 100 == 0 or done == steps or done == until:
            learner.save(checkpoint)
            _export(learner, folder, {"layers": list(layers), "steps": done, "of_steps": steps,
                                      "batch": batch, "rate": rate, "seed": seed})
    return folder


def validate(draft, head, work: Path = WORK) -> dict[str, float]:
    """Mean Σ min(p, q) for each route over the answers to the held-back training prompts."""
    held = [row for row in read_pass(work, 0) if row["held_back"]]
    sums = np.array(overlaps(draft, (head, head), held))
    tokens, routes = (np.array(each) for each in zip(*((len(row["text"]), row["route"]) for row in held),
                                                     strict=True))
    return {route: float(sums[routes == number].sum() / tokens[routes == number].sum())
            for number, route in enumerate(ROUTES)}


def publish(folder: Path = WORK / "run", out: Path = DRAFT_DATA, proposes: int = PROPOSED) -> None:
    """Write a trained draft (draft.json, draft.safetensors, curve.csv) to where the course reads it, with the
    tokens it proposes, most frequent first: so many of all the text that was written beside its run."""
    out.mkdir(parents=True, exist_ok=True)
    times = token_counts(folder.parent)
    tokens = by_frequency(times)[: min(proposes, (times > 0).sum())]
    weights = load_file(folder / "draft.safetensors") | {
        "proposes": torch.from_numpy(tokens).to(torch.int32)
    }
    save_file(weights, out / ".draft.safetensors", metadata={"format": "pt"})
    facts = json.loads((folder / "draft.json").read_text())
    facts |= {"proposes": len(tokens), "sha256": sha256(out / ".draft.safetensors")}
    (out / ".draft.json").write_text(json.dumps(facts, indent=2) + "\n")
    (out / ".curve.csv").write_bytes((folder / "curve.csv").read_bytes())
    for name in ("draft.safetensors", "curve.csv", "draft.json"):
        os.replace(out / f".{name}", out / name)


def as_folder(folder: Path, out: Path) -> None:
    """Write a trained draft as a plain Hugging Face folder that proposes every token, and names them by how
    frequent they are in the text beside its run, so that `bench drafts` can compare cuts (FOLDER@4096)."""
    with finished_folder(out) as part:
        assemble_draft(TARGET_FOLDER, folder, part)
        vocabulary = json.loads((part / "config.json").read_text())["vocab_size"]
        np.save(part / FREQUENCY, by_frequency(token_counts(folder.parent, vocabulary)))


def _batches(work: Path, batch: int, seed: int, steps: int, read):
    """Batches of rows, in an order that depends on the seed alone."""
    given = 0
    for epoch, index in enumerate(itertools.chain(read, itertools.cycle(range(1, PASSES)))):
        rows = [row for row in read_pass(work, index) if not row["held_back"]]
        for rows_of_batch in batches(rows, batch, np.random.default_rng((seed, epoch))):
            if given == steps:
                return
            given += 1
            yield rows_of_batch


def _layers_of(folder: Path, layers) -> dict[str, torch.Tensor]:
    """The weights of these of the target's layers in a trained draft, numbered as in one that has them alone,
    and of its last norm."""
    theirs = json.loads((folder / "draft.json").read_text())["layers"]
    if missing := [layer for layer in layers if layer not in theirs]:
        raise ValueError(f"the draft in {folder} has the layers {theirs}, and not {missing[0]}")
    weights = load_file(folder / "draft.safetensors")
    weights.pop("proposes", None)
    return keep_layers(weights, [theirs.index(layer) for layer in layers])


def _export(learner: Learner, folder: Path, facts: dict) -> None:
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in learner.draft.state_dict().items()
        if "embed_tokens" not in name and "lm_head" not in name
    }
    with replacing(folder / "draft.safetensors") as part:
        save_file(weights, part, metadata={"format": "pt"})
    learner.write_curve(folder / "curve.csv")
    facts |= {
        "tokens": learner.seen,
        "minutes": round(learner.spent / 60, 1),
        "threads": torch.get_num_threads(),
        "base": "SmolLM2-135M-Instruct",
        "base_sha256": sha256(TARGET_FOLDER / "model.safetensors"),
        "sha256": sha256(folder / "draft.safetensors"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    write_text(folder / "draft.json", json.dumps(facts, indent=2) + "\n")
