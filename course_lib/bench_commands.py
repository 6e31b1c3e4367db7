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
    pair_of,
    print_json,
    split,
)

WHAT = ("onepass", "assisted", "drafts")


def add(app: typer.Typer, command: Callable) -> None:
    """Register the command; command: registers a function and reports bad input."""
    command(bench, app)


def bench(
    what: Annotated[str, typer.Argument(help="onepass (one pass or a decoding for each k?), assisted (our "
                                             "decoder or transformers'?) or drafts.")] = "onepass",
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
    new_tokens: Annotated[int, typer.Option(help="Tokens a prompt.")] = 96,
    temperature: Annotated[float, typer.Option(help="0 is greedy; not of assisted.")] = 0.0,
    batch: Annotated[int, typer.Option(help="Texts at a time, where not 1.")] = 16,
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
        if what == "drafts":
            return _drafts(asked, bar)
        from course_lib.measure import choose_prompts

        chosen = choose_prompts(prompts, split(routes), limit)
        models = pair_of(pair, target, draft, None, device, dtype)
        if what == "onepass":
            from course_lib import bench as room
            from course_lib.sampling import Sampling

            found = room.onepass(models, chosen, Sampling(temperature), new_tokens, batch, progress=bar)
        else:
            from course_lib import assisted as room

            found = room.assisted(models, chosen, new_tokens, progress=bar)
    print_json(found) if as_json else print(room.describe(found))


def _drafts(asked: SimpleNamespace, bar) -> None:
    from course_lib import drafts as room
    from course_lib.measure import choose_prompts, numbers
    from course_lib.pairs import REGISTRY, load_pair
    from course_lib.prompts import EXTRA_ROUTES, ROUTES
    from course_lib.sampling import Sampling
    from course_lib.tables import show
    from course_lib.traces import Trace
    from course_lib.whole import whole

    if asked.draft is not None:
        raise ValueError("bench drafts takes its drafts without --draft: name them behind the word drafts")
    if asked.pair not in REGISTRY:
        raise ValueError(f"there is no pair {asked.pair!r}: choose from {', '.join(REGISTRY)}")
    ks = [whole("a k of --ks", k, 1) for k in numbers(asked.ks, "--ks")]
    text, routes = asked.text and Trace.load(asked.text), split(asked.routes)
    sampling = Sampling(asked.temperature)
    if text is not None:
        sampling = Sampling(*(text.meta[name] for name in ("temperature", "top_k", "top_p")))
        if routes is None and asked.prompts is None:
            routes = [route for route in ROUTES + EXTRA_ROUTES if route in set(text.rows.route)]
        elif routes is not None:
            text.rows = text.rows[text.rows.route.isin(routes)].reset_index(drop=True)
    prompts = choose_prompts(asked.prompts, routes, None if text else asked.limit)
    target = load_pair(asked.target or REGISTRY[asked.pair][0], None, asked.device, asked.dtype, "only")
    found = room.compare(target, asked.drafts, prompts, sampling, asked.new_tokens, ks, asked.draft_mode,
                         text, asked.check, asked.limit, asked.batch, asked.seed, command_line(), bar)
    print_json(found) if asked.as_json else show(room.table(found))
