"""A draft that proposes only frequent tokens: its head, two thirds of a small draft, becomes a third as long.

q is zero for every other token. Exactness does not mind: accept and residual hold for any q, and a token
that is never proposed comes from the target, after a rejection. What is lost is the overlap with p there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from course_lib.fetch import PROPOSES


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


def reduce_head(model: torch.nn.Module, folder: str | Path) -> bool:
    """Give the model the reduced head that its folder asks for, if it does; say whether."""
    path = Path(folder) / PROPOSES
    if path.exists():
        model.lm_head = ReducedHead(model.lm_head, torch.from_numpy(np.load(path)))
    return path.exists()
