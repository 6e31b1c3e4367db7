"""A file is there as a whole, or as it was before: it is written under another name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write to the path that this yields; at the end of the block it takes the place of `path`.

    If the block fails, `path` is as before and nothing is left beside it. Only a kill may leave the other
    file, which the next writer overwrites.
    """
    part = _part(Path(path))
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, in UTF-8, whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def check_writable(path: Path) -> None:
    """Raise ValueError unless a file can be put there: now, not after an hour of measuring."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: make it first")
    if path.exists() and not path.is_file():
        kind = "a directory" if path.is_dir() else "not a file"
        raise ValueError(f"{path} is {kind}: name a file to write")
    try:
        _part(path).touch()
        _part(path).unlink()
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}): choose another place") from None


def check_replaceable(folder: Path, mark: str) -> None:
    """Raise ValueError unless a folder may be replaced as a whole: it is not there, or empty, or has the file
    `mark`, as one that was made here before."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / mark).exists():
        raise ValueError(f"{folder} holds files of another kind, and would be replaced as a whole: name a "
                         "new or an empty folder")


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
