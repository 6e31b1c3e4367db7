"""Packed weights: the same numbers as float32, and only where that is true."""

import pytest
import torch
from test_distill import tiny
from tiny import greedy_text
from transformers import AutoModelForCausalLM

from course_lib.fetch import TARGET_FOLDER
from course_lib.packed import PackedLinear, pack
from course_lib.speculate import decode

pytestmark = pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines,
                                reason="this build of PyTorch has no packed product")


def sixteen_bits(model):
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return model


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 48), (5, 48), (2, 3, 48), (70, 48)])
def test_the_product_is_that_of_float32(bias, shape):
    torch.manual_seed(0)
    linear = sixteen_bits(torch.nn.Linear(48, 33, bias=bias))
    x = torch.randn(shape)
    torch.testing.assert_close(PackedLinear(linear)(x), linear(x), rtol=1e-5, atol=1e-5)


def test_a_packed_model_says_what_the_plain_one_says():
    plain, packed = sixteen_bits(tiny()), sixteen_bits(tiny())
    assert pack(packed)
    assert sum(isinstance(module, PackedLinear) for module in packed.modules()) == 4 * 7 + 1
    ids = torch.arange(2, 20)[None]
    torch.testing.assert_close(packed(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)
    embedding = packed.model.embed_tokens.weight  # the head's numbers, still there to look tokens up in
    assert torch.equal(embedding, plain.model.embed_tokens.weight)


@pytest.mark.parametrize("change", [
    lambda model: model.double(),
    lambda model: model.bfloat16(),
    lambda model: model.lm_head.weight.data.add_(torch.rand_like(model.lm_head.weight) / 3),  # 24 bits
    lambda model: model.lm_head.weight.data[0, :1].fill_(1e6),  # beyond what 16 bits hold
])
def test_a_model_that_would_change_is_left_alone(change):
    model = sixteen_bits(tiny())
    change(model)
    assert not pack(model)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())


def test_the_embedded_target_is_packed_and_writes_what_the_plain_one_writes(smol):
    assert isinstance(smol.target.lm_head, PackedLinear)
    prompt = smol.encode([{"role": "user", "content": "Name three colours."}])
    plain = AutoModelForCausalLM.from_pretrained(TARGET_FOLDER, dtype=torch.float32)
    assert decode(smol, [prompt], 3, 16).tokens[0] == greedy_text(plain, prompt, 16, smol.eos)
