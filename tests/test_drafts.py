"""Every kind of draft leaves the target's text alone, and drafts are compared on one text in one run."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from tiny import (
    Branches,
    distance,
    greedy_text,
    save_tiny,
    target_law,
    tiny_llama,
    tiny_pair,
    with_lookup,
    with_noise,
)

from course_lib import drafts as room
from course_lib.__main__ import main
from course_lib.costs import CostTable, RoundCosts
from course_lib.drafts import compare
from course_lib.fetch import FREQUENCY, PROPOSES
from course_lib.learning import prune
from course_lib.make_draft import make_draft
from course_lib.pairs import PairError, load_pair, with_draft
from course_lib.plans import Plan
from course_lib.prompts import Prompt
from course_lib.reduced import ReducedHead
from course_lib.sampling import GREEDY, Sampling
from course_lib.speculate import decode
from course_lib.traces import measure_trace, measure_traces

KINDS = ("reduced", "early layers", "lookup, then reduced")  # the others have files of their own
PROMPTS = [Prompt(f"{route}{i}", route, "own", [{"role": "user", "content": f"{route} {i} {i} {route} {i}"}])
           for route in ("a", "b") for i in range(5)]


def pair_with(kind, target, draft, proposes, eos):
    """The target with a draft of this kind; proposes: what a reduced head proposes."""
    if kind == "early layers":
        draft = prune(target, (0,)).to(target.dtype).eval()
    pair = tiny_pair(target, draft, eos=eos)
    if "reduced" in kind:
        pair.draft.lm_head = ReducedHead(pair.draft.lm_head, torch.tensor(proposes))
    if kind.startswith("lookup"):
        pair = with_lookup(pair, "first")
    return pair


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("draft_mode, sampling", [("sample", Sampling(1.0)), ("greedy", Sampling(0.7)),
                                                  ("sample", Sampling(1.3, top_k=3, top_p=0.9))])
def test_the_text_follows_the_target_law_with_every_draft(monkeypatch, kind, draft_mode, sampling):
    """By enumeration. The reduced head never proposes token 2, nor 3, which ends a text."""
    shape = {"hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.3}
    pair = pair_with(kind, tiny_llama(4, seed=4, **shape), tiny_llama(4, seed=2, **shape), [0, 1], [3])
    prompt = [1, 0, 0, 1, 0]
    law = Branches(monkeypatch).law(pair, prompt, 2, 3, sampling, draft_mode, rows=1000)
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    assert distance(law, target_law(pair.target, prompt, 3, sampling, pair.eos)) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_that_of_generate_with_every_draft(kind):
    target = tiny_llama(24, seed=3)
    pair = pair_with(kind, target, with_noise(target, 0.1), list(range(0, 24, 2)), [20, 17])
    prompts = [[5, 3, 7, 7, 2, 5, 3], [4], [1, 2, 3] * 3, [22] * 5]
    wanted = [greedy_text(target, prompt, 20, pair.eos) for prompt in prompts]
    for k in (1, 4, 9):
        assert decode(pair, prompts, k, 20, GREEDY).tokens == wanted, k


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(room, "ROUNDS", 3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target; a draft of three of its four layers, somewhat trained; and its first layer alone."""
    home = tmp_path_factory.mktemp("drafts")
    target = save_tiny(home / "target")
    for name, layers, steps in (("good", (0, 1, 3), 30), ("early", (0,), 0)):
        make_draft(Plan(str(target), layers, steps=steps, batch=4, new_tokens=8), home / name, PROMPTS,
                   device="cpu", say=lambda line: None)
    return {name: str(home / name) for name in ("target", "good", "early")}


@pytest.fixture(scope="module")
def target(folders):
    return load_pair(folders["target"], lookup="only", device="cpu", dtype="float32")


