"""The code that a GPU records as graphs, run without recording: transformers' numbers, the same rounds, and
nothing in it that a recording would miss."""

import pytest
import torch
from test_lean import CLOSE, llama, run
from tiny import tiny_pair, with_noise
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from course_lib import graphs
from course_lib.cache import KVCache, forward, forward_hidden
from course_lib.graphs import WIDEST, make_graphs
from course_lib.lean import _norm
from course_lib.sampling import Sampling
from course_lib.speculate import decode


def static(model):
    assert make_graphs(model, capture=False)
    return model


@pytest.mark.parametrize("changes", [{}, {"head_dim": 12}, {"num_key_value_heads": 6}])
@pytest.mark.parametrize("rows", [1, 3, 4])
@torch.inference_mode()
def test_rows_of_any_length_that_take_tokens_back_get_the_numbers_of_transformers(changes, rows):
    model = llama(**changes)
    tokens = [torch.randint(0, 50, (rows, width)) for width in (9, 1, 4, 1, WIDEST, WIDEST + 3, 2, 1)]
    plain = run(model, KVCache(rows, 60), tokens)
    for one, other in zip(plain, run(static(model), KVCache(rows, 60), tokens), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@torch.inference_mode()
def test_rows_that_leave_take_nothing_with_them():
    model, ids = llama(), torch.randint(0, 50, (5, 12))
    want = model(ids[[1, 4]]).logits[:, 8:]
    cache = KVCache(5, 20)
    forward(static(model), ids[:, :8], cache)
    cache.keep_rows(torch.tensor([1, 4]))
    assert cache.home is None
    torch.testing.assert_close(forward(model, ids[[1, 4], 8:], cache), want, **CLOSE)


@torch.inference_mode()
def test_caches_that_take_turns_in_the_same_buffers_keep_their_own():
    model, ids = llama(), torch.randint(0, 50, (2, 1, 9))
    want = [model(each).logits for each in ids]
    static(model)
    caches = [KVCache(1, 20), KVCache(1, 25)]
    for step in range(9):
        for cache, each, logits in zip(caches, ids, want, strict=True):
            got = forward(model, each[:, step:step + 1], cache)
            torch.testing.assert_close(got, logits[:, step:step + 1], **CLOSE)


@torch.inference_mode()
def test_left_overs_that_are_not_numbers_are_gone():
    model, ids = llama(), torch.randint(0, 50, (1, 4))
    want = model(ids).logits
    static(model)
    first = KVCache(1, 9)
    forward(model, ids, first)
    for buffer in (*first.keys, *first.values):
        buffer.fill_(torch.nan)
    torch.testing.assert_close(forward(model, ids, KVCache(1, 9)), want, **CLOSE)


@torch.inference_mode()
def test_rows_that_only_fill_up_start_anew():
    model, cache = static(llama()), KVCache(4, 256)
    cache.lengths[:] = 250
    forward(model, torch.ones(4, 2, dtype=torch.long), cache)
    forward(model, torch.ones(3, WIDEST, dtype=torch.long), KVCache(3, 256))  # the fourth row has room again


@torch.inference_mode()
def test_shapes_are_few_and_the_oldest_go(monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 2)
    model = static(llama())
    for rows, capacity in ((3, 200), (4, 256), (4, 300), (1, 300), (2, 300)):
        forward(model, torch.ones(rows, 1, dtype=torch.long), KVCache(rows, capacity))
    assert list(model.lean._homes) == [(1, 512), (2, 512)]


@torch.inference_mode()
def test_nothing_moves_between_steps():
    """A graph replays addresses: once a shape is there, its buffers stay, whichever cache moves in."""
    model = static(llama())

    def addresses():
        for width in (1, 2, 4):
            forward(model, torch.ones(3, width, dtype=torch.long), cache)
        (home,) = model.lean._homes.values()
        held = (*home._keys, *home._values, home._lengths, *(tokens for tokens, _ in home._steps.values()))
        assert [store.data_ptr() for store in cache.keys] == [store.data_ptr() for store in home._keys]
        return [tensor.data_ptr() for tensor in held]

    cache = KVCache(3, 40)
    first = addresses()
    cache = KVCache(4, 60)
    cache.keep_rows(torch.tensor([0, 2, 3]))
    assert addresses() == first


@torch.inference_mode()
def test_no_step_asks_for_a_value():
    """A tensor on the device "meta" has no values: a step that looked at one would fail here, as it would
    fail to be recorded."""
    with torch.device("meta"):
        model = static(LlamaForCausalLM(LlamaConfig(
            vocab_size=50, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=6, num_key_value_heads=2)))
    cache = KVCache(3, 40, "meta")
    for width in (1, 5):
        states = forward_hidden(model, torch.ones(3, width, dtype=torch.long, device="meta"), cache)
        assert states.shape == (3, width, 48)


@pytest.mark.parametrize("sampling", [Sampling(0), Sampling(1.0)])
def test_the_decoder_makes_the_same_rounds(sampling):
    """Same coins, same rounds, while rows end one after the other and the batch shrinks from 5 to 1."""
    target = llama()
    pair = tiny_pair(target, with_noise(target, 0.4), eos=(7, 11), context=128)
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8], [9], list(range(12, 40)), [3, 1]]

    def rounds():
        return decode(pair, prompts, 3, 24, sampling, generator=torch.Generator().manual_seed(1))

    plain = rounds()
    assert len({len(text) for text in plain.tokens}) > 2
    static(pair.target), static(pair.draft)
    for _ in range(2):  # the second time in buffers that are there
        found = rounds()
        assert found.tokens == plain.tokens and found.rounds.equals(plain.rounds)


