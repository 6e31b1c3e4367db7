"""On CUDA: the texts of the processor, graphs equal to the eager layers, and steps that wait for nothing."""

import copy
from functools import partial

import pytest
import torch
from test_lean import llama
from tiny import save_tiny, tiny_llama, tiny_pair, with_noise

from course_lib.cache import KVCache, forward, forward_hidden
from course_lib.graphs import make_graphs
from course_lib.lean import make_lean
from course_lib.make_draft import make_draft
from course_lib.plans import Plan
from course_lib.prompts import Prompt
from course_lib.sampling import Sampling
from course_lib.speculate import decode

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA")]
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [9], list(range(10, 22)), [3, 1]]


@pytest.fixture(scope="module")
def pairs():
    """One pair in float32 three times: on the processor, on CUDA eagerly, on CUDA as graphs."""
    target = tiny_llama(seed=3, dtype=torch.float32)
    found = [tiny_pair(copy.deepcopy(target), with_noise(target, 0.3), eos=(20,)) for _ in range(3)]
    ways = partial(make_lean, packed=False), make_graphs
    for pair, make in zip(found[1:], ways, strict=True):
        pair.device = torch.device("cuda", torch.cuda.current_device())
        assert make(pair.target.to(pair.device)) and make(pair.draft.to(pair.device))
    return found


@pytest.mark.parametrize("k", [0, 1, 4, 7])
def test_the_texts_are_those_of_the_processor(pairs, k):
    want, *found = [decode(pair, PROMPTS, k, 40) for pair in pairs]
    for each in found:
        assert each.tokens == want.tokens and each.rounds.equals(want.rounds)


def test_sampled_rounds_are_the_same_as_graphs_and_eagerly(pairs):
    eager, static = (decode(pair, PROMPTS, 4, 40, Sampling(1.0),
                            generator=torch.Generator(pair.device).manual_seed(5)) for pair in pairs[1:])
    assert static.tokens == eager.tokens


@torch.inference_mode()
def test_graphs_give_the_numbers_of_the_eager_layers_through_rollback_and_rows_that_leave():
    model = llama().to("cuda")
    ids = torch.randint(0, 50, (5, 40), device="cuda")
    want = model(ids).logits
    assert make_graphs(model)
    for _ in range(2):  # the second time nothing is recorded
        cache = KVCache(5, 60, "cuda")
        forward(model, ids[:, :20], cache)
        torch.testing.assert_close(forward(model, ids[:, 20:25], cache), want[:, 20:25], rtol=1e-5, atol=1e-5)
        cache.lengths = torch.tensor([21, 25, 22, 23, 24], device="cuda")
        columns = cache.lengths[:, None] + torch.arange(2, device="cuda")
        got = forward(model, ids.gather(1, columns), cache)
        picked = want[torch.arange(5, device="cuda")[:, None], columns]
        torch.testing.assert_close(got, picked, rtol=1e-5, atol=1e-5)
        cache.keep_rows(torch.tensor([1, 4], device="cuda"))
        columns = cache.lengths[:, None] + torch.arange(1, device="cuda")
        got = forward(model, ids[[1, 4]].gather(1, columns), cache)
        picked = want[torch.tensor([1, 4], device="cuda")[:, None], columns]
        torch.testing.assert_close(got, picked, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_a_replayed_step_waits_for_nothing():
    model = llama().to("cuda")
    assert make_graphs(model)
    cache, tokens = KVCache(2, 60, "cuda"), torch.ones(2, 3, dtype=torch.long, device="cuda")
    for _ in range(2):
        forward_hidden(model, tokens, cache)
    torch.cuda.set_sync_debug_mode("error")
    try:
        forward_hidden(model, tokens, cache)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@torch.inference_mode()
def test_in_bfloat16_graphs_are_as_near_to_the_truth_as_transformers():
    model, ids = llama().to("cuda"), torch.randint(0, 50, (2, 12), device="cuda")
    truth = model(ids).logits
    model.bfloat16()
    error = (model(ids).logits - truth).abs().max()
    assert make_graphs(model)
    assert (forward(model, ids, KVCache(2, 20, "cuda")) - truth).abs().max() < 2 * error


def test_rounds_are_timed_by_events(pairs):
    times = decode(pairs[2], PROMPTS, 3, 30).times
    assert (times[["draft", "verify", "seconds"]] > 0).all(axis=None)


def test_a_draft_is_made_on_cuda(tmp_path):
    prompts = [Prompt(str(i), "a", "own", [{"role": "user", "content": f"say {i}"}]) for i in range(12)]
    plan = Plan(str(save_tiny(tmp_path / "target")), (0, 3), steps=40, new_tokens=16, rate=3e-3)
    found = make_draft(plan, tmp_path / "draft", prompts, device="cuda", say=lambda line: None)
    assert found["alpha"]["a"]["gain"]["mean"] > 0