def test_a_cut_draft_proposes_the_most_frequent_tokens(folders, target, tmp_path):
    order = np.load(f"{folders['good']}/{FREQUENCY}")
    assert sorted(order.tolist()) == list(range(257))
    pair = with_draft(target, folders["good"] + "@32")
    assert pair.draft.lm_head.tokens.tolist() == sorted(order[:32].tolist())
    assert load_pair(folders["target"], folders["good"] + "@32").draft.lm_head.tokens.tolist() == sorted(
        order[:32].tolist())
    trace = measure_trace(pair, PROMPTS[:2], GREEDY, 4)
    assert trace.meta["draft"] == "good@32" and trace.meta["pair"] == "target + good@32"
    for few, words in (("@0", "cannot propose 0"), ("@258", "names the 257 most frequent")):
        with pytest.raises(PairError, match=words):
            with_draft(target, folders["good"] + few)
    with pytest.raises(PairError, match="does not say which tokens are frequent"):
        with_draft(target, folders["early"] + "@32")  # it has read no text
    plain = save_tiny(tmp_path / "plain", layers=1)
    with pytest.raises(PairError, match="does not say which tokens are frequent"):
        with_draft(target, f"{plain}@32")
    np.save(plain / PROPOSES, np.arange(50))  # a set, sorted by id
    with pytest.raises(PairError, match="does not say which tokens are frequent"):
        with_draft(target, f"{plain}@32")


def test_drafts_that_read_a_text_together_say_what_each_says_alone(folders, target):
    pairs = [with_draft(target, name) for name in (folders["good"], "lookup", folders["good"] + "@64")]
    together = measure_traces(pairs, PROMPTS, Sampling(1.0), 12, seed=3)
    for pair, trace in zip(pairs, together, strict=True):
        alone = measure_trace(pair, PROMPTS, Sampling(1.0), 12, seed=3)
        assert alone.rows.equals(trace.rows)
        assert {**alone.meta, "seconds": 0, "date": 0} == {**trace.meta, "seconds": 0, "date": 0}


def test_drafts_are_compared(folders, target):
    names = [folders["good"], folders["early"], folders["good"] + "@64", "lookup"]
    found = compare(target, names, PROMPTS, GREEDY, 16, (1, 2, 3), check=True)
    good, early, cut, lookup = (found["drafts"][name] for name in names)
    assert (good["layers"], early["layers"], lookup["layers"]) == (3, 1, None)
    assert good["parameters"] > early["parameters"] and lookup["parameters"] is None
    assert (good["proposes"], cut["proposes"]) == (None, 64) and lookup["draft_step"] < good["draft_step"]
    assert good["costs"]["t_verify"] == early["costs"]["t_verify"] == lookup["costs"]["t_verify"]
    for one in found["drafts"].values():
        costs = RoundCosts(one["costs"]["t_draft"], {int(w): s for w, s in one["costs"]["t_verify"].items()},
                           one["costs"]["overhead"])
        assert one["c"] == pytest.approx(costs.t_draft / costs.verify_seconds(1))
        for route in ("a", "b"):
            values = one["routes"][route]
            assert values["alpha"]["low"] <= values["alpha"]["mean"] <= values["alpha"]["high"]
            assert values["k"] in (1, 2, 3) and values["measured"]["mean"] > 0
            assert (values["over_first"] is None) == (one is good)
    pair = with_draft(target, names[0])
    trace = measure_trace(pair, PROMPTS, GREEDY, 16)
    for route in ("a", "b"):
        rows = trace.rows[trace.rows.route == route]
        assert good["routes"][route]["alpha"]["mean"] == pytest.approx(rows.match.mean())
        assert cut["routes"][route]["alpha"]["mean"] <= good["routes"][route]["alpha"]["mean"] + 0.05
    json.dumps(found, allow_nan=False)
    shown = io.StringIO()
    Console(width=300, file=shown).print(room.table(found))
    lines = [line.split() for line in shown.getvalue().splitlines()]
    for first in ("a", "b", "all"):
        assert sum(line[:1] == [first] for line in lines) == len(names)


def test_measured_speedups_are_ratios_of_the_runs():
    """Times made up: the first draft takes a half of plain decoding, the second a quarter."""
    lines = [("a", prompt, name, 2, 10, 5, seconds * weight) for prompt, weight in (("x", 1), ("y", 3))
             for name, seconds in (("plain", 1.0), ("one", 0.5), ("two", 0.25))]
    runs = pd.DataFrame(lines, columns=["route", "prompt", "draft", "k", "tokens", "rounds", "seconds"])
    runs.loc[runs.draft == "two", ["tokens", "seconds"]] *= 2  # longer texts, at the same pace
    found = {name: {"routes": {"a": {}}} for name in ("one", "two")}
    room._add_measured(found, runs, "one")
    assert found["one"]["routes"]["a"]["measured"]["mean"] == pytest.approx(2)
    assert found["two"]["pooled"]["measured"]["mean"] == pytest.approx(4)
    assert found["two"]["routes"]["a"]["over_first"] == pytest.approx({"mean": 2, "low": 2, "high": 2})


