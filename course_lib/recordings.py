"""Recordings: measurements too long to repeat in a notebook, kept in data/recordings with their provenance.

    smol-t0.parquet ... smol-t1.2.parquet   traces of the embedded pair by temperature (`Trace.load`)
    smol-t1-p0.9.parquet                    the same at temperature 1, top-p 0.9
    costs-cpu.json                          round costs by batch (`CostTable.load`)
    sweep-cpu.json                          predicted against measured, what `sweep --check --json` printed
    sweep-cpu-lookup.json                   the same with lookup before the draft
    sweep-cpu-lookup-only.json              and with lookup alone
    smol-copy-t0.parquet                    a trace of the copy-heavy route
    sweep-cpu-copy.json                     predicted against measured there, drafts looked up in the text
    drafts-cpu*.json, distill-*.csv         drafts compared, and how they were trained
    adapt-*.json                            the shipped draft taught the prompts of one route alone

`make recordings` makes all but the last two lines again, `make engine` engine-* (see `engine_run`), and `make
gpu`, on a machine with CUDA,

    costs-gpu-graphs-512.json ...           round costs at the shapes of Llama-3.1-8B and Llama-3.2-1B, as
    costs-gpu-eager-512.json ...            graphs and eagerly, by the positions of the cache
    smol-costs-gpu.json                     the same of the embedded pair
    h100-gpu-t0.parquet, h100-gpu-t1...     traces of the two Llamas, where their weights were
"""

from pathlib import Path

from course_lib import manifest
from course_lib.fetch import ROOT

RECORDINGS = ROOT / "data" / "recordings"


def recording(name: str, folder: Path = RECORDINGS) -> Path:
    """Where a recording lies: `recording("smol-t0.parquet")`.

    Raises ValueError, with the command that makes it, where there is none of that name.
    """
    path = folder / name
    if not path.is_file():
        there = ", ".join(sorted(each.name for each in folder.glob("*.*"))) or "none"
        raise ValueError(f"there is no recording {name} (here are: {there}): run `make recordings`, which "
                         "measures the embedded pair again")
    return path


def provenance(name: str, data: Path = manifest.DATA) -> dict:
    """What `plots.banner` says of a recording that does not say it itself: machine, date, command, versions.

    Raises ValueError where data/manifest.json does not have them.
    """
    entry = manifest.read(data).get(f"recordings/{name}", {})
    if missing := [each for each in ("machine", "date", "generator") if not entry.get(each)]:
        raise ValueError(f"data/manifest.json does not give the {', '.join(missing)} of recordings/{name}")
    versions = ", ".join(f"{package} {version}" for package, version in entry["versions"].items())
    return {"machine": entry["machine"], "date": entry["date"], "command": entry["generator"],
            "versions": versions or "none"}
