"""The command that makes drafts: `python -m course_lib distill`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from course_lib.options import (
    AsJson,
    Device,
    PromptFile,
    Routes,
    SkipBad,
    check_names,
    print_json,
    progress,
    split,
)


def add(app: typer.Typer, command: Callable) -> None:
    """Register the command; command: registers a function and reports bad input."""
    command(distill, app)


def distill(
    target: Annotated[str | None, typer.Option(help="A Llama, folder or Hugging Face id; ours if not "
                                               "given.")] = None,
    layers: Annotated[str | None, typer.Option(help="Those of its layers to keep, such as 0,1,2,29.")] = None,
    start: Annotated[str | None, typer.Option(help="Instead of --layers: a draft to go on from.")] = None,
    minutes: Annotated[float | None, typer.Option(help="How long the training may take, beside the writing "
                                                  "of its text.")] = None,
    steps: Annotated[int | None, typer.Option(help="Instead of --minutes: batches; 0: no training.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder the draft goes to.")] = None,
    prompts: PromptFile = None,
    routes: Routes = None,
    text: Annotated[str, typer.Option(help="What it reads: the target's own text, or the corpus, the "
                                      "responses in the file of prompts.")] = "target",
    proposes: Annotated[int | None, typer.Option(help="Propose only so many tokens, the frequent.")] = None,
    loss: Annotated[str | None, typer.Option(help="kl, tv (total variation), or turn: from the first to the "
                                             "second. turn if not given; from a draft tv.")] = None,
    rate: Annotated[float | None, typer.Option(help="Of AdamW; 0.001 if not given, from a draft "
                                               "0.0003.")] = None,
    batch: Annotated[int, typer.Option(help="Texts a step.")] = 8,
    new_tokens: Annotated[int, typer.Option(help="The most tokens of a text.")] = 128,
    seed: Annotated[int, typer.Option(help="Of the text, its order and the sampled vocabulary.",
                                      min=0, max=2**63 - 1)] = 0,
    threads: Annotated[int, typer.Option(help="More are faster, but round differently.", min=1)] = 1,
    device: Device = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Make a draft for a Llama: train some of its layers on its text; goes on where it was stopped.

    With --start it adapts a draft, to one route for instance. With neither --layers nor --start it trains the
    course's own draft again, as it was trained (hours on two cores).
    """
    asked = SimpleNamespace(**locals())
    check_names({"--target": target, "--start": start})
    if layers is None and start is None:
        return _as_shipped(asked)
    if out is None:
        raise ValueError("say where the draft goes: --out FOLDER")
    found = _made(asked)
    print_json(found) if as_json else print(describe(found))


def describe(found: dict) -> str:
    """The result of `make_draft.make_draft` in words."""
    lines = ["route       α before            α after             gain [95 % over prompts]"]
    for route, values in found["alpha"].items():
        cells = [_interval(values[name]) for name in ("before", "after", "gain")]
        note = "" if values["learned"] else "   not trained on"
        lines.append(f"{route:<10}  {cells[0]:<18}  {cells[1]:<18}  {cells[2]}{note}")
    seconds = found["seconds"]
    speed = f", {found['tokens'] / seconds['training']:.0f} tokens a second" if found["tokens"] else ""
    proposes = "" if found["proposes"] is None else f", proposing {found['proposes']:,} tokens"
    minutes = (f"training {seconds['training'] / 60:.1f}, writing text {seconds['writing'] / 60:.1f}, "
               f"measuring {seconds['measuring'] / 60:.1f}")
    return "\n".join([*lines, (
        f"{found['parameters']:,} parameters{proposes}; {found['steps']} steps, {found['tokens']:,} tokens "
        f"of {found['text_tokens']:,} different ones{speed}; minutes: {minutes}")])


def _interval(value: dict) -> str:
    if value["low"] is None:
        return f"{value['mean']:.3f}"
    return f"{value['mean']:.3f} ±{(value['high'] - value['low']) / 2:.3f}"


def _made(asked: SimpleNamespace) -> dict:
    """Train as asked. What can be wrong without the models is looked at before torch is loaded (seconds)."""
    from course_lib import plans
    from course_lib.fetch import TARGET_FOLDER
    from course_lib.measure import numbers

    layers = None if asked.layers is None else numbers(asked.layers, "--layers")
    if layers and asked.layers.replace(" ", "") != ",".join(map(str, layers)):
        raise ValueError(f"--layers is {asked.layers!r}: give each layer once, in ascending order")
    plan = plans.Plan(asked.target or str(TARGET_FOLDER), layers and tuple(layers), asked.start, asked.steps,
                asked.minutes, asked.text, asked.proposes, asked.loss, asked.rate, asked.batch,
                asked.new_tokens, asked.seed)
    learned, others = _prompts(asked)
    plans.split(learned, others)
    plans.sign(plan, asked.out, [*learned, *others])
    _set_threads(asked.threads)
    from course_lib.make_draft import make_draft

    return make_draft(plan, asked.out, learned, others, asked.device, progress)


def _prompts(asked: SimpleNamespace) -> tuple[list, list]:
    """The prompts to learn from, and those of other routes: of the file, and ours, of the training split."""
    from course_lib.prompts import ROUTES, load_prompts, read_log, read_prompts

    if asked.text == "corpus" and asked.prompts is None:
        raise ValueError("--text corpus needs --prompts: a file whose lines have a prompt and a response")
    own = []
    if asked.prompts is not None:
        own = (read_log(asked.prompts, asked.skip_bad, progress, temperature=None) if asked.text == "corpus"
               else read_prompts(asked.prompts, asked.skip_bad, progress))
    known = {prompt.route for prompt in own}
    every = own + load_prompts([route for route in ROUTES if route not in known], "train")
    wanted = split(asked.routes) or (known if own else ROUTES)
    if missing := [route for route in wanted if route not in (known or ROUTES)]:
        raise ValueError(f"there are no prompts of route {missing[0]!r}: choose from "
                         + ", ".join(known or ROUTES))
    return [one for one in every if one.route in wanted], [one for one in every if one.route not in wanted]


def _as_shipped(asked: SimpleNamespace) -> None:
    others = {name: getattr(asked, name) for name in ("target", "minutes", "prompts", "routes", "proposes",
                                                      "loss", "rate", "device")}
    if given := [name for name, value in others.items() if value is not None]:
        raise ValueError(f"--{given[0]} needs --layers, which layers of the target to keep, or --start, a "
                         "draft to go on from")
    if asked.steps is not None and asked.steps < 1:
        raise ValueError(f"steps must be 1 or more, not {asked.steps}")
    if asked.out is not None and asked.out.exists() and not asked.out.is_dir():
        raise ValueError(f"{asked.out} is a file: name a folder")
    _set_threads(asked.threads)
    from course_lib import distill as room
    from course_lib.teacher import PASSES, WORK, write_passes

    work = WORK / f"seed{asked.seed}"
    write_passes(range(PASSES), seed=asked.seed, work=work, say=progress)
    for until, schedule in room.SHIPPED if asked.steps is None else [(asked.steps, asked.steps)]:
        folder = room.train(schedule, seed=asked.seed, work=work, until=until, say=progress)
    room.publish(folder, asked.out or room.DRAFT_DATA)
    facts = json.loads((folder / "draft.json").read_text())
    line = f"{facts['steps']} steps, {facts['tokens']} tokens, {facts['minutes']} minutes"
    print_json(facts) if asked.as_json else print(line)


def _set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
