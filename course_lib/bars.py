"""How a long measurement says how far it has come: a function it calls, and the bar that shows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Progress = Callable[[str, int, int], None]  # what is being done, how many are done, of how many


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr for each stage; plain lines where stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage, done, total: print(f"{stage}: {done}/{total}", file=sys.stderr, flush=True)
        return
    from rich import progress

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
               progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=console, transient=True) as bars:
        stages = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done)

        yield update
