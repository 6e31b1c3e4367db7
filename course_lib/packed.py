"""Weights on a processor, kept in 16 bits and laid out for few tokens at a time.

A step over one token, or over the k + 1 of a verify, is bound by reading the weights. PyTorch's float32
product on a processor reads 4 bytes a weight, and at widths from 2 to about 8 it is far slower than at
width 1: a verify of 5 tokens took twice a plain step here, and speculation cannot win against that. A
checkpoint in 16 bits holds no more than 16 bits a weight, so these products read 2 bytes, compute in
float32, and cost about the same from width 1 to 5, as on a GPU. The numbers are those of float32 but for
the order of sums.
"""

from __future__ import annotations

import torch

LOST = 2.0**-25  # half the distance of the smallest 16-bit floats: what packing may change a weight by


class PackedLinear(torch.nn.Module):
    """A `torch.nn.Linear` for inference whose weight is packed 16-bit floats; input and output float32."""

    def __init__(self, linear: torch.nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        bias = None if linear.bias is None else linear.bias.detach()
        self.packed = torch.ops.quantized.linear_prepack_fp16(linear.weight.detach(), bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)


def pack(model: torch.nn.Module) -> bool:
    """Pack, in place, every linear layer of a float32 model on a processor; say whether it was done.

    Nothing changes where the model lies elsewhere or in another type, where this build of PyTorch has no
    such product, or where a weight would change by more than float32 rounds anyway (LOST): then the
    checkpoint was not one of 16 bits.
    """
    linears = [(name, module) for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    if not linears or "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    for _, module in linears:
        weight = module.weight.detach()
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            return False
        # In slices that fit a processor's cache: of the whole head, this would take longer than the packing.
        if any((part.half().float() - part).abs().max() > LOST for part in weight.split(256)):
            return False
    for name, module in linears:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, PackedLinear(module))
    return True
