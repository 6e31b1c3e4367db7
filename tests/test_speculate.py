"""Protects the decoder: the text follows the target's law exactly, caches are right, rounds add up."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from tiny import Branches, distance, greedy_text, next_logits, target_law, tiny_llama, tiny_pair, with_noise

import course_lib.speculate as room
from course_lib.cache import KVCache, forward
from course_lib.sampling import GREEDY, Sampling
from course_lib.speculate import ROUND_COLUMNS, decode, decode_plain

CASES = {case["id"]: case for case in
         json.loads((Path(__file__).parent / "acceptance_cases.json").read_text())["cases"]}
RAGGED = [[5, 3, 7, 7, 2, 19], [4], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [9, 8], [22] * 5, [6, 1, 6],
          [13, 12, 11, 10], [3, 14, 15, 9, 2, 6, 5, 3, 5]]
ENDS = [31, 63]  # tokens that the tiny target writes now and then


@pytest.fixture(scope="module")
def target():
    return tiny_llama(64, seed=7, initializer_range=0.25)


@pytest.fixture(scope="module")
def drafts(target):
    """From always right to hardly ever."""
    return {"itself": target, "near": with_noise(target, 0.04), "far": with_noise(target, 0.1),
            "random": tiny_llama(64, seed=8, hidden_size=16, num_hidden_layers=1)}


# The law of the text, by walking every branch of chance


def small_pair(vocabulary, draft_vocabulary=None):
    shape = {"hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.3}
    target = tiny_llama(vocabulary, seed={3: 5, 4: 4}[vocabulary], **shape)  # not flat
    draft = tiny_llama(draft_vocabulary or vocabulary, seed=2, num_hidden_layers=1, **shape)
    return tiny_pair(target, draft, eos=[vocabulary - 1])


WARPS = {"plain": Sampling(1.0), "cold": Sampling(0.7), "top-k": Sampling(1.0, top_k=2),
         "top-p": Sampling(1.0, top_p=0.8), "all": Sampling(1.3, top_k=3, top_p=0.9)}


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
@pytest.mark.parametrize("k, new_tokens, vocabulary", [(1, 3, 4), (2, 3, 4), (3, 4, 3)])
def test_the_text_follows_the_target_law(monkeypatch, k, new_tokens, vocabulary, draft_mode, warp):
    pair, prompt = small_pair(vocabulary), [0, 2, 1]
    law = Branches(monkeypatch).law(pair, prompt, k, new_tokens, WARPS[warp], draft_mode, rows=1000)
    wanted = target_law(pair.target, prompt, new_tokens, WARPS[warp], pair.eos)
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    assert distance(law, wanted) < 1e-9
    assert len(wanted) > 3, "too few texts to tell laws apart"


@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
def test_the_text_follows_the_target_law_one_row_at_a_time(monkeypatch, draft_mode):
    pair, prompt = small_pair(3), [0, 2, 1]
    law = Branches(monkeypatch).law(pair, prompt, 2, 3, WARPS["top-k"], draft_mode, rows=1)
    assert distance(law, target_law(pair.target, prompt, 3, WARPS["top-k"], pair.eos)) < 1e-9


@pytest.mark.parametrize("prompt, beside", [([2], [1, 0, 0, 1, 3]), ([1, 0, 0, 1, 3], [2])])
def test_the_law_of_a_row_does_not_depend_on_a_longer_or_shorter_one_beside_it(monkeypatch, prompt, beside):
    pair = small_pair(4)
    law = Branches(monkeypatch).law(pair, prompt, 2, 3, WARPS["cold"], "sample", rows=1000, beside=beside)
    assert distance(law, target_law(pair.target, prompt, 3, WARPS["cold"], pair.eos)) < 1e-9


@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
@pytest.mark.parametrize("draft_vocabulary", [3, 6])
def test_a_draft_with_another_padding_keeps_the_law(monkeypatch, draft_vocabulary, draft_mode):
    """A smaller draft meets tokens it has no embedding for; a larger one knows tokens that do not exist."""
    pair, prompt = small_pair(4, draft_vocabulary), [3, 0, 3, 1]
    law = Branches(monkeypatch).law(pair, prompt, 2, 3, WARPS["plain"], draft_mode, rows=1000)
    assert distance(law, target_law(pair.target, prompt, 3, WARPS["plain"], pair.eos)) < 1e-9


def test_the_walk_would_notice_a_wrong_law(monkeypatch):
    pair, prompt = small_pair(4), [0, 2, 1]
    monkeypatch.setattr(room, "residual", lambda p, q: p)
    law = Branches(monkeypatch).law(pair, prompt, 2, 3, WARPS["plain"], "sample", rows=1000)
    assert distance(law, target_law(pair.target, prompt, 3, WARPS["plain"], pair.eos)) > 1e-3


def test_plain_decoding_follows_the_target_law(monkeypatch):
    pair, prompt = small_pair(4), [0, 2, 1]
    law = Branches(monkeypatch).law(pair, prompt, 0, 3, WARPS["all"], "sample", rows=1000)
    assert distance(law, target_law(pair.target, prompt, 3, WARPS["all"], pair.eos)) < 1e-9


# Greedy


@pytest.mark.parametrize("name", ["itself", "near", "far", "random"])
def test_greedy_text_is_that_of_generate(target, drafts, name):
    pair = tiny_pair(target, drafts[name], eos=ENDS)
    wanted = [greedy_text(target, prompt, 14, pair.eos) for prompt in RAGGED]
    assert {len(text) for text in wanted} >= {14} and min(map(len, wanted)) < 14, "some end, some do not"
    for k in (0, 1, 2, 4, 8, 30):
        for draft_mode in ("sample", "greedy"):
            assert decode(pair, RAGGED, k, 14, GREEDY, draft_mode).tokens == wanted, (k, draft_mode)
        assert decode(pair, RAGGED[:3], k, 14).tokens == wanted[:3], k
    for prompt, text in zip(RAGGED, wanted, strict=True):
        assert decode(pair, [prompt], 4, 14).tokens == [text]
    assert decode_plain(pair, RAGGED, 14).tokens == wanted


def test_the_drafts_differ_in_what_is_accepted(target, drafts):
    """The tests above mean something only if some rounds keep all, some a part and some nothing."""
    share, kept = {}, {}
    for name, draft in drafts.items():
        rounds = decode(tiny_pair(target, draft), RAGGED, 4, 24).rounds
        share[name] = rounds.accepted.sum() / rounds.drafted.sum()
        kept[name] = set(rounds.accepted[rounds.drafted == 4])
    assert share["itself"] == 1
    assert 1 > share["near"] > share["far"] > share["random"]
    assert kept["far"] == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("rows", [1, 8])
def test_a_draft_that_is_the_target_saves_all_the_rounds_it_can(target, rows):
    done = decode(tiny_pair(target, target), RAGGED[:rows], 4, 12)
    assert done.rounds.groupby("row").emitted.apply(list).tolist() == [[5, 5, 2]] * rows
    assert done.tokens_per_round() == 4
    assert decode_plain(tiny_pair(target, target), RAGGED[:rows], 12).tokens_per_round() == 1


@torch.inference_mode()
def test_the_states_that_are_kept_predict_each_token(target, drafts):
    pair = tiny_pair(target, drafts["far"], eos=ENDS)
    assert decode(pair, RAGGED, 3, 14).states is None
    for done in (decode_plain(pair, RAGGED, 14, keep_states=True),
                 decode(pair, RAGGED, 3, 14, Sampling(1.0), generator=torch.Generator().manual_seed(1),
                        keep_states=True)):
        for prompt, text, states in zip(RAGGED, done.tokens, done.states, strict=True):
            wanted = torch.stack([next_logits(target, [*prompt, *text[:t]]) for t in range(len(text))])
            assert torch.allclose(target.lm_head(states), wanted, atol=1e-5)


# The end of a text


def test_eos_inside_draft(target):
    """Case eos-inside-draft: five drafts match and the third ends the text, so three tokens are emitted."""
    case = CASES["eos-inside-draft"]
    text = greedy_text(target, RAGGED[0], 6, [])
    place = case["input"]["drafted"].index("EOS")
    assert text.index(text[place]) == place
    done = decode(tiny_pair(target, target, eos=[text[place]]), [RAGGED[0]], 5, 20)
    assert done.tokens == [text[:place + 1]]
    (line,) = done.rounds.itertuples()
    assert (line.drafted, line.accepted, line.emitted) == (5, place + 1, case["expect"]["emitted"])
    assert list(line.proposed) == text[:5]


@pytest.mark.parametrize("place", range(7))
def test_an_end_of_text_anywhere_in_a_round(target, place):
    """As a draft (places 0 to 3, 5, 6) or as the bonus token (4), alone and beside a row that goes on."""
    prompt, *others = RAGGED[3], RAGGED[0], RAGGED[1], RAGGED[2]
    text = greedy_text(target, prompt, 7, [])
    assert len(set(text)) == 7, "each place must be the first with its token"
    pair = tiny_pair(target, target, eos=[text[place], 0])
    for prompts in ([prompt], [prompt, *others]):
        done = decode(pair, prompts, 4, 12)
        assert done.tokens == [greedy_text(target, prompt, 12, pair.eos) for prompt in prompts]
        rounds = done.rounds[done.rounds.row == 0]
        assert done.tokens[0] == text[:place + 1]
        assert rounds.emitted.tolist() == ([place + 1] if place < 5 else [5, place - 4])
        # The bonus token is not an accepted draft; an end of text among the drafts is.
        assert rounds.accepted.tolist() == ([min(place + 1, 4)] if place < 5 else [4, place - 4])


@pytest.mark.parametrize("new_tokens", [1, 2, 5, 6])
def test_new_tokens_are_never_overshot(target, drafts, new_tokens):
    for name in drafts:
        for k in (0, 1, 4, 5, 9):
            done = decode(tiny_pair(target, drafts[name]), RAGGED, k, new_tokens)
            assert [len(text) for text in done.tokens] == [new_tokens] * len(RAGGED)


# The caches


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("k", [1, 3, 4])
@pytest.mark.parametrize("name", ["itself", "near", "far", "random"])
def test_both_caches_say_what_a_fresh_forward_says(monkeypatch, target, drafts, name, k, rows):
    """After every round, whatever it kept, in rows of different lengths."""
    pair, original, seen = tiny_pair(target, drafts[name]), room._round, []

    def checked(pair, state, limit, *rest):
        result = original(pair, state, limit, *rest)
        assert torch.equal(state.target_cache.lengths, state.length - 1)
        before = state.draft_cache.lengths.clone()
        if limit.any():  # one token was never read, two if the last draft was kept
            assert set((state.length - before).tolist()) <= {1, 2}
        of_draft = pair.draft.lm_head(state.catch_up())
        state.draft_cache.lengths = before
        of_target = forward(pair.target, state.last(), state.target_cache)[:, -1]
        state.target_cache.lengths = state.length - 1
        for row, length in enumerate(state.length.tolist()):
            text = state.sequence[row, :length].tolist()
            for logits, model in ((of_target, pair.target), (of_draft, pair.draft)):
                torch.testing.assert_close(logits[row], next_logits(model, text), rtol=0, atol=1e-9)
        seen.extend(result[2])
        return result

    monkeypatch.setattr(room, "_round", checked)
    generator = torch.Generator().manual_seed(0)
    decode(pair, RAGGED[:rows], k, 12, Sampling(0.8), "sample", generator)
    assert len(seen) >= 3


def test_the_cache_refuses_what_it_cannot_hold():
    model = tiny_llama(8)
    cache = KVCache(1, 3)
    forward(model, torch.tensor([[1, 2]]), cache)
    with pytest.raises(ValueError, match="holds 3 positions and 4 are needed"):
        forward(model, torch.tensor([[1, 2]]), cache)


def test_taking_back_and_forgetting_rows_leaves_the_others_as_they_were():
    model, cache = tiny_llama(8), KVCache(3, 9)
    forward(model, torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]]), cache)
    cache.lengths = torch.tensor([3, 2, 1])
    cache.keep_rows(torch.tensor([2, 0]))
    logits = forward(model, torch.tensor([[7, 1], [2, 2]]), cache)
    assert cache.lengths.tolist() == [3, 5]
    for row, text in enumerate([[6, 7, 1], [1, 2, 3, 2, 2]]):
        torch.testing.assert_close(logits[row, -1], next_logits(model, text), rtol=0, atol=1e-9)
        torch.testing.assert_close(logits[row, 0], next_logits(model, text[:-1]), rtol=0, atol=1e-9)


# The table of rounds


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.9, top_p=0.95)])
@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
def test_the_rounds_add_up(target, drafts, k, sampling, draft_mode):
    new_tokens = 15
    pair = tiny_pair(target, drafts["near"], eos=ENDS)
    done = decode(pair, RAGGED, k, new_tokens, sampling, draft_mode, torch.Generator().manual_seed(4))
    assert list(done.rounds.columns) == list(ROUND_COLUMNS)
    for row, text in enumerate(done.tokens):
        rounds = done.rounds[done.rounds.row == row]
        assert rounds["round"].tolist() == list(range(len(rounds)))
        assert rounds.emitted.sum() == len(text)
        assert rounds.start.tolist() == [0, *rounds.emitted.cumsum()[:-1]]
        assert rounds.drafted.tolist() == [min(k, new_tokens - start - 1) for start in rounds.start]
        assert (rounds.accepted <= rounds.drafted).all()
        for line in rounds.itertuples():
            assert len(line.proposed) == line.drafted
            assert list(line.proposed[:line.accepted]) == text[line.start:line.start + line.accepted]
            ended = text[line.start + line.emitted - 1] in ENDS
            assert line.emitted == line.accepted + 1 or (ended and line.emitted == line.accepted)
        assert text[-1] in ENDS or len(text) == new_tokens
        assert not set(ENDS) & set(text[:-1])
    assert done.tokens_per_round() == sum(map(len, done.tokens)) / len(done.rounds)
    assert 0 < done.prefill_seconds < done.seconds


def test_rejected_drafts_are_told_too(target, drafts):
    """`proposed` is what the draft really said: its own greedy text after what stood there."""
    done = decode(tiny_pair(target, drafts["far"]), RAGGED[:3], 3, 12)
    for line in done.rounds.itertuples():
        before = RAGGED[line.row] + done.tokens[line.row][:line.start]
        assert list(line.proposed) == greedy_text(drafts["far"], before, 3, [])[:line.drafted]
    assert (done.rounds.accepted < done.rounds.drafted).any()


@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_batch_is_its_rows_alone(target, drafts, k):
    pair = tiny_pair(target, drafts["far"], eos=ENDS)
    together = decode(pair, RAGGED, k, 12)
    for row, prompt in enumerate(RAGGED):
        alone = decode(pair, [prompt], k, 12)
        mine = together.rounds[together.rounds.row == row].reset_index(drop=True)
        assert alone.tokens == [together.tokens[row]]
        pd.testing.assert_frame_equal(alone.rounds.assign(row=row), mine)


# Chance, and what is refused


@pytest.mark.parametrize("k", [0, 3])
def test_the_generator_decides_the_text(target, drafts, k):
    pair = tiny_pair(target, drafts["near"])

    def text(seed):
        generator = torch.Generator().manual_seed(seed)
        return decode(pair, RAGGED, k, 10, Sampling(1.0), "sample", generator).tokens

    torch.manual_seed(1)
    first = text(7)
    torch.manual_seed(2)
    assert text(7) == first != text(8)
    state = torch.get_rng_state()
    text(7)
    assert torch.equal(state, torch.get_rng_state()), "chance must come from the generator alone"


def test_sampled_acceptance_is_between_the_greedy_extremes(target, drafts):
    """A draft that is the target itself is never rejected, at any temperature and under any warp."""
    for sampling in (Sampling(1.0), Sampling(1.4, top_p=0.7), Sampling(0.8, top_k=3)):
        generator = torch.Generator().manual_seed(0)
        rounds = decode(tiny_pair(target, target), RAGGED, 4, 20, sampling, "sample", generator).rounds
        assert (rounds.accepted == rounds.drafted).mean() > 0.99


@pytest.mark.parametrize("change, words", [
    ({"k": -1}, "k must be a whole number, 0 or more, not -1"),
    ({"k": 2.0}, "k must be a whole number"),
    ({"max_new_tokens": 0}, "max_new_tokens must be a whole number, 1 or more, not 0"),
    ({"max_new_tokens": 3.5}, "max_new_tokens must be"),
    ({"draft_mode": "argmax"}, 'draft_mode is "sample" or "greedy", not \'argmax\''),
    ({"prompts": []}, "every prompt needs at least one token"),
    ({"prompts": [[1], []]}, "every prompt needs at least one token"),
    ({"prompts": ["hello"]}, "lists of token ids"), ({"prompts": [1, 2]}, "lists of token ids"),
    ({"prompts": [[1.5, 2.0]]}, "lists of token ids"),
    ({"prompts": [[1, 64]]}, "token ids that are not in 0 ... 63"),
    ({"prompts": [[-1]]}, "token ids that are not in 0 ... 63"),
    ({"prompts": [[1] * 30]}, "make 34, and the models' context is 33: shorten the prompt"),
])
def test_what_cannot_be_decoded_is_refused(target, change, words):
    arguments = {"prompts": [[1, 2]], "k": 2, "max_new_tokens": 4, **change}
    with pytest.raises(ValueError) as refused:
        decode(tiny_pair(target, target, context=33), **arguments)
    assert words in str(refused.value)


def test_a_text_may_fill_the_context_to_the_last_token(target, drafts):
    for k in (0, 4):
        done = decode(tiny_pair(target, drafts["near"], context=20), [[1] * 12, [2] * 3], k, 8)
        assert [len(text) for text in done.tokens] == [8, 8]
