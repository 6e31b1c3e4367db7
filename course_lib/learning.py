"""How a draft learns the law of its target: one step on texts behind which the target's states are known.

The loss moves from KL(p‖q), which learns fast, to total variation, which is what counts: the chance that a
sampled draft is accepted is Σ min(p, q) = 1 − TV(p, q). Embedding and head stay as they are. A step on batch
n is a function of the weights, of n and of the seed alone, so that a training that was killed goes on from
its last checkpoint as if nothing had happened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from course_lib.files import replacing, write_text
from course_lib.losses import tv_weight

FREQUENT, SAMPLED = 4096, 1024  # tokens of the vocabulary that every training step looks at
TV_SCALE = 3  # total variation has the smaller gradients: so scaled, one rate suits both losses


class Learner:
    """A draft in training: its weights, its optimizer, and its curve (one dict a step).

    draft: a Llama; all but its embedding and head is trained. heads: weights of its head and of the target's
    [vocabulary, size of the hidden state], or one twice. frequent: ids of tokens that every step looks at.
    loss: one of `losses.LOSSES`. Raises ValueError for another.
    """

    def __init__(self, draft, heads: tuple, frequent: np.ndarray, rate: float = 1e-3, seed: int = 0,
                 loss: str = "turn"):
        self.tv_weight = tv_weight(loss)
        for frozen in (draft.model.embed_tokens, draft.lm_head):
            frozen.requires_grad_(False)
        self.draft, self.heads, self.frequent, self.rate, self.seed = draft, heads, frequent, rate, seed
        self.trained = [parameter for parameter in draft.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.done, self.seen, self.spent, self.curve = 0, 0, 0.0, []

    def step(self, rows: Sequence[dict], progress: float) -> dict:
        """Learn from a batch of rows (see `teacher.load_rows`); return its line of the curve.

        progress: how far the training is, from 0 to 1. spent grows by the seconds this takes.
        """
        started = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = (self.rate * min(1, (self.done + 1) / 50)
                           * (0.05 + 0.95 * (1 + math.cos(math.pi * progress)) / 2))
        heads, shift = _sample_heads(self.heads, _worth_knowing(self.frequent, rows),
                                     np.random.default_rng((self.seed, self.done)))
        kl, overlap, count = backward(self.draft, heads, rows, self.tv_weight(progress), shift)
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done, self.seen = self.done + 1, self.seen + count
        self.spent += time.perf_counter() - started
        self.curve.append({"step": self.done, "tokens": self.seen, "kl": round(kl, 4),
                           "overlap": round(overlap, 4)})
        return self.curve[-1]

    def save(self, path: Path, **beside) -> None:
        """Write what `load` goes on from, and whatever else belongs beside it."""
        with replacing(path) as part:
            torch.save({"weights": [parameter.data for parameter in self.trained],
                        "optimizer": self.optimizer.state_dict(), "done": self.done, "seen": self.seen,
                        "spent": self.spent, "curve": self.curve, **beside}, part)

    def load(self, path: Path) -> dict:
        """Go on from where `save` was called; return all that it wrote."""
        saved = torch.load(path, weights_only=True)
        for parameter, value in zip(self.trained, saved["weights"], strict=True):
            parameter.data.copy_(value)
        self.optimizer.load_state_dict(saved["optimizer"])
        self.done, self.seen, self.spent, self.curve = (saved[name] for name in
                                                        ("done", "seen", "spent", "curve"))
        return saved

    def write_curve(self, path: Path) -> None:
        """The curve as CSV; what only some steps have is empty in the others."""
        columns = list(dict.fromkeys(key for row in self.curve for key in row))
        lines = [",".join(str(row.get(key, "")) for key in columns) for row in self.curve]
        write_text(path, "\n".join([",".join(columns), *lines]) + "\n")


def prune(target, layers: Sequence[int]):
    """A copy of a Llama with only these of its layers, in this order."""
    draft = type(target)(type(target.config)(**{**target.config.to_dict(), "num_hidden_layers": len(layers)}))
    draft.load_state_dict(keep_layers(target.state_dict(), layers))
    draft.tie_weights()
    return draft


def keep_layers(weights: Mapping[str, torch.Tensor], layers: Sequence[int]) -> dict[str, torch.Tensor]:
    """Of a Llama's weights by name those of these layers, numbered in this order, and those of no layer."""
    kept, places = {}, list(layers)
    for name, tensor in weights.items():
        _, mark, rest = name.partition("model.layers.")
        if not mark:
            kept[name] = tensor
        elif int(rest.split(".", 1)[0]) in places:
            number, rest = rest.split(".", 1)
            kept[f"{mark}{places.index(int(number))}.{rest}"] = tensor
    return kept


