"""A draft without a model: the last few tokens stood in this text before, so guess what followed them then.

Costs next to nothing, and is best where a text copies: code that is edited, JSON with its keys, answers that
quote. The draft is a point mass, so it is accepted with chance p(guess). Source: prompt lookup decoding
(Saxena 2023); vLLM and SGLang call it n-gram. They copy a whole run behind one match; here every guess is
looked up anew, which makes it depend on the text before it alone, so that one pass replays every k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.whole import whole

NONE = -1  # no guess
NOTHING, MODEL, LOOKUP = range(3)  # what drafts at a position: the column `drafter` of a trace


@dataclass(frozen=True)
class Lookup:
    """How many tokens must have stood before: the longest match is tried first, down to the shortest."""

    shortest: int = 2
    longest: int = 4

    def __post_init__(self):
        if whole("shortest", self.shortest) > whole("longest", self.longest):
            raise ValueError(f"the shortest match, {self.shortest}, is longer than the longest, "
                             f"{self.longest}: swap them")


class Memory:
    """One text, and what followed every run of its tokens the last time."""

    def __init__(self, lookup: Lookup, tokens: Sequence[int]):
        self.sizes = range(lookup.longest, lookup.shortest - 1, -1)
        self.tokens: list[int] = []
        self.followed: dict[tuple[int, ...], int] = {}
        self.before: list[list] = []  # for each token, the entries it replaced
        for token in tokens:
            self.push(token)

    def guess(self) -> int:
        """The token that followed the last time, or NONE where nothing matches."""
        for size in self.sizes:
            if len(self.tokens) >= size:
                found = self.followed.get(tuple(self.tokens[len(self.tokens) - size:]))
                if found is not None:
                    return found
        return NONE

    def push(self, token: int) -> None:
        """The text goes on with `token`."""
        end, replaced = len(self.tokens), []
        for size in self.sizes:
            if end >= size:
                run = tuple(self.tokens[end - size:])
                replaced.append((run, self.followed.get(run)))
                self.followed[run] = token
        self.tokens.append(token)
        self.before.append(replaced)

    def pop(self) -> None:
        """Take the last token back, as if it had never been there: a draft is no part of the text yet."""
        self.tokens.pop()
        for run, token in self.before.pop():
            if token is None:
                del self.followed[run]
            else:
                self.followed[run] = token


def guesses(lookup: Lookup, prompt: Sequence[int], text: Sequence[int]) -> np.ndarray:
    """The guess at every position of a text behind its prompt [len(text)], NONE where there is none."""
    memory, found = Memory(lookup, prompt), np.empty(len(text), dtype=np.int64)
    for t, token in enumerate(text):
        found[t] = memory.guess()
        memory.push(token)
    return found
