"""The lean layers and the reduced head: the numbers of transformers' own forward, and the target's law."""

import pytest
import torch
from test_distill import tiny
from tiny import tiny_pair, with_noise
from transformers import LlamaConfig, LlamaForCausalLM

from course_lib.cache import KVCache, forward
from course_lib.lean import WIDEST, make_lean
from course_lib.packed import PackedLinear
from course_lib.reduced import ReducedHead, reduce_head
from course_lib.sampling import Sampling
from course_lib.speculate import decode

# transformers normalises in float32 whatever the model's type, so that float64 agrees to 1e-7 and no further.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def llama(**changes):
    """A float64 Llama with grouped queries and Llama-3's scaled rotation."""
    torch.manual_seed(0)
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16, "rope_theta": 100.0}
    config = LlamaConfig(vocab_size=50, hidden_size=48, intermediate_size=64, num_hidden_layers=3,
                         num_attention_heads=6, max_position_embeddings=128, rope_parameters=rope,
                         **{"num_key_value_heads": 2} | changes)
    return LlamaForCausalLM(config).double().eval()


@pytest.mark.parametrize(
    "changes", [{}, {"head_dim": 12}, {"num_key_value_heads": 6}, {"num_key_value_heads": 1}])
@torch.inference_mode()
def test_steps_of_any_width_and_rows_of_any_length_are_those_of_transformers(changes):
    model = llama(**changes)
    for rows in (1, 3):
        caches = [KVCache(rows, 60), KVCache(rows, 60)]
        tokens = [torch.randint(0, 50, (rows, width)) for width in (9, 1, 4, 1, 2, 5)]
        model.__dict__.pop("lean", None)
        plain = run(model, caches[0], tokens)
        assert make_lean(model, packed=False)
        lean = run(model, caches[1], tokens)
        for one, other in zip(plain, lean, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


def run(model, cache, tokens):
    """Logits of each step; after each, every row takes a different number of tokens back."""
    logits = []
    for step, ids in enumerate(tokens):
        logits.append(forward(model, ids, cache))
        cache.lengths = cache.lengths - (torch.arange(len(ids)) + step) % ids.shape[1]
    return logits


@torch.inference_mode()
def test_scaled_rotation_and_a_prompt_that_transformers_reads_share_one_cache():
    model, ids = llama(), torch.randint(0, 50, (2, WIDEST + 20))
    want = model(ids).logits
    assert make_lean(model, packed=False)
    used = []
    model.__dict__["lean"].register_forward_hook(lambda *_: used.append(1))
    cache = KVCache(2, 80)
    got = [forward(model, ids[:, :WIDEST + 5], cache), forward(model, ids[:, WIDEST + 5:], cache)]
    assert len(used) == 1  # the prompt went through transformers' own layers
    torch.testing.assert_close(torch.cat(got, 1), want, **CLOSE)


def test_a_model_with_biases_or_in_other_types_keeps_its_own_forward():
    assert not make_lean(llama(attention_bias=True), packed=False)
    assert not make_lean(llama())  # float64 cannot be packed
    model = llama().float()  # random numbers of 24 bits
    assert not make_lean(model) and "lean" not in model.__dict__


@torch.inference_mode()
def test_a_checkpoint_of_16_bits_is_packed_and_lean_at_once():
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this build of PyTorch has no packed product")
    model = tiny()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    ids = torch.randint(0, 40, (2, 5))
    want = model(ids).logits
    names = set(model.state_dict())
    assert make_lean(model) and isinstance(model.lm_head, PackedLinear)
    assert set(model.state_dict()) <= names  # the lean layers are no weights of the model
    torch.testing.assert_close(forward(model, ids, KVCache(2, 9)), want, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_reduced_head_says_what_the_whole_says_of_its_tokens_and_never_the_others():
    model = llama()
    ids, tokens = torch.randint(0, 50, (2, 5)), torch.tensor([3, 4, 17, 49])
    whole = model(ids).logits
    model.lm_head = ReducedHead(model.lm_head, tokens)
    few = model(ids).logits
    torch.testing.assert_close(few[..., tokens], whole[..., tokens], rtol=1e-12, atol=1e-12)
    assert few.shape == whole.shape and torch.isneginf(few).sum() == 2 * 5 * 46


@pytest.mark.parametrize("sampling", [Sampling(0), Sampling(1.0)])
def test_the_decoder_makes_the_same_rounds_with_them(sampling):
    """Same coins, same rounds: lean layers change nothing; a reduced head only what is proposed."""
    target = llama()
    pair = tiny_pair(target, with_noise(target, 0.4), context=128)
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]

    def rounds():
        return decode(pair, prompts, 3, 20, sampling, generator=torch.Generator().manual_seed(1))

    plain = rounds()
    assert make_lean(pair.target, packed=False) and make_lean(pair.draft, packed=False)
    lean = rounds()
    assert lean.tokens == plain.tokens and lean.rounds.equals(plain.rounds)
    pair.draft.lm_head = ReducedHead(pair.draft.lm_head, torch.arange(0, 50, 2))
    reduced = rounds()
    assert all(token % 2 == 0 for proposed in reduced.rounds.proposed for token in proposed)
    assert any(token % 2 for text in reduced.tokens for token in text)  # the target still says them
    if sampling.temperature == 0:
        assert reduced.tokens == plain.tokens


def test_tokens_outside_the_vocabulary_are_refused(tmp_path):
    for tokens in ([], [-1, 3], [3, 50]):
        with pytest.raises(ValueError, match=r"must lie in 0 \.\.\. 49"):
            ReducedHead(torch.nn.Linear(4, 50, bias=False), torch.tensor(tokens))
    assert not reduce_head(llama(), tmp_path)  # a folder that asks for nothing
