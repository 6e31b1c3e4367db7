"""Protects the laws that are sampled: warping, draws, and the identity that makes speculation exact."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare
from tiny import warped

from course_lib.sampling import GREEDY, Sampling, accept_chance, draw, flip, probabilities, residual

CASES = {case["id"]: case for case in
         json.loads((Path(__file__).parent / "acceptance_cases.json").read_text())["cases"]}


def random_logits(rows=40, vocabulary=50, seed=0, dtype=torch.float64):
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("top_k", [0, 1, 5, 50, 500])
@pytest.mark.parametrize("temperature", [1.0, 0.3, 2.5])
def test_the_law_is_that_of_transformers(temperature, top_k, top_p):
    # Random temperature, then top-k, then top-p: another order gives other laws, which this would show.
    sampling = Sampling(temperature, top_k, top_p)
    logits = random_logits()
    torch.testing.assert_close(probabilities(logits, sampling), warped(logits, sampling), rtol=0, atol=1e-14)
    single = logits.float()
    torch.testing.assert_close(probabilities(single, sampling), warped(single, sampling), rtol=0, atol=1e-6)


def test_top_p_is_taken_after_temperature_and_top_k():
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64))
    # top-k leaves 4/7 and 3/7, and 4/7 reaches .5; on the whole law .4 would not.
    assert probabilities(logits, Sampling(1.0, 2, 0.5)).tolist() == [1, 0, 0, 0]
    assert probabilities(logits, Sampling(1.0, 0, 0.5)).count_nonzero() == 2
    # Heated, the first token's share is .28; cold, .53.
    assert probabilities(logits, Sampling(10.0, 0, 0.5)).count_nonzero() == 2
    assert probabilities(logits, Sampling(0.5, 0, 0.5)).tolist() == [1, 0, 0, 0]


def test_equal_logits_at_the_edge_of_top_k_all_stay_as_in_transformers():
    logits = torch.tensor([[2.0, 1.0, 1.0, 0.0]])
    law = probabilities(logits, Sampling(1.0, 2))
    assert law[0, 1] == law[0, 2] > 0 == law[0, 3]
    torch.testing.assert_close(law, warped(logits, Sampling(1.0, 2)))


def test_temperature_zero_is_a_point_mass_on_the_first_best():
    law = probabilities(torch.tensor([[[0.0, 3.0, 3.0], [9.0, -1.0, 2.0]]]), GREEDY)
    assert law.tolist() == [[[0, 1, 0], [1, 0, 0]]]
    assert torch.equal(law, probabilities(torch.tensor([[[0.0, 3.0, 3.0], [9.0, -1.0, 2.0]]]),
                                          Sampling(0.0, 2, 0.4)))


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(0.7, 3, 0.8)])
def test_float64_is_kept_and_half_precision_is_not_trusted(sampling):
    for given_type, wanted in [(torch.float64, torch.float64), (torch.float32, torch.float32),
                               (torch.bfloat16, torch.float32), (torch.float16, torch.float32)]:
        assert probabilities(random_logits().to(given_type), sampling).dtype == wanted
    before = random_logits()
    probabilities(before, sampling)
    assert torch.equal(before, random_logits()), "the caller's logits were changed"


@pytest.mark.parametrize("arguments, words", [
    ({"temperature": -1.0}, "temperature"), ({"temperature": float("nan")}, "temperature"),
    ({"temperature": float("inf")}, "temperature"), ({"temperature": 1e-40}, "temperature"),
    ({"top_k": -1}, "top_k"), ({"top_k": 2.5}, "top_k"),
    ({"top_k": 2.0}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"top_p": 1.1}, "top_p"),
])
def test_impossible_settings_are_refused(arguments, words):
    with pytest.raises(ValueError, match=f"{words} must"):
        Sampling(**arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_follow_the_law_and_never_hit_chance_zero(dtype):
    law = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.25, 0.05, 0.0], dtype=dtype)
    tokens = draw(law.expand(40_000, -1), torch.Generator().manual_seed(1)).numpy()
    counts = np.bincount(tokens, minlength=7)
    assert counts[[0, 2, 6]].tolist() == [0, 0, 0]
    seen = law.numpy() > 0
    wanted = 40_000 * (law.double() / law.double().sum()).numpy()
    assert chisquare(counts[seen], wanted[seen]).pvalue > 0.001


class FixedPoint:
    """In place of torch.rand: the smallest or the largest number it can return."""

    def __init__(self, value):
        self.value = value

    def __call__(self, shape, generator=None, device=None, dtype=None):
        return torch.full(shape, self.value, dtype=dtype)


@pytest.mark.parametrize("point, token", [(0.0, 1), (1 - 2.0**-53, 3)])
def test_the_ends_of_the_unit_interval_draw_possible_tokens(monkeypatch, point, token):
    monkeypatch.setattr(torch, "rand", FixedPoint(point))
    assert draw(torch.tensor([[0.0, 0.5, 0.0, 0.499999, 0.0]])).tolist() == [token]
    coins = flip(torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert coins.tolist() == [False, True], "certain coins must not depend on chance"


def test_draws_are_rows_of_any_shape_and_repeat_with_the_generator():
    law = probabilities(random_logits(6, 9), Sampling()).reshape(2, 3, 9)
    first, again = (draw(law, torch.Generator().manual_seed(5)) for _ in range(2))
    assert first.shape == (2, 3) and torch.equal(first, again)
    coins = flip(torch.full((4000,), 0.3), torch.Generator().manual_seed(5))
    assert 0.27 < coins.float().mean() < 0.33


weights = arrays(np.float64, 5, elements=st.one_of(st.just(0.0), st.floats(1e-3, 1)))
laws = weights.filter(lambda row: row.sum() > 0).map(lambda row: torch.tensor(row / row.sum()))


def emitted(p, q):
    """The law of one token: drafted from q and accepted, or else drawn from the residual."""
    law, rejected = torch.zeros_like(p), 0.0
    for token in q.nonzero()[:, 0]:
        chance = float(accept_chance(p, q, token))
        law[token] += q[token] * chance
        rejected += float(q[token]) * (1 - chance)
    return law + rejected * residual(p, q)


@given(laws, laws)
def test_accept_or_residual_gives_back_p(p, q):
    assert float((emitted(p, q) - p).abs().max()) < 1e-12
    overlap = sum(float(q[x] * accept_chance(p, q, x)) for x in q.nonzero()[:, 0])
    assert overlap == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-12)


@given(laws, st.integers(0, 4))
def test_accept_or_residual_gives_back_p_for_a_greedy_draft(p, best):
    q = torch.nn.functional.one_hot(torch.tensor(best), 5).double()
    assert float(accept_chance(p, q, torch.tensor(best))) == float(p[best])
    assert float((emitted(p, q) - p).abs().max()) < 1e-12


def test_residual_is_a_law_even_where_nothing_is_left():
    p = torch.tensor([[0.2, 0.8], [0.6, 0.4]], dtype=torch.float64)
    assert torch.equal(residual(p, p), p)
    assert torch.equal(residual(p, torch.zeros_like(p)), p)  # nothing drafted: p itself
    assert residual(p, p.flip(-1)).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("greedy", [False, True])
def test_one_round_keeps_the_law_of_its_whole_text(k, greedy):
    """Every draft, every coin, every extra token of a round on random laws, where p and q depend on all
    that came before; what the target would write after a short round is filled in from p."""
    vocabulary = 3
    random = torch.Generator().manual_seed(10 * k + greedy)

    def table():
        return {text: (2 * torch.randn(vocabulary, generator=random, dtype=torch.float64)).softmax(-1)
                for n in range(k + 1) for text in itertools.product(range(vocabulary), repeat=n)}

    p, q = table(), table()
    if greedy:
        q = {text: torch.nn.functional.one_hot(law.argmax(), vocabulary).double() for text, law in q.items()}
    law = dict.fromkeys(itertools.product(range(vocabulary), repeat=k + 1), 0.0)

    def add(text, chance):
        if len(text) == k + 1:
            law[text] += chance
            return
        for token in range(vocabulary):
            add((*text, token), chance * float(p[text][token]))

    for drafts in itertools.product(range(vocabulary), repeat=k):
        chance = 1.0
        for j, token in enumerate(drafts):
            chance *= float(q[drafts[:j]][token])
        for j, token in enumerate(drafts):
            if not chance:
                break
            before = drafts[:j]
            accept = float(accept_chance(p[before], q[before], torch.tensor(token)))
            for extra, share in enumerate(residual(p[before], q[before]).tolist()):
                add((*before, extra), chance * (1 - accept) * share)
            chance *= accept
        add(drafts, chance)  # all kept: the bonus comes from p
    for text, chance in law.items():
        wanted = np.prod([float(p[text[:j]][token]) for j, token in enumerate(text)])
        assert chance == pytest.approx(wanted, abs=1e-12)


def test_greedy_draft_softmax_q():
    """Case greedy-draft-softmax-q: a draft taken as an argmax but judged by the softmax behind it."""
    case = CASES["greedy-draft-softmax-q"]
    p, softmax_q = (torch.tensor(case["input"][name], dtype=torch.float64) for name in "pq")
    drafted = softmax_q.argmax()
    chance = float(accept_chance(p, softmax_q, drafted))
    wrong = (1 - chance) * residual(p, softmax_q)
    wrong[drafted] += chance
    assert wrong.tolist() == pytest.approx(case["expect"]["wrong_emitted"])
    one_hot = probabilities(softmax_q.log(), GREEDY)
    assert emitted(p, one_hot).tolist() == pytest.approx(p.tolist(), abs=1e-15)
