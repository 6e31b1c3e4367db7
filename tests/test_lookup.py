"""Protects drafts from the text itself: what is guessed, the law of the text, and the caches behind it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import (
    Branches,
    distance,
    greedy_text,
    next_logits,
    target_law,
    tiny_llama,
    tiny_pair,
    with_lookup,
    with_noise,
)

import course_lib.speculate as room
from course_lib.lookup import NONE, Lookup, Memory, guesses
from course_lib.sampling import GREEDY, Sampling
from course_lib.speculate import decode

RAGGED = [[5, 3, 7, 7, 2, 5, 3], [4], [1, 2, 3, 1, 2, 3, 1, 2, 3], [9, 8], [22] * 5, [6, 1, 6]]
TOKENS = st.lists(st.integers(0, 3), max_size=40)


def looked_up(lookup, text):
    """By the definition: the longest run that stood before, where it stood last, and what came then."""
    for size in range(lookup.longest, lookup.shortest - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if size <= len(text) and text[end - size:end] == text[len(text) - size:]:
                return text[end]
    return NONE


@given(text=TOKENS, drafts=TOKENS, shortest=st.integers(0, 3), more=st.integers(0, 3))
def test_a_guess_is_what_followed_the_longest_run_the_last_time(text, drafts, shortest, more):
    lookup = Lookup(shortest, shortest + more)
    memory = Memory(lookup, text)
    for end in range(len(drafts) + 1):  # what is drafted counts as text while the round lasts
        assert memory.guess() == looked_up(lookup, text + drafts[:end])
        if end < len(drafts):
            memory.push(drafts[end])
    for _ in drafts:
        memory.pop()
    fresh = Memory(lookup, text)
    assert memory.followed == fresh.followed and memory.tokens == fresh.tokens
    assert guesses(lookup, text, drafts).tolist() == [looked_up(lookup, text + drafts[:t])
                                                      for t in range(len(drafts))]


def test_lengths_that_cannot_be_are_refused():
    for wrong in ((3, 2), (-1, 2), (1, 2.5)):
        with pytest.raises(ValueError, match="match|must be"):
            Lookup(*wrong)


@pytest.mark.parametrize("lookup", ["first", "only"])
@pytest.mark.parametrize("draft_mode, sampling", [("sample", Sampling(1.0)), ("greedy", Sampling(0.7)),
                                                  ("sample", Sampling(1.3, top_k=3, top_p=0.9))])
@pytest.mark.parametrize("k, prompt, beside", [(1, [0, 2, 0], None), (2, [0, 2, 1, 0, 2], None),
                                               (2, [2], [1, 0, 0, 1, 0]), (3, [1, 0, 0, 1, 0], [2])])
def test_the_text_follows_the_target_law(monkeypatch, k, prompt, beside, draft_mode, sampling, lookup):
    shape = {"hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.3}
    pair = with_lookup(tiny_pair(tiny_llama(4, seed=4, **shape), tiny_llama(4, seed=2, **shape), eos=[3]),
                       lookup)
    law = Branches(monkeypatch).law(pair, prompt, k, 3, sampling, draft_mode, rows=1000, beside=beside)
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    assert distance(law, target_law(pair.target, prompt, 3, sampling, pair.eos)) < 1e-9


@pytest.mark.parametrize("lookup", ["first", "only"])
def test_greedy_text_is_that_of_generate(lookup):
    target = tiny_llama(24, seed=3)
    pair = with_lookup(tiny_pair(target, with_noise(target, 0.1), eos=[20, 17]), lookup)
    wanted = [greedy_text(target, prompt, 20, pair.eos) for prompt in RAGGED]
    kept = set()
    for k in (1, 3, 8, 30):
        done = decode(pair, RAGGED, k, 20, GREEDY)
        assert done.tokens == wanted, k
        kept |= set(zip(done.rounds.drafted, done.rounds.accepted, strict=True))
    assert decode(pair, RAGGED[:1], 4, 20).tokens == wanted[:1]
    if lookup == "only":
        assert (0, 0) in kept and (1, 1) in kept  # silent, and at its last guess
    assert any(0 < accepted < drafted for drafted, accepted in kept)


@pytest.mark.parametrize("rows", [1, 6])
def test_a_draft_that_was_not_asked_for_a_while_catches_up(monkeypatch, rows):
    target = tiny_llama(24, seed=3)
    pair = with_lookup(tiny_pair(target, with_noise(target, 0.1)), "first")
    original, missed = room._round, []

    def checked(pair, state, *rest):
        result = original(pair, state, *rest)
        before = state.draft_cache.lengths.clone()
        missed.extend((state.length - before).tolist())
        logits = pair.draft.lm_head(state.catch_up())
        state.draft_cache.lengths = before
        for row, length in enumerate(state.length.tolist()):
            text = state.sequence[row, :length].tolist()
            torch.testing.assert_close(logits[row], next_logits(pair.draft, text), rtol=0, atol=1e-9)
        return result

    monkeypatch.setattr(room, "_round", checked)
    decode(pair, RAGGED[:rows], 3, 30, Sampling(0.5), "sample", torch.Generator().manual_seed(0))
    assert max(missed) > 2


def test_the_clock_knows_how_many_were_really_drafted():
    pair = with_lookup(tiny_pair(tiny_llama(24, seed=3), None), "only")
    done = decode(pair, [[1, 2, 3]], 4, 12)
    assert done.times.k.tolist() == done.rounds.drafted.tolist()
    assert 0 in done.times.k.tolist()