def batches(rows: Sequence[dict], batch: int, order: np.random.Generator) -> list[list[dict]]:
    """The rows in batches, in random order; similar lengths share one, so that little is padding."""
    rows = list(rows)
    order.shuffle(rows)
    groups = [sorted(rows[i:i + 8 * batch], key=lambda row: len(row["prompt"]) + len(row["text"]))
              for i in range(0, len(rows), 8 * batch)]
    found = [group[i:i + batch] for group in groups for i in range(0, len(group), batch)]
    order.shuffle(found)
    return found


def backward(draft, heads: tuple, rows: Sequence[dict], tv_weight: float, shift=0.0):
    """Gradients of one batch, by way of the trained weights; returns mean KL, mean overlap and tokens.

    heads: rows of both heads [tokens of the vocabulary, size], all or a sample; shift: added to their
    logits, the log of how many tokens each stands for.
    """
    ours, theirs = states(draft, rows)
    gradient = torch.empty_like(ours)
    our_head, their_head = heads
    kl = overlap = 0.0
    count = len(ours)
    # The vocabulary is 85 times wider than a hidden state: a slice of tokens at a time, with the gradient
    # of both losses written out, so that only one slice's logits exist at once.
    with torch.no_grad():
        for a, b, part in zip(ours.split(512), theirs.split(512), gradient.split(512), strict=True):
            log_q = (a @ our_head.T + shift).log_softmax(-1)
            log_p = (b @ their_head.T + shift).log_softmax(-1)
            q, p = log_q.exp(), log_p.exp()
            kl += float((p * (log_p - log_q)).sum())
            overlap += float(torch.minimum(p, q).sum())
            below = (q < p).float()
            of_tv = q * ((q * below).sum(-1, keepdim=True) - below)  # of 1 − Σ min(p, q), by the logits
            of_logits = (1 - tv_weight) * (q - p) + TV_SCALE * tv_weight * of_tv
            part[:] = of_logits @ our_head
    ours.backward(gradient / count)
    return kl / count, overlap / count, count


@torch.inference_mode()
def overlaps(draft, heads: tuple, rows: Sequence[dict], proposes: np.ndarray | None = None) -> list[float]:
    """Σ min(p, q) summed over the tokens of each row, over the whole vocabulary.

    proposes: the tokens that the draft proposes, if not all: q is zero elsewhere.
    """
    our_head, their_head = heads
    few = None if proposes is None else torch.from_numpy(np.asarray(proposes)).long().to(our_head.device)
    our_head = our_head if few is None else our_head[few]
    found = []
    for i in range(0, len(rows), 16):
        part = rows[i:i + 16]
        values = []
        for a, b in zip(*(each.split(256) for each in states(draft, part)), strict=True):
            p = (b @ their_head.T).softmax(-1)
            q = (a @ our_head.T).softmax(-1)
            values.append(torch.minimum(p if few is None else p[:, few], q).sum(-1))
        found += [float(each.sum()) for each in torch.cat(values).split([len(row["text"]) for row in part])]
    return found


def states(draft, rows: Sequence[dict]):
    """The draft's and the target's hidden states [tokens, size] at every token of the texts."""
    device = draft.device
    tokens = [torch.cat([row["prompt"], row["text"][:-1]]).long() for row in rows]
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True).to(device)
    found = draft.model(input_ids=padded, use_cache=False).last_hidden_state
    ours = [found[i, len(row["prompt"]) - 1:len(ids)]
            for i, (row, ids) in enumerate(zip(rows, tokens, strict=True))]
    return torch.cat(ours), torch.cat([row["hidden"] for row in rows]).to(device).float()


def _worth_knowing(frequent: np.ndarray, rows: Sequence[dict]) -> np.ndarray:
    """The frequent tokens and those that the target finds likely somewhere in these rows."""
    return np.union1d(frequent, torch.cat([row["top"] for row in rows]).numpy())


def _sample_heads(heads: tuple, known: np.ndarray, rng: np.random.Generator):
    """Rows of both heads for known tokens and a fresh sample of the others, and what to add to their
    logits so that each sampled token stands for its share of the others.

    The head over 49,152 tokens is two thirds of the arithmetic of a step; the tokens left out here
    carry hardly any of the target's mass, and over many steps each gets its turn.
    """
    ours, theirs = heads
    others = np.setdiff1d(np.arange(len(ours)), known)
    if len(others) <= SAMPLED:
        return heads, 0.0
    chosen = torch.from_numpy(np.concatenate([known, rng.choice(others, SAMPLED, replace=False)]))
    shift = torch.zeros(len(chosen))
    shift[len(known):] = math.log(len(others) / SAMPLED)
    chosen, shift = chosen.to(ours.device), shift.to(ours.device)
    part = ours[chosen]
    return (part, part if theirs is ours else theirs[chosen]), shift
