"""A key/value cache in which every row has its own length.

After a speculative round each row of a batch has accepted a different number of drafts. Here
undoing the rejected ones is an assignment: `cache.lengths` says how much of each row is real, the
next forward writes over the rest, and the attention mask hides what is not real. Right padding is
the same thing as a rejected draft: written, then forgotten.
"""

from __future__ import annotations

import inspect
from functools import lru_cache

import torch

from course_lib.lean import WIDEST


class KVCache:
    """Keys and values of one Llama-architecture model, written at each row's own end.

    rows: batch size. capacity: the most positions a row can hold.
    lengths: LongTensor [rows], the real positions of each row. Set it to roll back.
    Works as the `cache` (formerly `past_key_values`) argument of transformers' forward.
    """

    is_compileable = False
    ends_at_mask = True  # what `update` returns reaches as far as anyone may see (see `lean`)
    home = None  # the buffers that hold it, once it runs as graphs (see `graphs`)

    def __init__(self, rows: int, capacity: int, device: torch.device | str = "cpu"):
        self.capacity = capacity
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._positions = torch.zeros(rows, 0, dtype=torch.long, device=device)
        self._end = 0

    def advance(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Make room for `width` tokens a row; return their positions [rows, width] and the attention
        mask [rows, 1, width, longest row + width] (True: may be seen). Raises ValueError when full."""
        device = self.lengths.device
        self._positions = self.lengths[:, None] + torch.arange(width, device=device)
        self._end = int(self.lengths.max()) + width
        if self._end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} positions and {self._end} are needed: "
                             "make it larger, or ask for fewer tokens")
        # A key at position j may be seen by the token at position i if j <= i. Left-overs of rejected
        # drafts lie beyond the row's end, so the same comparison hides them.
        mask = torch.arange(self._end, device=device) <= self._positions[:, None, :, None]
        return self._positions, mask

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Forget every row that is not in `rows` (indices): finished rows cost nothing more."""
        self.lengths = self.lengths[rows]
        self.keys = [tensor[rows.to(tensor.device)] for tensor in self.keys]
        self.values = [tensor[rows.to(tensor.device)] for tensor in self.values]
        self.home = None  # these are copies

    # What transformers' attention layers call.

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_args, **_kwargs):
        """Store one layer's keys and values [rows, heads, width, size]; return all of them so far."""
        if layer == len(self.keys):  # each layer's memory lives on that layer's device
            shape = (keys.shape[0], keys.shape[1], self.capacity, keys.shape[3])
            self.keys.append(keys.new_zeros(shape))
            self.values.append(values.new_zeros(shape))
        positions = self._positions.to(keys.device)
        for store, new in ((self.keys[layer], keys), (self.values[layer], values)):
            if store.shape[0] == 1:
                store[:, :, self._end - new.shape[2]:self._end] = new
            else:
                rows = torch.arange(store.shape[0], device=store.device)[:, None]
                store[rows, :, positions] = new.transpose(1, 2)
        return self.keys[layer][:, :, :self._end], self.values[layer][:, :, :self._end]

    def get_seq_length(self, _layer: int = 0) -> int:
        return self._end

    def get_max_cache_shape(self, _layer: int = 0) -> int:
        return self.capacity


def forward_hidden(model, tokens: torch.Tensor, cache: KVCache) -> torch.Tensor:
    """Run tokens [rows, width] after what the cache holds; return last hidden states [rows, width, size].

    The cache then ends after these tokens; set `cache.lengths` lower to take some of them back.
    """
    lean = getattr(model, "lean", None)
    if lean is not None and tokens.shape[1] <= WIDEST:
        states = lean(tokens, cache)
        cache.lengths = cache.lengths + tokens.shape[1]
        return states
    positions, mask = cache.advance(tokens.shape[1])
    output = model.model(input_ids=tokens, position_ids=positions, attention_mask=mask, use_cache=True,
                         **{_cache_argument(type(model.model)): cache})
    cache.lengths = cache.lengths + tokens.shape[1]
    return output.last_hidden_state


def forward(model, tokens: torch.Tensor, cache: KVCache) -> torch.Tensor:
    """Like `forward_hidden`, but logits [rows, width, vocabulary]."""
    return model.lm_head(forward_hidden(model, tokens, cache)).to(tokens.device)


@lru_cache
def _cache_argument(model_class: type) -> str:
    # transformers renamed the argument in 5.24; a wrapped forward still shows the real signature.
    return "cache" if "cache" in inspect.signature(model_class.forward).parameters else "past_key_values"