@torch.inference_mode()
def test_a_full_cache_is_refused():
    model, cache = static(llama()), KVCache(2, 5)
    forward(model, torch.ones(2, 4, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="holds 5 positions and 6 are needed"):
        forward(model, torch.ones(2, 2, dtype=torch.long), cache)


@torch.inference_mode()
def test_in_16_bits_the_norms_are_those_of_transformers_to_the_bit():
    norm, x = LlamaRMSNorm(64, 1e-5), 3 * torch.randn(5, 3, 64)
    norm.weight.normal_()
    for dtype in (torch.bfloat16, torch.float16):
        norm.to(dtype)
        assert torch.equal(_norm(x.to(dtype), norm.weight, 1e-5), norm(x.to(dtype)))


@torch.inference_mode()
def test_in_16_bits_the_layers_are_as_near_to_the_truth_as_those_of_transformers():
    model, ids = llama(), torch.randint(0, 50, (2, 12))
    truth = model(ids).logits
    model.bfloat16()
    error = (model(ids).logits - truth).abs().max()
    got = forward(static(model), ids, KVCache(2, 20))
    assert 0 < (got - truth).abs().max() < 2 * error


def test_no_weight_is_kept_twice():
    model = llama()
    with torch.no_grad():
        want = model(torch.ones(1, 4, dtype=torch.long)).logits
    layer = static(model).model.layers[0]
    kept = model.lean.lean.layers[0]
    for linear, joined in ((layer.self_attn.k_proj, kept["qkv"]), (layer.mlp.up_proj, kept["gate_up"])):
        assert linear.weight.untyped_storage().data_ptr() == joined.weight.untyped_storage().data_ptr()
    with torch.no_grad():
        assert torch.equal(model(torch.ones(1, 4, dtype=torch.long)).logits, want)


def test_a_model_that_looks_at_positions_or_is_no_plain_llama_is_left_alone():
    model = llama()
    model.model.rotary_emb.rope_type = "dynamic"
    for each in (model, llama(attention_bias=True)):
        assert not make_graphs(each, capture=False)
        assert not isinstance(each.__dict__.get("lean"), graphs.StaticLayers)
