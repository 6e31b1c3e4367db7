"""The command that times claims and compares drafts: `python -m course_lib bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from course_lib.bars import progress_bar
from course_lib.options import (
    AsJson,
    Device,
    Draft,
    DraftMode,
    DType,
    Ks,
    PairName,
    PromptFile,
    Routes,
    Seed,
    Target,
    command_line,
    models_of,
    pair_of,
    print_json,
    progress,
    split,
)

WHAT = ("onepass", "assisted", "training", "drafts")


def add(app: typer.Typer, command: Callable) -> None:
    """Register the command; command: registers a function and reports bad input."""
    command(bench, app)


def bench(
    what: Annotated[str, typer.Argument(help="onepass (one pass or a decoding for each k?), assisted (our "
                                             "decoder or transformers'?), training (a draft's step, in four "
                                             "ways) or drafts.")] = "onepass",
    drafts: Annotated[list[str] | None, typer.Argument(help="To compare: folders or ids, FOLDER@4096 for the "
                                                       "most frequent tokens alone, or lookup.")] = None,
    pair: PairName = "smol",
    target: Target = None,
    draft: Draft = None,
    device: Device = None,
    dtype: DType = None,
    routes: Routes = None,
    prompts: PromptFile = None,
    limit: Annotated[int, typer.Option(help="Prompts of each route; with --text, of those decoded.")] = 8,
    new_tokens: Annotated[int, typer.Option(help="Tokens a prompt.", min=1)] = 96,
    temperature: Annotated[float, typer.Option(help="Of onepass and drafts; 0 is greedy.")] = 0.0,
    batch: Annotated[int, typer.Option(help="Of onepass and drafts: texts read at a time.")] = 16,
    layers: Annotated[str, typer.Option(help="Of training: those of the target.")] = "0,1,2,29",
    ks: Ks = "1,2,3,4,5,8",
    draft_mode: DraftMode = "sample",
    text: Annotated[Path | None, typer.Option(help="Of drafts: a trace whose text is read; else the target "
                                              "writes.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Of drafts: also decode, by the clock.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Time a claim of the course, all sides in one run; or compare drafts of one target."""
    asked = SimpleNamespace(**locals())
    if what not in WHAT:
        raise ValueError(f"there is no benchmark {what!r}: there are {', '.join(WHAT)}")
    if (what == "drafts") != bool(drafts):
        raise ValueError("name the drafts to compare: bench drafts FOLDER FOLDER ..., or lookup"
                         if what == "drafts" else f"{what} compares no drafts: leave out {drafts[0]}")
    with progress_bar() as bar:
        found, shown = {"drafts": _drafts, "training": _training}.get(what, _claim)(asked, bar)
    print_json(found) if as_json else shown(found)


def _claim(asked: SimpleNamespace, bar) -> tuple[dict, Callable]:
    from course_lib.measure import choose_prompts

    prompts = choose_prompts(asked.prompts, split(asked.routes), asked.limit, say=progress)
    models = pair_of(asked.pair, asked.target, asked.draft, None, asked.device, asked.dtype)
    if asked.what == "onepass":
        from course_lib import bench as room
        from course_lib.sampling import Sampling

        found = room.onepass(models, prompts, Sampling(asked.temperature), asked.new_tokens, asked.batch,
                             asked.seed, progress=bar)
    else:
        from course_lib import assisted as room

        found = room.assisted(models, prompts, asked.new_tokens, progress=bar)
    return found, lambda found: print(room.describe(found))


def _training(asked: SimpleNamespace, bar) -> tuple[dict, Callable]:
    from course_lib import bench as room
    from course_lib.measure import choose_prompts, numbers

    prompts = choose_prompts(asked.prompts, split(asked.routes), asked.limit, say=progress)
    target = models_of(asked.pair, asked.target, None)[0]
    found = room.training(target, numbers(asked.layers, "--layers"), prompts, asked.new_tokens,
                          seed=asked.seed, progress=bar)
    return found, lambda found: print(room.describe_training(found))


def _drafts(asked: SimpleNamespace, bar) -> tuple[dict, Callable]:
    from course_lib import drafts as room
    from course_lib.measure import choose_prompts, drafts_a_round
    from course_lib.pairs import load_pair
    from course_lib.prompts import EXTRA_ROUTES, ROUTES
    from course_lib.sampling import Sampling
    from course_lib.tables import show
    from course_lib.traces import Trace

    if asked.draft is not None:
        raise ValueError("bench drafts takes its drafts without --draft: name them behind the word drafts")
    source = models_of(asked.pair, asked.target, None)[0]
    ks = drafts_a_round(asked.ks, least=1)
    text, routes = asked.text and Trace.load(asked.text), split(asked.routes)
    sampling = Sampling(asked.temperature)
    if text is not None:
        sampling = Sampling(*(text.meta[name] for name in ("temperature", "top_k", "top_p")))
        if routes is None and asked.prompts is None:
            routes = [route for route in ROUTES + EXTRA_ROUTES if route in set(text.rows.route)]
        elif routes is not None:
            text.rows = text.rows[text.rows.route.isin(routes)].reset_index(drop=True)
    prompts = choose_prompts(asked.prompts, routes, None if text else asked.limit, say=progress)
    target = load_pair(source, None, asked.device, asked.dtype, "only")
    found = room.compare(target, asked.drafts, prompts, sampling, asked.new_tokens, ks, asked.draft_mode,
                         text, asked.check, asked.limit, asked.batch, asked.seed, command_line(), bar)
    return found, lambda found: show(room.table(found))
