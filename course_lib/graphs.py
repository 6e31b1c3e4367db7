"""The lean layers as CUDA graphs: a step recorded once for its shape, then replayed with one launch.

A GPU finishes a small kernel sooner than the processor can ask for the next. A step of a 1B draft is
several hundred kernels, so run one by one it costs what asking costs, not what reading its weights does, and
every k chosen from that time would be wrong. A graph asks once. But it replays addresses, not tensors, so
nothing may move: tokens, lengths, keys and values lie in buffers that stay, attention runs over the whole
buffer behind a mask, and each row writes at its own end, which the buffer `lengths` says.

    (tokens, cache) -> the buffers of that many rows and positions -> one recorded step for each width

Rows are filled up to the next power of two and positions to the next `ROOM`, so that few shapes are recorded
while a batch shrinks and texts differ in length; a shape's first step takes some hundred milliseconds. On a
processor the same code runs without recording, which is how its arithmetic is tested.
Attention here is plain products, not a fused kernel: at contexts of many thousand tokens its time is an
upper bound.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch

from course_lib.cache import KVCache
from course_lib.lean import LeanLayers, make_lean

WIDEST = 17  # tokens a row: a verify of 16 drafts; what is wider is not bound by launches
ROOM = 256  # positions
MOST = 16  # shapes of one model that are kept, the latest used


def make_graphs(model: torch.nn.Module, capture: bool = True) -> bool:
    """Give a model on one device lean layers that run as graphs, if it can have them; say whether.

    `cache.forward_hidden` finds them as `model.lean`. capture=False: the same buffers and the same
    arithmetic with nothing recorded, on any device. Where the answer is no, nothing has changed but that
    the model may have plain lean layers.
    """
    if len({weight.device for weight in model.parameters()}) > 1 or not make_lean(model, packed=False):
        return False
    if model.model.rotary_emb.rope_type in ("dynamic", "longrope"):  # they look at the positions' values
        return False
    model.__dict__["lean"] = StaticLayers(model.__dict__["lean"], capture)
    return True


class StaticLayers:
    """Called as `LeanLayers` are, with tokens [rows, width] and their cache, and equal to them."""

    def __init__(self, lean: LeanLayers, capture: bool):
        self.lean = lean
        # All graphs of a model compute in one piece of memory: they run one after the other.
        self._pool = torch.cuda.graph_pool_handle() if capture else None
        self._homes: dict[tuple[int, int], _Home] = {}

    @torch.inference_mode()
    def __call__(self, tokens: torch.Tensor, cache: KVCache) -> torch.Tensor:
        if tokens.shape[1] > WIDEST:
            return self.lean(tokens, cache)  # writes into the same buffers, if the cache lives in some
        home = cache.home or self._move(cache)
        return home.step(tokens, cache)

    def _move(self, cache: KVCache) -> _Home:
        rows = 1 << (len(cache.lengths) - 1).bit_length()
        shape = rows, -(-cache.capacity // ROOM) * ROOM
        home = self._homes.pop(shape, None) or _Home(self.lean, *shape, self._pool)
        self._homes[shape] = home  # the latest used is last
        while len(self._homes) > MOST:
            del self._homes[next(iter(self._homes))]
        home.take(cache)
        return home


class _Home:
    """Buffers for the keys and values of so many rows and positions, and the steps recorded on them.

    One cache at a time lives here: its tensors become views of the buffers. To the lean layers the buffers
    are the cache, one that is always full and always masked.
    """

    ends_at_mask = False

    def __init__(self, lean: LeanLayers, rows: int, capacity: int, pool: tuple | None):
        self._lean, self._rows, self._capacity, self._pool = lean, rows, capacity, pool
        like = lean.norm.weight
        self._device = like.device
        shape = rows, lean.kv_heads, capacity, lean.size
        with torch.inference_mode(False):  # the cache they become may be used outside it
            self._keys, self._values = ([torch.zeros(shape, dtype=like.dtype, device=like.device)
                                         for _ in lean.layers] for _ in range(2))
            self._lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        self._owner: Callable[[], KVCache | None] = lambda: None
        self._steps: dict[int, tuple[torch.Tensor, Callable[[], torch.Tensor]]] = {}

    def take(self, cache: KVCache) -> None:
        """Let a cache move in; one that lived here and is still in use moves out with a copy of its own."""
        other = self._owner()
        if other is not None and other.home is self:
            other.keys, other.values = ([store.clone() for store in stores]
                                        for stores in (other.keys, other.values))
            other.home = None
        rows = len(cache.lengths)
        for mine, its in ((self._keys, cache.keys), (self._values, cache.values)):
            for layer, buffer in enumerate(mine):
                # A mask makes a weight 0, and 0 times a left-over that is not finite would not be 0.
                buffer.zero_()
                if its:  # else the cache is new
                    buffer[:rows, :, :cache.capacity] = its[layer]
            its[:] = [buffer[:rows, :, :cache.capacity] for buffer in mine]
        self._lengths.zero_()  # rows that only fill up read their token at position 0, and nobody reads them
        self._owner, cache.home = weakref.ref(cache), self

    def step(self, tokens: torch.Tensor, cache: KVCache) -> torch.Tensor:
        """Hidden states [rows, width, hidden] of tokens behind what the cache that lives here holds."""
        rows, width = tokens.shape
        # A GPU is not asked for lengths: the answer would have to be waited for at every draft. There a
        # write beyond the buffer is the index kernel's own error.
        if self._device.type == "cpu" and (end := int(cache.lengths.max()) + width) > cache.capacity:
            raise ValueError(f"the cache holds {cache.capacity} positions and {end} are needed: "
                             "make it larger, or ask for fewer tokens")
        self._lengths[:rows] = cache.lengths
        if width not in self._steps:
            self._steps[width] = self._record(width)
        mine, run = self._steps[width]
        mine[:rows] = tokens
        return run()[:rows].clone()  # the next replay, of any graph, may write over the original

    def _record(self, width: int) -> tuple[torch.Tensor, Callable[[], torch.Tensor]]:
        tokens = torch.zeros(self._rows, width, dtype=torch.long, device=self._device)

        def run() -> torch.Tensor:
            return self._lean(tokens, self)

        if self._pool is None:
            return tokens, run
        with torch.cuda.device(self._device):
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(3):  # what libraries set up at their first calls, no graph may hold
                    run()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                states = run()

        def replay() -> torch.Tensor:
            graph.replay()
            return states

        return tokens, replay

    # What the lean layers call. All of it is arithmetic on the buffers, so that a replay does it anew.

    def advance(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._positions = self._lengths[:, None] + torch.arange(width, device=self._device)
        every = torch.arange(self._capacity, device=self._device)
        return self._positions, every <= self._positions[:, None, :, None]

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int):
        rows = torch.arange(self._rows, device=self._device)[:, None]
        for store, new in ((self._keys[layer], keys), (self._values[layer], values)):
            store[rows, :, self._positions] = new.transpose(1, 2)
        return self._keys[layer], self._values[layer]
