"""A draft that proposes only frequent tokens: its head, two thirds of a small draft, becomes a third as long.

q is zero for every other token. Exactness does not mind: accept and residual hold for any q, and a token
that is never proposed comes from the target, after a rejection. What is lost is the overlap with p there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from course_lib.fetch import FREQUENCY, PROPOSES


class ReducedHead(torch.nn.Module):
    """Logits [..., vocabulary] of some tokens, -inf for the others. tokens: their ids, LongTensor [n]."""

    def __init__(self, head: torch.nn.Linear, tokens: torch.Tensor):
        super().__init__()
        if not len(tokens) or not 0 <= tokens.min() <= tokens.max() < head.out_features:
            raise ValueError(f"the tokens a draft proposes must lie in 0 ... {head.out_features - 1}")
        self.in_features, self.out_features = head.in_features, head.out_features
        tokens = tokens.sort().values  # files have them by frequency; memory is quicker read in order
        self.register_buffer("tokens", tokens.to(head.weight.device).long(), persistent=False)
        self.few = torch.nn.Linear(head.in_features, len(tokens), bias=head.bias is not None, device="meta")
        self.few.weight = torch.nn.Parameter(head.weight.detach()[self.tokens], requires_grad=False)
        if head.bias is not None:
            self.few.bias = torch.nn.Parameter(head.bias.detach()[self.tokens], requires_grad=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        logits = states.new_full((*states.shape[:-1], self.out_features), -torch.inf)
        few = self.few(states)
        return logits.scatter_(-1, self.tokens.expand_as(few), few)


def reduce_head(model: torch.nn.Module, folder: str | Path, few: int | None = None) -> bool:
    """Give the model the reduced head that its folder asks for, if it does; say whether.

    few: so many tokens instead, the most frequent of the text that the draft learned from. Raises ValueError
    where the folder does not say which these are, or names fewer.
    """
    path = Path(folder) / PROPOSES
    if few is None and not path.exists():
        return False
    tokens = np.load(path) if few is None else _by_frequency(Path(folder), few)
    model.lm_head = ReducedHead(model.lm_head, torch.from_numpy(tokens))
    return True


def _by_frequency(folder: Path, few: int) -> np.ndarray:
    path = next((folder / name for name in (FREQUENCY, PROPOSES) if (folder / name).exists()), None)
    tokens = None if path is None else np.load(path)
    if tokens is None or (np.diff(tokens) > 0).all():  # sorted by id: a set, as it was stored at first
        raise ValueError(f"{folder} does not say which tokens are frequent ({FREQUENCY}): a draft made by "
                         "distill does")
    if not 1 <= few <= len(tokens):
        raise ValueError(f"{folder} names the {len(tokens)} most frequent tokens: it cannot propose {few}")
    return tokens[:few]
