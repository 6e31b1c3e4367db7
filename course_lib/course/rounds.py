"""A speculative answer made visible: which drafts the target kept, and what it wrote itself.

Every token carries a mark beside its colour, and every display has a plain-text form, so that it
reads the same in grey, in a terminal and in a screen reader:

    ✓ kept       a drafted token that is in the text
    ✗ rejected   the first draft the target did not want
    – dropped    drafted behind a rejection or behind the end of the text: thrown away
    ＋ own        the target's token in place of the rejected one
    ★ bonus      the target's token after a round that kept every draft

`decoded` is a `speculate.Decoded` everywhere; `row` is the index of a prompt in its batch.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import pandas as pd

MARKS = {"kept": "✓", "rejected": "✗", "dropped": "–", "own": "＋", "bonus": "★"}
_MEANING = {"kept": "kept", "rejected": "rejected", "dropped": "thrown away",
            "own": "the target's own", "bonus": "bonus token"}
# Light backgrounds of Okabe and Ito's colours under black text: they hold on a dark page too.
_STYLE = {"kept": "background:#cfeadd;text-decoration:underline",
          "rejected": "background:#f7d3bf;text-decoration:line-through",
          "dropped": "background:#e8e8e8;color:#555;text-decoration:line-through",
          "own": "background:#cde4f5;font-weight:bold",
          "bonus": "background:#fbe7a6;font-weight:bold"}


class Piece(NamedTuple):
    """One token of a round: its text, and its fate, a key of MARKS."""

    text: str
    fate: str


def pieces(tokenizer, decoded, row: int = 0) -> list[list[Piece]]:
    """The tokens of each round of one row, in the order drafts then the target's own.

    Raises ValueError when there is no such row.
    """
    rounds = decoded.rounds[decoded.rounds.row == row]
    if rounds.empty:
        raise ValueError(f"there is no row {row}: this batch has rows 0 to {len(decoded.tokens) - 1}.")
    found = []
    for line in rounds.itertuples():
        # A text that ends inside the accepted drafts has no token of the target's own, and what was
        # drafted behind its end was neither kept nor rejected.
        ended = line.emitted == line.accepted
        fates = ["kept"] * line.accepted + ["dropped"] * (line.drafted - line.accepted)
        if line.accepted < line.drafted and not ended:
            fates[line.accepted] = "rejected"
        new = [Piece(tokenizer.decode([token]), fate)
               for token, fate in zip(line.proposed, fates, strict=True)]
        if not ended:
            last = decoded.tokens[row][line.start + line.emitted - 1]
            bonus = 0 < line.drafted == line.accepted
            new.append(Piece(tokenizer.decode([last]), "bonus" if bonus else "own"))
        found.append(new)
    return found


def show_rounds(tokenizer, decoded, row: int = 0, limit: int | None = None) -> None:
    """Display one row, a line for each round, rejected drafts included; only the first `limit` rounds."""
    every = pieces(tokenizer, decoded, row)
    shown = every[:limit]
    more = f"… and {len(every) - len(shown)} more rounds" if len(shown) < len(every) else ""
    names = [f"round {n}: kept {_count(new, 'kept')} of {_drafted(new)}" for n, new in enumerate(shown, 1)]
    width = max(map(len, names))
    text = [f"{name:{width}}  " + " ".join(f"[{MARKS[p.fate]}{_line(p.text)}]" for p in new)
            for name, new in zip(names, shown, strict=True)]
    html = [f'<div style="white-space:pre-wrap">{name:{width}}  {" ".join(map(_span, new))}</div>'
            for name, new in zip(names, shown, strict=True)]
    _display(html + [f"<div>{more}</div>"] * bool(more), text + [more] * bool(more))


def show_text(tokenizer, decoded, row: int = 0) -> None:
    """Display the text of one row as it reads: drafted tokens underlined, a bar between rounds."""
    fates = ("kept", "own", "bonus")
    every = [[p for p in new if p.fate in fates] for new in pieces(tokenizer, decoded, row)]
    text = "|".join("".join(p.text if p.fate == "kept" else f"⟨{p.text}⟩" for p in new) for new in every)
    bar = '<span style="color:#888">|</span>'
    html = bar.join("".join(_span(p, mark=False) for p in new) for new in every)
    _display([f'<div style="white-space:pre-wrap">{html}</div>'], [text], fates,
             note="⟨…⟩ the target's own or bonus token   | a new round")


def count_rounds(decoded, labels: Sequence[str]) -> pd.DataFrame:
    """One line a row of the batch: tokens, rounds, drafted, kept, their share, and tokens per round.

    labels: a name for each row, in order; the index of the table.
    """
    sums = decoded.rounds.groupby("row")[["emitted", "drafted", "accepted"]].sum()
    rounds = decoded.rounds.groupby("row").size()
    return pd.DataFrame({"tokens": sums.emitted, "rounds": rounds, "drafted": sums.drafted,
                         "kept": sums.accepted, "kept share": (sums.accepted / sums.drafted).round(3),
                         "tokens per round": (sums.emitted / rounds).round(2)}).set_axis(list(labels))


def _count(new: list[Piece], fate: str) -> int:
    return sum(piece.fate == fate for piece in new)


def _drafted(new: list[Piece]) -> int:
    return sum(piece.fate in ("kept", "rejected", "dropped") for piece in new)


def _line(text: str) -> str:
    return text.replace("\n", "↵").replace("\t", "⇥")


def _span(piece: Piece, mark: bool = True) -> str:
    plain = "display:inline-block;text-decoration:none"  # the mark itself is never struck through
    sign = f'<span style="{plain}">{MARKS[piece.fate]}</span>' if mark else ""
    text = _line(piece.text) if mark else piece.text
    return (f'<span title="{_MEANING[piece.fate]}" style="color:#000;border-radius:3px;'
            f'{_STYLE[piece.fate]}">{sign}{escape(text)}</span>')


def _display(html: list[str], text: list[str], fates=tuple(MARKS), note: str = "") -> None:
    from IPython.display import display

    legend = " ".join(_span(Piece(f" {_MEANING[fate]}", fate)) for fate in fates)
    words = "   ".join(f"{MARKS[fate]} {_MEANING[fate]}" for fate in fates)
    page = f'<div style="font-family:monospace;line-height:1.8"><div>{legend}</div>{"".join(html)}</div>'
    display({"text/html": page, "text/plain": "\n".join([note or words, *text])}, raw=True)
