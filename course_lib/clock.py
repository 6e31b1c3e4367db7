"""Where a round's time goes: a mark at its start, after its drafts and after the verify, always on.

On a CPU a mark is one look at the clock, under a microsecond. A GPU still works when a call returns, so
there a mark is an event in its own stream, read when all is over: nothing waits for it.
"""

from __future__ import annotations

import time

import pandas as pd
import torch

TIMES_COLUMNS = ("round", "rows", "k", "draft", "verify", "other", "seconds")


class Clock:
    """Marks of one decoding. device: where the models compute (the first device, if there are several)."""

    def __init__(self, device: torch.device):
        self._events = device.type == "cuda"
        self._device = device
        self._rows: list[int] = []
        self._ks: list[int] = []
        self._marks: list = []

    def start(self, rows: int) -> None:
        """A round begins, for so many rows; the one before it ends."""
        self._rows.append(rows)
        self.mark()

    def drafted(self, k: int) -> None:
        """The drafts are done, at most k of a row."""
        self._ks.append(k)
        self.mark()

    def mark(self) -> None:
        """The verify is done; and once more at the very end."""
        if self._events:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def times(self) -> pd.DataFrame:
        """One line a round: round, rows, k (the most drafts of a row), and seconds of draft (all k steps with
        their sampling), verify (the target's forward), other (judging, rollback, bookkeeping) and in all."""
        if self._events and self._marks:
            self._marks[-1].synchronize()
            steps = [one.elapsed_time(other) / 1000
                     for one, other in zip(self._marks, self._marks[1:], strict=False)]
        else:
            steps = [other - one for one, other in zip(self._marks, self._marks[1:], strict=False)]
        parts = zip(steps[::3], steps[1::3], steps[2::3], strict=True)
        lines = [(number, rows, k, *each, sum(each)) for number, (rows, k, each) in enumerate(
            zip(self._rows, self._ks, parts, strict=True))]
        return pd.DataFrame(lines, columns=TIMES_COLUMNS)
