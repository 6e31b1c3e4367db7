"""data/manifest.json: where each file under data/ came from, and its size and sum.

An entry is written by hand, all but `sha256` and `bytes`, under the file's path below data/:

    "prompts/chat.jsonl": {"generator": the command, or in words how it was made,
                           "seed": a number or null, "versions": {package: version},
                           "date": "YYYY-MM-DD", "licence": an SPDX name}

Large files that `fetch` brings (data/models) are not listed: fetch checks them itself.
"""

from __future__ import annotations

import json
from pathlib import Path

from course_lib.fetch import ROOT, sha256
from course_lib.files import write_text

DATA = ROOT / "data"
FIELDS = ("generator", "seed", "versions", "date", "licence")
SUMS = ("sha256", "bytes")


def check(data: Path = DATA) -> list[str]:
    """What is wrong, a sentence each: files unlisted, missing or changed, entries incomplete."""
    entries, found = read(data), _files(data)
    problems = [_unlisted(path) for path in sorted(found - entries.keys())]
    for path, entry in entries.items():
        lacking = [field for field in (*FIELDS, *SUMS) if field not in entry]
        if path not in found:
            problems.append(f"data/{path} is listed but does not exist: restore it or remove its entry.")
        elif lacking:
            problems.append(f"the entry of data/{path} lacks {', '.join(lacking)}.")
        elif {field: entry[field] for field in SUMS} != _sums(data / path):
            problems.append(f"data/{path} is not the listed file: restore it, or say in its entry how it was "
                            "made anew and run `python -m course_lib manifest --write`.")
    return problems


def write(data: Path = DATA) -> None:
    """Renew size and sum of every listed file. Raises ValueError when a file has no entry, or an
    entry no file: the words of an entry can only come from whoever made the file."""
    entries, found = read(data), _files(data)
    for path in sorted(found - entries.keys()):
        raise ValueError(_unlisted(path))
    for path in entries.keys() - found:
        raise ValueError(f"data/{path} is listed but does not exist: restore it or remove its entry.")
    entries = {path: {**entries[path], **_sums(data / path)} for path in sorted(entries)}
    write_text(data / "manifest.json", json.dumps(entries, indent=2, ensure_ascii=False) + "\n")


def read(data: Path = DATA) -> dict[str, dict]:
    """The entries by path below data/. Raises ValueError when the manifest cannot be read."""
    try:
        return json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{data / 'manifest.json'} does not exist: restore it with git.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{data / 'manifest.json'} is not JSON: {error}.") from None


def _files(data: Path) -> set[str]:
    paths = {path.relative_to(data) for path in data.rglob("*") if path.is_file()}
    return {path.as_posix() for path in paths
            if path.parts[0] not in ("models", "manifest.json") and not any(p[0] in "._" for p in path.parts)}


def _sums(path: Path) -> dict[str, str | int]:
    return {"sha256": sha256(path), "bytes": path.stat().st_size}


def _unlisted(path: str) -> str:
    return f"data/{path} is not in data/manifest.json: add an entry with {', '.join(FIELDS)}."
