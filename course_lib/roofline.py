"""The least time a forward pass can take: its bytes over the bandwidth, or its arithmetic over the peak.

Within a part of the pass reading and computing overlap at best, so the larger one is its time:

    seconds = max(bytes / bandwidth, FLOP / peak)        for the matrices, plus the same for attention

The matrices are read once, however many tokens pass through them; their arithmetic grows with the tokens.
With few tokens in flight the bytes decide, and a verify of k + 1 tokens takes as long as a step of one. Past
`Device.ridge` FLOP for each byte the arithmetic does, and every drafted token is paid for. Attention reads
the cache of each row, once for all the new tokens of that row, and is bound by bytes nearly always. The two
parts wait for each other in every layer, so their times add up; one maximum over both would hide the
smaller, and promise speedups at loads where there are none.

Every time here is a lower bound: no kernel reaches both peaks, and launches, activations, sampling and the
communication between devices are left out. A speedup computed from it is a quotient of two such bounds:
an estimate that may lie on either side.
Source: Williams, Waterman and Patterson 2009, "Roofline", applied to a decoder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.costs import RoundCosts


@dataclass(frozen=True)
class Model:
    """The shape of a decoder of the Llama architecture: RMS norms, grouped queries, gated FFN, no biases."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool  # one matrix is both the embedding and the head
    head_dim: int = 0  # 0: hidden / heads

    def __post_init__(self) -> None:
        sizes = (self.layers, self.hidden, self.ffn, self.heads, self.kv_heads, self.vocab)
        if min(sizes) < 1 or self.heads % self.kv_heads:
            raise ValueError(f"{self}: sizes must be 1 or more, and kv_heads must divide heads.")
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self.hidden // self.heads)

    @classmethod
    def from_config(cls, config: Mapping, name: str = "") -> Model:
        """From a Hugging Face config (config.json as a dict). Raises ValueError for other architectures."""
        experts = [key for key in config if "experts" in key and config[key]]
        if experts:
            raise ValueError(f"the config has {experts[0]}: there, what a step reads depends on the text.")
        try:
            return cls(
                name=name or config.get("_name_or_path") or config.get("model_type", ""),
                layers=config["num_hidden_layers"],
                hidden=config["hidden_size"],
                ffn=config["intermediate_size"],
                heads=config["num_attention_heads"],
                kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
                vocab=config["vocab_size"],
                tied=bool(config.get("tie_word_embeddings", False)),
                head_dim=config.get("head_dim") or 0,
            )
        except KeyError as error:
            raise ValueError(f"the config lacks {error}: it is no decoder of the Llama kind.") from None

    @property
    def matrices(self) -> int:
        """Weights that every token is multiplied with: the layers' matrices and the head."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ffn) + self.vocab * self.hidden

    @property
    def weights_read(self) -> int:
        """Weights that a forward reads: all but an embedding of its own, of which it reads a row a token."""
        return self.matrices + (2 * self.layers + 1) * self.hidden

    @property
    def parameters(self) -> int:
        return self.weights_read + (0 if self.tied else self.vocab * self.hidden)

    @property
    def cache_numbers(self) -> int:
        """Numbers the cache keeps for each token: a key and a value for each KV head of each layer."""
        return 2 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Device:
    """bandwidth: bytes/s of its memory. flops: dense peak, FLOP/s, for numbers of `bytes_per_number`.
    memory: bytes it holds; nan where nobody said."""

    name: str
    bandwidth: float
    flops: float
    bytes_per_number: int = 2
    memory: float = math.nan

    def __post_init__(self) -> None:
        if not min(self.bandwidth, self.flops, self.bytes_per_number) > 0 or self.memory <= 0:
            raise ValueError(f"{self}: bandwidth, flops, bytes_per_number and memory must be above 0.")

    @property
    def ridge(self) -> float:
        """FLOP for each byte read at which arithmetic takes as long as reading.

        A weight is multiplied and added once a token: with two bytes a weight, tokens in flight too.
        """
        return self.flops / self.bandwidth


# Vendor data sheets; peaks are bf16 without sparsity (where a sheet prints the sparse figure, half of it).
DEVICES = {
    "h100": Device("H100 SXM", 3.35e12, 989e12, memory=80e9),
    "h200": Device("H200 SXM", 4.8e12, 989e12, memory=141e9),
    "a100": Device("A100 SXM 80GB", 2.039e12, 312e12, memory=80e9),
    "l4": Device("L4", 300e9, 121e12, memory=24e9),
    "mi300x": Device("MI300X", 5.3e12, 1307e12, memory=192e9),
}
MODELS = {
    "llama-3.2-1b": Model("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 128_256, tied=True),
    "llama-3.2-3b": Model("Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128_256, tied=True),
    "llama-3.1-8b": Model("Llama-3.1-8B", 32, 4096, 14_336, 32, 8, 128_256, tied=False),
    "llama-3.1-70b": Model("Llama-3.1-70B", 80, 8192, 28_672, 64, 8, 128_256, tied=False),
    "smollm2-135m": Model("SmolLM2-135M-Instruct", 30, 576, 1536, 9, 3, 49_152, tied=True),
}


def forward_seconds(
    model: Model, device: Device, batch: int = 1, width: int = 1, context: int = 0, tp: int = 1
) -> float:
    """The least time of one forward over `width` new tokens in each of `batch` rows. A bound; see above.

    context: tokens of each row in the cache already. tp: devices that share every layer (tensor parallel);
    KV heads are copied once tp exceeds them. Raises ValueError for sizes that cannot be.
    """
    if min(batch, width, tp) < 1 or context < 0:
        raise ValueError("batch, width and tp must be 1 or more, and context 0 or more.")
    if model.heads % tp:
        raise ValueError(f"tp={tp} does not divide the {model.heads} heads of {model.name}.")
    tokens = batch * width
    weights = _seconds(device, model.weights_read / tp, 2 * model.matrices * tokens / tp)
    cache = batch * (context + width) * model.cache_numbers / min(tp, model.kv_heads)
    seen = context + (width + 1) / 2  # tokens that a new token looks at, itself included, on average
    attention = _seconds(device, cache, 4 * model.layers * model.heads * model.head_dim * seen * tokens / tp)
    return weights + attention


def roofline_costs(
    target: Model,
    draft: Model,
    device: Device,
    batch: int,
    context: int,
    max_k: int,
    tp: int = 1,
    draft_tp: int | None = None,
) -> RoundCosts:
    """Round costs in which every forward takes the least time it can.

    tp, draft_tp: devices that share the target, and the draft (None: as many; 1 spares a small draft the
    communication, which is not counted here, and leaves the other devices idle while it runs).

    No part of it was measured: real steps are slower, and a small draft, whose step is mostly launches, by
    more than a large target. The speedup that follows is for orientation, not for a decision.
    """
    widths = range(1, max_k + 2)
    return RoundCosts(
        t_draft=forward_seconds(draft, device, batch, 1, context, tp if draft_tp is None else draft_tp),
        t_verify={width: forward_seconds(target, device, batch, width, context, tp) for width in widths},
    )


def scaled_costs(c: float, load: int = 1, per_token: float = 0.0, overhead: float = 0.0,
                 ridge: float = math.inf, max_k: int = 16) -> RoundCosts:
    """Round costs at a load from what was measured with one request, in plain steps of that one request.

    A step takes as long as its tokens in flight say, load x width of them: with few, reading the weights
    decides, and past the ridge arithmetic does, as in `forward_seconds`; attention is left out.

        step(tokens) = max(1, tokens / ridge) + per_token (tokens - 1)

    c: draft step / target step; the draft's grows with its tokens as the target's does. load: requests
    decoded together. per_token: what a token more in flight adds in practice, where nothing should, and
    overhead: what else a round adds at any load, both in those steps. ridge: tokens in flight from which
    arithmetic takes as long as reading; for two-byte weights that is `Device.ridge`.
    Raises ValueError for sizes that cannot be.
    """
    if min(c, per_token, overhead) < 0 or not ridge > 0 or load < 1 or max_k < 0:
        raise ValueError("c, per_token, overhead and max_k must be 0 or more, ridge above 0, load 1 or more.")

    def step(tokens: int) -> float:
        return max(1.0, tokens / ridge) + per_token * (tokens - 1)

    return RoundCosts(c * step(load), {width: step(load * width) for width in range(1, max_k + 2)}, overhead)


def rows_that_fit(models: Sequence[Model], device: Device, context: int, tp: int = 1,
                  share: float = 0.9) -> int:
    """The most rows of `context` tokens whose caches fit beside the weights; 0 where the weights do not.

    models: [target], or [target, draft]: a draft takes room twice, for its weights once and for its cache
    in every row. share: of the memory, for weights and caches; the rest is for activations (0.9 is what
    vLLM takes by default). Raises ValueError where the device's memory is not known.
    """
    if context < 1 or tp < 1 or not 0 < share <= 1:
        raise ValueError("context and tp must be 1 or more, and share in (0, 1].")
    if math.isnan(device.memory):
        raise ValueError(f"nobody said how much memory {device.name} has: pass Device(..., memory=bytes).")
    numbers = share * device.memory / device.bytes_per_number - sum(m.parameters for m in models) / tp
    row = context * sum(model.cache_numbers / min(tp, model.kv_heads) for model in models)
    return max(0, int(numbers // row))


def _seconds(device: Device, numbers: float, arithmetic: float) -> float:
    return max(numbers * device.bytes_per_number / device.bandwidth, arithmetic / device.flops)