def test_runs_take_turns(folders, target, monkeypatch):
    order = []

    def noted(pair, rows, k, *rest):
        order.append((pair.name, k))
        return decode(pair, rows, k, *rest)

    monkeypatch.setattr(room, "decode", noted)
    pairs = {name: with_draft(target, name) for name in (folders["good"], "lookup")}
    ks = {name: {"a": 1, "b": 2} for name in pairs}
    room.run_each(pairs, ks, PROMPTS[:3], GREEDY, "sample", 8)
    assert [k for _, k in order] == [0, 1, 1, 1, 1, 0, 1, 0, 1]
    assert [name.split(" + ")[1] for name, k in order if k] == ["good", "lookup", "good", "lookup", "lookup",
                                                                "good"]


def test_the_command_compares_on_recorded_text(folders, target, tmp_path, capsys):
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": f"say {i} {i} {i}", "route": "a"}) for i in range(4)))
    options = ["--prompts", str(file), "--target", folders["target"], "--device", "cpu"]
    assert main(["measure", *options, "--draft", folders["good"], "--new-tokens", "12", "--temperature", "1",
                 "--out", str(tmp_path / "a.parquet"), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert main(["bench", "drafts", folders["good"], "lookup", *options, "--ks", "1,2", "--json", "--text",
                 str(tmp_path / "a.parquet")]) == 0
    found = json.loads(capsys.readouterr().out)
    alpha = found["drafts"][folders["good"]]["routes"]["a"]["alpha"]
    assert alpha["mean"] == pytest.approx(measured["routes"]["a"]["alpha"]["overlap"], abs=1e-4)
    assert found["text"] == "recorded" and found["temperature"] == 1
    assert "pooled" not in found["drafts"]["lookup"]


def test_training_is_timed_in_four_ways(folders, capsys):
    options = ["--target", folders["target"], "--layers", "0,3", "--limit", "3", "--new-tokens", "6"]
    assert main(["bench", "training", *options, "--routes", "chat", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["seconds"]) == ["target along", "cached", "sampled", "reduced"]
    assert found["tokens_a_second"]["cached"] == pytest.approx(found["tokens"] / found["seconds"]["cached"])


@pytest.mark.parametrize("arguments, words", [
    (["drafts"], "name the drafts to compare"),
    (["onepass", "lookup"], "onepass compares no drafts: leave out lookup"),
    (["speed"], "there are onepass, assisted, training, drafts"),
    (["drafts", "lookup", "lookup"], "each once"),
    (["drafts", "/nowhere"], "there is no model in /nowhere"),
    (["drafts", "lookup", "--ks", "0"], "must be"),
    (["drafts", "lookup", "--draft", "x"], "without --draft"),
    (["drafts", "lookup", "--text", "none.parquet"], "none.parquet"),
])
def test_bad_input_is_one_sentence(folders, arguments, words, capsys):
    assert main(["bench", *arguments, "--target", folders["target"]]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("bench: ") and said.err.count("\n") == 1
    assert words in said.err


def test_the_target_costs_the_same_whoever_drafts():
    """A slow moment of the target beside one draft must not make another draft look the faster."""
    def table(draft, *verify):
        return CostTable({1: RoundCosts(draft, dict(enumerate(verify, 1)), 0.5)})

    found = room._one_target({"a": table(2.0, 10, 12), "b": table(1.0, 14, 16), "lookup": table(0.1, 11, 19)})
    assert {name: each.at(1).t_draft for name, each in found.items()} == {"a": 2.0, "b": 1.0, "lookup": 0.1}
    assert all(each.at(1).t_verify == {1: 11, 2: 16} for each in found.values())
    speeds = {name: each.at(1).speedup(1.5, 1) for name, each in found.items()}
    assert sorted(speeds, key=speeds.get) == ["a", "b", "lookup"]  # as their own steps are
