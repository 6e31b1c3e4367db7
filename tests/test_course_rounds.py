"""Protects what a reader sees of a round: every token's fate, in colour and without, and the counts."""

from types import SimpleNamespace

import pandas as pd
import pytest

from course_lib.course.rounds import MARKS, count_rounds, pieces, show_rounds, show_text
from course_lib.course.same_text import compare_texts, first_difference

WORDS = dict(enumerate(["the", " cat", " sat", " on", " a", " <mat>", "\n", "END"]))
TOKENIZER = SimpleNamespace(decode=lambda tokens: "".join(WORDS[token] for token in tokens))
COLUMNS = ("row", "round", "start", "drafted", "accepted", "emitted", "proposed")


def decoded(rounds, *tokens):
    return SimpleNamespace(tokens=list(tokens), rounds=pd.DataFrame(rounds, columns=COLUMNS))


PARTLY = decoded(  # partly kept; all kept; nothing drafted in the last round; a second row in between
    [
        (0, 0, 0, 3, 1, 2, (0, 2, 3)),
        (1, 0, 0, 3, 0, 1, (5, 5, 5)),
        (0, 1, 2, 2, 2, 3, (2, 3)),
        (0, 2, 5, 0, 0, 1, ()),
    ],
    [0, 1, 2, 3, 4, 5],
    [7],
)
ENDED = decoded([(0, 0, 0, 4, 2, 2, (0, 7, 3, 4))], [0, 7])  # the text ends inside the accepted drafts


def fates(found, row=0):
    return [[(piece.text, piece.fate) for piece in new] for new in pieces(TOKENIZER, found, row)]


def shown(capture, show, *arguments, **options):
    data = []
    capture.setattr("IPython.display.display", lambda output, raw: data.append(output))
    show(TOKENIZER, *arguments, **options)
    return data[0]


def test_every_token_has_its_fate():
    assert fates(PARTLY) == [
        [("the", "kept"), (" sat", "rejected"), (" on", "dropped"), (" cat", "own")],
        [(" sat", "kept"), (" on", "kept"), (" a", "bonus")],
        [(" <mat>", "own")],
    ]
    mat = " <mat>"
    assert fates(PARTLY, row=1) == [[(mat, "rejected"), (mat, "dropped"), (mat, "dropped"), ("END", "own")]]


def test_behind_the_end_of_a_text_nothing_is_rejected_and_nothing_added():
    assert fates(ENDED) == [[("the", "kept"), ("END", "kept"), (" on", "dropped"), (" a", "dropped")]]


def test_the_emitted_pieces_are_the_text():
    for found, row in ((PARTLY, 0), (PARTLY, 1), (ENDED, 0)):
        kept = [text for new in fates(found, row) for text, fate in new if fate in ("kept", "own", "bonus")]
        assert "".join(kept) == TOKENIZER.decode(found.tokens[row])


def test_colour_is_never_alone(monkeypatch):
    output = shown(monkeypatch, show_rounds, PARTLY)
    lines = output["text/plain"].splitlines()
    assert lines[1] == "round 1: kept 1 of 3  [✓the] [✗ sat] [– on] [＋ cat]"
    assert lines[2] == "round 2: kept 2 of 2  [✓ sat] [✓ on] [★ a]"
    assert all(mark in lines[0] and mark in output["text/html"] for mark in MARKS.values())
    assert "&lt;mat&gt;" in output["text/html"] and "<mat>" not in output["text/html"]
    assert 'title="thrown away"' in output["text/html"]


def test_a_limit_says_what_it_leaves_out(monkeypatch):
    output = shown(monkeypatch, show_rounds, PARTLY, limit=1)
    assert "round 1" in output["text/plain"] and "round 2" not in output["text/plain"]
    assert output["text/plain"].endswith("… and 2 more rounds") and "2 more rounds" in output["text/html"]


def test_the_text_as_it_reads(monkeypatch):
    output = shown(monkeypatch, show_text, PARTLY)
    assert output["text/plain"].splitlines()[1] == "the⟨ cat⟩| sat on⟨ a⟩|⟨ <mat>⟩"
    assert "sat" in output["text/html"] and "rejected" not in output["text/html"]


def test_counts_are_sums_over_rounds():
    table = count_rounds(PARTLY, ["chat", "code"])
    assert list(table.index) == ["chat", "code"]
    assert table.loc["chat", ["tokens", "rounds", "drafted", "kept"]].tolist() == [6, 3, 5, 3]
    assert table.loc["chat", "kept share"] == 0.6 and table.loc["chat", "tokens per round"] == 2.0
    assert table.loc["code", ["tokens", "rounds", "drafted", "kept"]].tolist() == [1, 1, 3, 0]


def test_an_unknown_row_is_refused():
    with pytest.raises(ValueError, match="there is no row 2: this batch has rows 0 to 1"):
        pieces(TOKENIZER, PARTLY, 2)


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [], None), ([2, 2], [1, 2], 0)],
)
def test_first_difference(first, second, at):
    assert first_difference(first, second) == at


class Target:
    """Logits that depend on nothing, and a record of what was read."""

    def __init__(self, logits):
        self.logits, self.read = logits, None

    def __call__(self, input_ids):
        import torch

        self.read = input_ids.tolist()
        return SimpleNamespace(logits=torch.tensor(self.logits).expand(1, input_ids.shape[1], -1))


def pair_with(logits, dtype="torch.float32"):
    return SimpleNamespace(target=Target(logits), tokenizer=TOKENIZER, device="cpu", dtype=dtype)


def test_the_same_text_needs_no_model():
    assert compare_texts(None, [1], [2, 3], [2, 3]) == "the same 2 tokens throughout"
    assert "A MISTAKE" in compare_texts(None, [1], [2, 3], [2])


def test_a_near_tie_is_told_from_a_mistake():
    pair = pair_with([0.0, 5.0, 5.0004])
    said = compare_texts(pair, [0, 1], [0, 1, 0], [0, 2, 1])
    assert said.startswith("the same up to token 1, then a near-tie: the logits of ' cat' and ' sat' lie")
    assert pair.target.read == [[0, 1, 0]]  # the prompt and the common text, no more
    assert "A MISTAKE at token 1" in compare_texts(pair_with([0.0, 5.0, 5.1]), [0], [0, 1], [0, 2])
    # Two tokens that tie with each other, both far below the best, are no near-tie either.
    assert "A MISTAKE" in compare_texts(pair_with([9.0, 5.0, 5.0]), [0], [0, 1], [0, 2])
    # bfloat16 rounds in coarser steps.
    assert "near-tie" in compare_texts(pair_with([0.0, 5.0, 5.1], "torch.bfloat16"), [0], [0, 1], [0, 2])
