"""The Llama step, for few tokens at a time, in as few operations as it takes.

transformers' forward is built to be read and to cover every case. At a width of a few tokens on a
processor a quarter of its time goes into calls around the arithmetic, and a draft, which is small, pays
most. Here the query, key and value products of a layer are one product, gate and up another, and
attention is two small products over the cache. The numbers are transformers' but for the order of sums.
"""

from __future__ import annotations

import torch
import transformers
from torch.nn.functional import rms_norm, silu

from course_lib.packed import pack

WIDEST = 32  # tokens a row; a prompt is read by transformers, whose attention is made for many


class LeanLayers(torch.nn.Module):
    """The layers of a `LlamaForCausalLM`, on the same `cache.KVCache` as its own forward."""

    def __init__(self, model: transformers.LlamaForCausalLM, share: bool = False):
        """share: the model's own products become slices of the joined ones: no weight is kept twice."""
        super().__init__()
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = model.model.layers[0].self_attn.head_dim
        self.epsilon = config.rms_norm_eps
        body = model.model
        self.embed, self.rotary, self.norm = body.embed_tokens, body.rotary_emb, body.norm
        self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({
            "before": layer.input_layernorm,
            "qkv": _joined(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj,
                           share=share),
            "out": layer.self_attn.o_proj,
            "between": layer.post_attention_layernorm,
            "gate_up": _joined(layer.mlp.gate_proj, layer.mlp.up_proj, share=share),
            "down": layer.mlp.down_proj,
        }) for layer in body.layers)

    def forward(self, tokens: torch.Tensor, cache) -> torch.Tensor:
        """Hidden states [rows, width, hidden] of tokens [rows, width]; the caller moves `cache.lengths`."""
        positions, seen = cache.advance(tokens.shape[1])
        x = self.embed(tokens)
        cos, sin = (part[:, :, None] for part in self.rotary(x, positions))
        # Rotation takes the first half of a head with minus the second and the second with the first.
        sin = torch.cat([-sin[..., :self.size // 2], sin[..., self.size // 2:]], -1)
        # One token of one row sees all there is, unless the cache hands out more than there is; any other
        # needs to be kept from what comes after it.
        hidden = None
        if seen.shape[0] * seen.shape[2] > 1 or not cache.ends_at_mask:
            hidden = x.new_zeros(seen.shape).masked_fill_(~seen, -torch.inf)[:, :, None]
        for number, layer in enumerate(self.layers):
            y = self._attend(layer, _norm(x, layer["before"].weight, self.epsilon),
                             cos, sin, hidden, cache, number)
            x = x + layer["out"](y)
            y = _norm(x, layer["between"].weight, self.epsilon)
            gate, up = layer["gate_up"](y).chunk(2, -1)
            x = x + layer["down"](silu(gate) * up)
        return _norm(x, self.norm.weight, self.epsilon)

    def _attend(self, layer, x, cos, sin, hidden, cache, number: int) -> torch.Tensor:
        rows, width, _ = x.shape
        qkv = layer["qkv"](x).view(rows, width, -1, self.size)
        turned, values = qkv[:, :, :-self.kv_heads], qkv[:, :, -self.kv_heads:]
        turned = turned * cos + turned.roll(self.size // 2, -1) * sin
        keys, values = cache.update(turned[:, :, self.heads:].transpose(1, 2), values.transpose(1, 2), number)
        # The query heads that share a key head go through one product, as more rows of it.
        queries = turned[:, :, :self.heads].transpose(1, 2).reshape(rows, self.kv_heads, -1, self.size)
        scores = (queries @ keys.transpose(2, 3)) * self.size**-0.5
        if hidden is not None:
            shape = scores.shape
            scores = (scores.view(rows, self.kv_heads, -1, width, shape[-1]) + hidden).view(shape)
        mixed = scores.softmax(-1) @ values
        return mixed.view(rows, self.heads, width, self.size).transpose(1, 2).reshape(rows, width, -1)


def make_lean(model: torch.nn.Module, packed: bool = True) -> bool:
    """Give a float32 model on a processor packed weights and lean layers, if both can be had; say whether.

    `cache.forward_hidden` finds the layers as `model.lean`. packed=False: lean layers alone, on whatever
    device and in whatever type the model has.
    """
    config = model.config
    plain = not (getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False))
    if type(model) is not transformers.LlamaForCausalLM or config.hidden_act != "silu" or not plain:
        return packed and pack(model)
    with torch.no_grad():
        lean = LeanLayers(model, share=not packed)
    if packed:
        if not pack(model):
            return False
        for ours, theirs in zip(lean.layers, model.model.layers, strict=True):  # packed once, for both
            ours["out"], ours["down"] = theirs.self_attn.o_proj, theirs.mlp.down_proj
        pack(lean)  # the joined weights: the same numbers, so they can be packed, too
    model.__dict__["lean"] = lean  # past Module's own bookkeeping: these are no weights of another model
    return True


def _norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    if x.dtype.itemsize > 2:
        return rms_norm(x, x.shape[-1:], weight, epsilon)
    # transformers rounds to 16 bits before it weighs, and so a model in 16 bits was trained to expect.
    return weight * rms_norm(x.float(), x.shape[-1:], None, epsilon).to(x.dtype)


def _joined(*linears: torch.nn.Linear, share: bool) -> torch.nn.Linear:
    weight = torch.cat([linear.weight for linear in linears])
    joined = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    joined.weight = torch.nn.Parameter(weight, requires_grad=False)
    if share:
        for linear, part in zip(linears, weight.split([each.out_features for each in linears]), strict=True):
            linear.weight = torch.nn.Parameter(part, requires_grad=False)
    return joined
