"""Make a draft: keep a few of the target's layers and train them on the target's own text.

Embedding and head stay the target's, so a draft is stored as its layers alone. The loss moves from
KL(p‖q), which learns fast, to total variation, which is what counts: the chance that a sampled
draft is accepted is Σ min(p, q) = 1 − TV(p, q). The text comes from `teacher.write_text`.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from course_lib.fetch import DRAFT_DATA, TARGET_FOLDER, sha256
from course_lib.prompts import ROUTES
from course_lib.teacher import PASSES, WORK, load_model, read_pass, token_counts

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
FREQUENT, SAMPLED = 4096, 1024  # tokens of the vocabulary that every training step looks at


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
    say=print,
) -> Path:
    """Train the draft for `steps` batches of written text; return its folder.

    Text that is not written yet is waited for. Goes on from the last checkpoint; `until` ends this call
    at that step (the schedule stays that of `steps`). read: the pass of text of each epoch; after the last,
    all but pass 0 in turn. Loss curve: curve.csv in the folder.
    """
    folder = work / run
    folder.mkdir(parents=True, exist_ok=True)
    target = load_model(TARGET_FOLDER)
    head = target.lm_head.weight.detach()
    draft = _prune(target, layers)
    del target
    trained = [parameter for name, parameter in draft.named_parameters() if "embed_tokens" not in name]
    optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    done, seen, spent, curve = 0, 0, 0.0, []
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        for parameter, value in zip(trained, saved["weights"], strict=True):
            parameter.data.copy_(value)
        optimizer.load_state_dict(saved["optimizer"])
        done, seen, spent, curve = saved["done"], saved["seen"], saved["spent"], saved["curve"]
    frequent = _frequent_tokens(read_pass(work, 0), FREQUENT)
    started = time.perf_counter()
    for step, rows in enumerate(_batches(work, batch, seed, steps, read)):
        if until is not None and step >= until:
            break
        if step < done:
            continue
        progress = step / steps
        for group in optimizer.param_groups:
            group["lr"] = (
                rate * min(1, (step + 1) / 50) * (0.05 + 0.95 * (1 + math.cos(math.pi * progress)) / 2)
            )
        part, shift = _sample_head(head, _worth_knowing(frequent, rows), np.random.default_rng((seed, step)))
        kl, overlap, count = _step(draft, part, rows, _tv_weight(progress), shift)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done, seen = done + 1, seen + count
        row = {"step": done, "tokens": seen, "kl": round(kl, 4), "overlap": round(overlap, 4)}
        if done % 200 == 0 or done == steps:
            row |= {
                f"validation_{route}": round(value, 4) for route, value in validate(draft, head, work).items()
            }
            say(f"{(spent + time.perf_counter() - started) / 60:.1f} min {row}")
        curve.append(row)
        if done % 100 == 0 or done == steps or done == until:
            total = spent + time.perf_counter() - started
            _save_checkpoint(
                checkpoint,
                {
                    "weights": [p.data for p in trained],
                    "optimizer": optimizer.state_dict(),
                    "done": done,
                    "seen": seen,
                    "spent": total,
                    "curve": curve,
                },
            )
            _export(
                draft,
                folder,
                {
                    "layers": list(layers),
                    "steps": done,
                    "of_steps": steps,
                    "batch": batch,
                    "rate": rate,
                    "seed": seed,
                    "tokens": seen,
                    "minutes": round(total / 60, 1),
                    "threads": torch.get_num_threads(),
                },
                curve,
            )
    return folder


def validate(draft, head, work: Path = WORK) -> dict[str, float]:
    """Mean Σ min(p, q) for each route over the answers to the held-back training prompts."""
    rows = [row for row in read_pass(work, 0) if row["held_back"]]
    overlaps = {route: [] for route in ROUTES}
    with torch.inference_mode():
        for i in range(0, len(rows), 16):
            part = rows[i : i + 16]
            values = _overlap(*_states(draft, part), head).split([len(row["text"]) for row in part])
            for row, overlap in zip(part, values, strict=True):
                overlaps[ROUTES[row["route"]]].append(overlap)
    return {route: float(torch.cat(values).mean()) for route, values in overlaps.items()}


def publish(folder: Path = WORK / "run", out: Path = DRAFT_DATA) -> None:
    """Write a trained draft (draft.json, draft.safetensors, curve.csv) to where the course reads it, with the
    tokens it proposes: the most frequent ones of all the text that was written beside its run."""
    out.mkdir(parents=True, exist_ok=True)
    times = token_counts(folder.parent)
    proposes = np.argsort(-times, kind="stable")[: min(PROPOSED, (times > 0).sum())]
    weights = load_file(folder / "draft.safetensors") | {
        "proposes": torch.from_numpy(np.sort(proposes)).to(torch.int32)
    }
    save_file(weights, out / ".draft.safetensors", metadata={"format": "pt"})
    facts = json.loads((folder / "draft.json").read_text())
    facts |= {"proposes": len(proposes), "sha256": sha256(out / ".draft.safetensors")}
    (out / ".draft.json").write_text(json.dumps(facts, indent=2) + "\n")
    (out / ".curve.csv").write_bytes((folder / "curve.csv").read_bytes())
    for name in ("draft.safetensors", "curve.csv", "draft.json"):
        os.replace(out / f".{name}", out / name)


def _tv_weight(progress: float) -> float:
    return min(1.0, max(0.0, (progress - 0.4) / 0.4))  # KL alone, then a slow turn, then total variation


def _prune(target, layers):
    """A copy of the target with only these layers, in order."""
    config = type(target.config)(**{**target.config.to_dict(), "num_hidden_layers": len(layers)})
    draft = type(target)(config)
    wanted = {}
    for name, tensor in target.state_dict().items():
        if ".layers." in name:
            number, rest = name.split(".layers.")[1].split(".", 1)
            if int(number) in layers:
                wanted[f"model.layers.{list(layers).index(int(number))}.{rest}"] = tensor.clone()
        else:
            wanted[name] = tensor
    draft.load_state_dict(wanted)
    draft.tie_weights()
    draft.model.embed_tokens.weight.requires_grad_(False)
    return draft


def _batches(work: Path, batch: int, seed: int, steps: int, read):
    """Batches of rows, in an order that depends on the seed alone."""
    given = 0
    for epoch, index in enumerate(itertools.chain(read, itertools.cycle(range(1, PASSES)))):
        order = np.random.default_rng((seed, epoch))
        rows = [row for row in read_pass(work, index) if not row["held_back"]]
        order.shuffle(rows)
        # Similar lengths share a batch, so that little is spent on padding.
        groups = [
            sorted(rows[i : i + 8 * batch], key=lambda row: len(row["prompt"]) + len(row["text"]))
            for i in range(0, len(rows), 8 * batch)
        ]
        batches = [group[i : i + batch] for group in groups for i in range(0, len(group), batch)]
        order.shuffle(batches)
        for rows_of_batch in batches:
            if given == steps:
                return
            given += 1
            yield rows_of_batch


def _states(draft, rows):
    """The draft's and the target's hidden states [tokens, size] at every token of the texts."""
    tokens = [torch.cat([row["prompt"], row["text"][:-1]]).long() for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    states = draft.model(input_ids=padded, use_cache=False).last_hidden_state
    ours = [
        states[i, len(row["prompt"]) - 1 : len(ids)]
        for i, (row, ids) in enumerate(zip(rows, tokens, strict=True))
    ]
    return torch.cat(ours), torch.cat([row["hidden"] for row in rows]).float()


def _frequent_tokens(rows, count: int) -> np.ndarray:
    tokens, times = np.unique(torch.cat([row["text"] for row in rows]), return_counts=True)
    return tokens[np.argsort(-times, kind="stable")][:count]


def _worth_knowing(frequent: np.ndarray, rows) -> np.ndarray:
    """The frequent tokens and those that the target finds likely somewhere in these rows."""
    return np.union1d(frequent, torch.cat([row["top"] for row in rows]).numpy())


def _sample_head(head, known: np.ndarray, rng: np.random.Generator):
    """Rows of the head for known tokens and a fresh sample of the others, and what to add to their
    logits so that each sampled token stands for its share of the others.

    The head over 49,152 tokens is two thirds of the arithmetic of a step; the tokens left out here
    carry hardly any of the target's mass, and over many steps each gets its turn.
    """
    others = np.setdiff1d(np.arange(len(head)), known)
    if len(others) <= SAMPLED:
        return head, 0.0
    chosen = np.concatenate([known, rng.choice(others, SAMPLED, replace=False)])
    shift = torch.zeros(len(chosen))
    shift[len(known) :] = math.log(len(others) / SAMPLED)
    return head[torch.from_numpy(chosen)], shift


def _step(draft, head, rows, tv_weight, shift=0.0):
    """One forward and backward; returns mean KL, mean overlap and the number of tokens.

    head: rows of the head [tokens of the vocabulary, size], all or a sample; shift: added to their
    logits, the log of how many tokens each stands for.
    """
    ours, theirs = _states(draft, rows)
    gradient = torch.empty_like(ours)
    kl = overlap = 0.0
    count = len(ours)
    # The vocabulary is 85 times wider than a hidden state: a slice of tokens at a time, with the gradient
    # of both losses written out, so that only one slice's logits exist at once.
    with torch.no_grad():
        for a, b, part in zip(ours.split(512), theirs.split(512), gradient.split(512), strict=True):
            log_q, log_p = ((state @ head.T + shift).log_softmax(-1) for state in (a, b))
            q, p = log_q.exp(), log_p.exp()
            kl += float((p * (log_p - log_q)).sum())
            overlap += float(torch.minimum(p, q).sum())
            below = (q < p).float()
            of_tv = q * ((q * below).sum(-1, keepdim=True) - below)  # of 1 − Σ min(p, q), by the logits
            of_logits = (1 - tv_weight) * (q - p) + 3 * tv_weight * of_tv
            part[:] = of_logits @ head
    ours.backward(gradient / count)
    return kl / count, overlap / count, count


def _overlap(ours, theirs, head):
    parts = [
        torch.minimum((a @ head.T).softmax(-1), (b @ head.T).softmax(-1)).sum(-1)
        for a, b in zip(ours.split(256), theirs.split(256), strict=True)
    ]
    return torch.cat(parts)


def _save_checkpoint(path: Path, content: dict) -> None:
    part = path.with_suffix(".part")
    torch.save(content, part)
    os.replace(part, path)


def _export(draft, folder: Path, facts: dict, curve: list[dict]) -> None:
    weights = {
        name: tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in draft.state_dict().items()
        if "embed_tokens" not in name and "lm_head" not in name
    }
    part = folder / ".draft.safetensors"
    save_file(weights, part, metadata={"format": "pt"})
    os.replace(part, folder / "draft.safetensors")
    columns = list(dict.fromkeys(key for row in curve for key in row))
    lines = [",".join(columns)] + [",".join(str(row.get(key, "")) for key in columns) for row in curve]
    (folder / "curve.csv").write_text("\n".join(lines) + "\n")
    facts |= {
        "base": "SmolLM2-135M-Instruct",
        "base_sha256": sha256(TARGET_FOLDER / "model.safetensors"),
        "sha256": sha256(folder / "draft.safetensors"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    (folder / "draft.json").write_text(json.dumps(facts, indent=2) + "\n")
