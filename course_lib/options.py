"""What several commands share: options, how a pair is loaded, and how results and progress are printed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

PairName = Annotated[str, typer.Option(help="smol, laptop, h100 or h100-70b.")]
Target = Annotated[str | None, typer.Option(help="Instead of --pair: a Hugging Face id or folder.")]
Draft = Annotated[str | None, typer.Option(help="With --target: the draft's id or folder.")]
LookUp = Annotated[str | None, typer.Option("--lookup", help="Draft from the text itself: first (then the "
                                           "draft), or only.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps or auto.")]
DType = Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or float64.")]
ServedTarget = Annotated[str | None, typer.Option(help="Instead of --pair: where vLLM serves the target, "
                                                  "http://HOST:PORT; replicas with commas between.")]
ServedDraft = Annotated[str | None, typer.Option(help="With --served-target: where vLLM serves the draft.")]
Log = Annotated[Path | None, typer.Option(help="With --served-target: texts that it wrote (JSONL: prompt or "
                                          "messages, response, temperature, route), scored as they are.")]
ServedConcurrency = Annotated[int, typer.Option(help="Requests at a time to served engines.")]
Traces = Annotated[list[Path] | None, typer.Argument(help="What measure --out saved; measured if none.")]
Routes = Annotated[str | None, typer.Option(help="Which, with commas between; all if not given (of ours "
                                            "chat, code and json: copy must be named).")]
PromptFile = Annotated[Path | None, typer.Option(help="Your own prompts: JSONL, or one a line.")]
Limit = Annotated[int | None, typer.Option(help="The most prompts of each route (to --check: 8).")]
NewTokens = Annotated[int, typer.Option(help="Tokens the target writes for each prompt.", min=1)]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopK = Annotated[int, typer.Option(help="0 keeps every token.")]
TopP = Annotated[float, typer.Option(help="1 keeps every token.")]
DraftMode = Annotated[str, typer.Option(help="The draft's tokens: sample, or greedy.")]
Seed = Annotated[int, typer.Option(help="Of the text, where the temperature is not 0.", min=0, max=2**63 - 1)]
Ks = Annotated[str, typer.Option(help="Drafts a round to decide between.")]
Concurrency = Annotated[str | None, typer.Option(help="Loads; if not given those of --costs, or 1.")]
CostFile = Annotated[Path | None, typer.Option(help="A file of round costs; measured if not given.")]
Check = Annotated[bool, typer.Option("--check", help="Also decode at every k, by the clock.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that are no prompt.")]
Cut = Annotated[bool, typer.Option("--cut", help="Shorten prompts longer than the context.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


def progress(text: str) -> None:
    """A line of progress, where it cannot get into the result."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: object) -> None:
    """Print the one JSON document. NaN is not JSON: whoever makes the document writes None for it."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def pair_of(pair: str, target: str | None, draft: str | None, lookup: str | None, device: str | None,
            dtype: str | None):
    """The pair that these options name."""
    from course_lib.pairs import load_pair

    _check_models(target, draft, lookup == "only")
    return load_pair(pair if target is None else target, draft, device, dtype, lookup)


def models_of(pair: str, target: str | None, draft: str | None) -> tuple[str, str]:
    """Names of target and draft that these options mean, for an engine to load."""
    from course_lib.pairs import REGISTRY

    _check_models(target, draft, alone=True)
    if target is None and pair not in REGISTRY:
        raise ValueError(f"--pair {pair!r} is not known: choose from {', '.join(REGISTRY)}, or give --target "
                         "and --draft")
    return (target, draft or "") if target else REGISTRY[pair]


def split(text: str | None) -> list[str] | None:
    """"chat,json" as its parts; None stays None."""
    return None if text is None else [part.strip() for part in text.rstrip(", ").split(",")]


def command_line() -> str:
    """What was typed, to stand in the provenance of what is saved."""
    return shlex.join(["python", "-m", "course_lib", *sys.argv[1:]])


def _check_models(target: str | None, draft: str | None, alone: bool = False) -> None:
    if (target is None) != (draft is None) and not (target and alone):
        raise ValueError("--target and --draft go together: give both, or --pair (--lookup only needs no "
                         "draft)")
    check_names({"--target": target, "--draft": draft})


def check_names(models: dict[str, str | None]) -> None:
    """Raise ValueError for an option {option: what was given} that is there, and names no model."""
    for option, name in models.items():
        if name is not None and not name.strip():
            raise ValueError(f"{option} is empty: give a Hugging Face id or a folder")
