"""Protects the report: every number is the document's, every word is escaped, off means off everywhere."""

import base64
import html
import itertools
import json
import re
import shlex
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from tiny import tiny_llama, tiny_pair, with_noise
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib import report
from course_lib.costs import CostTable, RoundCosts
from course_lib.findings import blocks, decision
from course_lib.page import Block, as_html, as_markdown
from course_lib.prompts import Prompt
from course_lib.report import render, write
from course_lib.sampling import Sampling
from course_lib.settings import OFF, groups, one_k, schedule, settings
from course_lib.sweep import decide
from course_lib.traces import Trace, measure_trace

KS = (1, 2, 4)
NASTY = '<script>alert("x")</script> | $x_1$ **b** `c` [a](http://e) & _d\n# e \u202e'


def row(k, tokens, predicted, half=0.05, measured=None):
    """A line of the table; half None: one prompt, no interval."""
    def ends(mean):
        return (None, None) if half is None or mean is None else (mean - half, mean + half)

    timed = predicted + 0.01  # the prediction for the prompts that were timed
    real = {"error": None}
    if measured is not None:
        real = {"error": timed / measured - 1, "predicted_checked": timed}
    return {"k": k, "tokens_per_round": tokens, "tokens_low": ends(tokens)[0], "tokens_high": ends(tokens)[1],
            "predicted": predicted, "predicted_low": ends(predicted)[0], "predicted_high": ends(predicted)[1],
            "measured": measured, "measured_low": ends(measured)[0], "measured_high": ends(measured)[1],
            **real}


def load(predicted, half=0.05, measured=(None, None, None), adaptive=1.0625, iid=(4, 1.5)):
    """One load from the predicted speedups at k = 1, 2, 4, decided as `sweep.decide` does."""
    table = [row(k, 1 + k / 3, each, half, real)
             for k, each, real in zip(KS, predicted, measured, strict=True)]
    best = max(table, key=lambda each: each["predicted"])
    on = half is not None and best["predicted_low"] > 1
    return {"best_k": best["k"] if on else 0, "decision": "speculate" if on else "off",
            "reason": "The interval's lower end is above 1." if on else "The interval reaches down to 1.",
            "speedup": best["predicted"], "speedup_interval": [best["predicted_low"], best["predicted_high"]],
            "adaptive": adaptive, "iid": {"best_k": iid[0], "speedup": iid[1]}, "table": table}


def route(loads, prompts=12, tokens=1000):
    return {"prompts": prompts, "tokens": tokens, "alpha": 0.625, "loads": loads}


def sweep(routes, **meta):
    trace = {"pair": "smol", "target": "big", "draft": "small", "temperature": 1.0, "top_k": 0, "top_p": 1.0,
             "draft_mode": "sample", "machine": "a machine, 2 cores", "dtype": "bfloat16",
             "date": "2026-11-29T12:00:00", "command": "python -m course_lib measure", **meta}
    costs = {"machine": "another machine", "date": "2026-11-28", "command": "python -m course_lib costs"}
    return {"meta": {"traces": [trace], "costs": costs}, "ks": list(KS), "routes": routes}


@pytest.fixture
def document():
    """Chat gains a little at load 1 and nothing from 4 on, json gains much; they disagree on k."""
    return sweep({
        "chat": route({"1": load((1.20, 1.32, 1.1), measured=(1.19, 1.30, 1.12)), "4": load((0.85, 0.8, 0.7)),
                       "16": load((0.9, 0.8, 0.7))}, tokens=3000),
        "json": route({"1": load((1.35, 1.61, 1.83), measured=(1.36, 1.6, 1.8)), "4": load((1.3, 1.4, 1.35)),
                       "16": load((0.95, 0.9, 0.8), adaptive=1.0)}, tokens=1000)})


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Figures are drawn only where a test looks at them."""
    if "figures" not in request.node.name:
        monkeypatch.setattr("course_lib.plots.svg", lambda figure: "<svg/>")


class Page(HTMLParser):
    """The page as a browser takes it: tags with attributes, the text, the cells of each table."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.tables, self.text, self.cell = [], [], "", False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.cell = True

    def handle_endtag(self, tag):
        self.cell = self.cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self.cell:
            self.tables[-1][-1][-1] += data

    def images(self):
        return [attributes for tag, attributes in self.tags if tag == "img"]


def cells(line):
    """A row of a Markdown table as GitHub reads it: split at bars that are not escaped."""
    return [re.sub(r"\\(.)", r"\1", part.strip()).strip("*") for part in re.split(r"(?<!\\)\|", line)[1:-1]]


# What it says


def test_these_documents_have_the_shape_of_the_real_one(document):
    """With `decide` on a small trace: the same keys at every level, and a report all the same."""
    real = real_document()
    for mine, theirs in ((document, real), (document["routes"]["chat"], real["routes"]["a"])):
        assert set(mine) == set(theirs)
    mine, theirs = document["routes"]["chat"]["loads"]["1"], real["routes"]["a"]["loads"]["4"]
    assert set(mine) == set(theirs) and set(mine["iid"]) == set(theirs["iid"])
    assert set(mine["table"][0]) == set(theirs["table"][0]) | {"predicted_checked"}  # what `check` adds
    text = Page(render(real)["html"]).text
    assert "a: speculate with k = " in text and "b: off at every load measured, because with k=1 the " in text
    assert "off from load 4 on" in text


def real_document():
    """`decide` on random texts of two routes, one easy and one hard, with costs that rise with the load."""
    chance = np.random.default_rng(0)
    accept = [chance.uniform(low, high, 40) for low, high in [(0.5, 1)] * 9 + [(0, 0.3)] * 9]
    rows = pd.DataFrame({"route": np.repeat(["a", "b"], 9 * 40), "t": np.tile(np.arange(40), 18),
                         "prompt": np.repeat(np.arange(18), 40).astype(str),
                         "accept": np.concatenate(accept)})
    costs = {load: RoundCosts(0.1, {width: 1 + price * width for width in range(1, 6)})
             for load, price in ((1, 0.05), (4, 9))}
    return decide(Trace(rows, sweep({})["meta"]["traces"][0] | {"new_tokens": 40}),
                  CostTable(costs, {"machine": "m", "date": "d", "command": "c"}), KS, (1, 4))


def test_a_route_is_decided_in_one_sentence(document):
    assert decision("chat", document["routes"]["chat"]) == (
        "chat: speculate with k = 2 at load 1: 1.32× [1.27, 1.37]; off from load 4 on, because the interval "
        "reaches down to 1.")
    assert decision("json", document["routes"]["json"]).startswith(
        "json: speculate with k = 4 at load 1: 1.83× [1.78, 1.88]; speculate with k = 2 at load 4: 1.40×")
    off = route({"1": load((0.9, 0.8, 0.7)), "4": load((0.9, 0.8, 0.7))})
    assert decision("a", off) == "a: off at every load measured, because the interval reaches down to 1."
    assert decision("a", route({"1": load((0.9, 0.8, 0.7))})).startswith("a: off at load 1, because ")
    same = route({"1": load((1.2, 1.3, 1.1)), "8": load((1.1, 1.2, 1.0))})
    assert decision("a", same) == "a: speculate with k = 2 at load 1 to 8: 1.30× [1.25, 1.35] at load 1, " \
                                  "1.20× at load 8."
    late = route({"1": load((0.9, 0.8, 0.7)), "8": load((1.1, 1.2, 1.0))})
    assert decision("a", late).startswith("a: off at load 1, because the interval reaches down to 1; specu")


def test_the_page_opens_with_the_decisions(document):
    page = Page(render(document)["html"])
    first = [tag for tag, _ in page.tags if tag in ("h1", "ul", "table", "img")]
    assert first[:2] == ["h1", "ul"]
    for name, found in document["routes"].items():
        assert decision(name, found) in page.text


def test_every_number_of_the_table_is_the_document_s(document):
    made = render(document)
    table = Page(made["html"]).tables[0]
    assert table[0] == ["route", "k", "tokens per round", "predicted", "predicted for those timed",
                        "measured", "error of prediction"]
    expected = [(name, each) for name, found in document["routes"].items()
                for each in found["loads"]["1"]["table"]]
    assert len(table) == 1 + len(expected)
    for shown, (name, each) in zip(table[1:], expected, strict=True):
        assert shown[:2] == [name, str(each["k"])]
        for text, mean, unit in zip([*shown[2:4], shown[5]], ("tokens_per_round", "predicted", "measured"),
                                    ("", "×", "×"), strict=True):
            low, high = (each[f"{mean.split('_')[0]}_{end}"] for end in ("low", "high"))
            assert text == f"{each[mean]:.2f}{unit} [{low:.2f}, {high:.2f}]"
        assert shown[4] == f"{each['predicted_checked']:.2f}×"
        assert shown[6] == f"{(each['predicted_checked'] / each['measured'] - 1) * 100:+.1f} %"
    second = Page(made["html"]).tables[1][1:]
    assert [line[:3] for line in second] == [
        ["chat", "1", "k = 2"], ["chat", "4", "off"], ["chat", "16", "off"],
        ["json", "1", "k = 4"], ["json", "4", "k = 2"], ["json", "16", "off"]]
    assert second[1][3] == "0.85× [0.80, 0.90] with k = 1"
    assert second[0][3:] == ["1.32× [1.27, 1.37]", "+6.2 %", "k = 4, 1.50×"] and second[5][4] == "+0.0 %"


def test_the_markdown_tables_are_those_of_the_page(document):
    made = render(document)
    lines = made["markdown"].split("\n")
    tables, inside = [], False
    for line in lines:
        if line.startswith("|"):
            tables += [] if inside else [[]]
            tables[-1].append(cells(line))
        inside = line.startswith("|")
    tables = [[line for line in table if set("".join(line)) != {"-"}] for table in tables]
    assert tables == Page(made["html"]).tables
    assert all(len(line) == len(table[0]) for table in tables for line in table)


def test_figures_carry_their_numbers_as_alternative_text(document):
    first, second = Page(render(document)["html"]).images()
    for name, found in document["routes"].items():
        assert name in first["alt"] and name in second["alt"]
        for each in found["loads"]["1"]["table"]:
            assert f"{each['predicted']:.2f} at k = {each['k']}" in first["alt"]
            assert f"{each['measured']:.2f} at k = {each['k']}" in first["alt"]
        for at, one in found["loads"].items():
            assert f"{one['speedup']:.2f} at {at}" in second["alt"]
    for image in (first, second):
        kind, data = image["src"].split(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(data).startswith(b"<?xml")


def test_nothing_is_loaded_and_nothing_runs(document):
    page = Page(render(document)["html"])
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert all(not name.startswith("on") for name in attributes)
        assert attributes.get("src", "data:").startswith("data:") and "href" not in attributes
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in page.tags)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags


def test_no_table_of_what_was_not_measured(document):
    for found in document["routes"].values():
        found["loads"]["1"] = load((1.2, 1.3, 1.1))
    page = Page(render(document)["html"])
    assert page.tables[0][0] == ["route", "k", "tokens per round", "predicted"]
    assert "no wall clock was compared" in page.text and "(measured" not in page.images()[0]["alt"]


def test_the_wall_clock_is_laid_beside_the_prediction(document):
    document["check"] = {"prompts": {"chat": 8, "json": 7}, "median": 0.0234,
                         "worst": {"route": "json", "k": 4, "error": -0.123},
                         "pooled": [{"k": k, "predicted": 1.5, "measured": 1.25, "error": 0.2} for k in KS]}
    page = Page(render(document)["html"])
    assert page.tables[1] == [["k", "predicted", "measured", "error of prediction"],
                              *([str(k), "1.50×", "1.25×", "+20.0 %"] for k in KS)]
    assert "(chat 8, json 7)" in page.text
    assert "its median is 2.3 %, the worst -12.3 % (json, k = 4)" in page.text


def test_fidelity_and_provenance_are_said(document):
    text = Page(render(document)["html"]).text
    assert ("smol · acceptance recorded 2026-11-29 · round costs recorded 2026-11-28 · "
            "T=1, sampled drafts · 12 prompts a route") in text
    for part in ("a machine, 2 cores", "another machine", "python -m course_lib measure",
                 "chat 12 (3,000 tokens)"):
        assert part in text
    document |= {"fidelity": {"traces": "live", "costs": "recorded"}}
    assert "acceptance live 2026-11-29 · round costs recorded" in Page(render(document)["html"]).text


# The user's own words


def test_names_are_escaped_wherever_they_stand(document):
    document["routes"] = {NASTY: document["routes"]["chat"], "_": document["routes"]["json"]}
    document["meta"]["traces"][0] |= {"draft": NASTY, "command": NASTY}
    made = render(document)
    page = Page(made["html"])
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in Page(render(plain_of(document))["html"]).tags}
    seen = NASTY.replace("\n", " ").replace(" \u202e", "")
    assert page.tables[0][1][0] == seen and seen in page.images()[0]["alt"]
    assert seen in page.text and html.escape(seen) in made["html"] and NASTY not in made["html"]
    lines = [line for line in made["markdown"].split("\n") if "alert" in line and line.startswith("|")]
    assert lines and all(cells(line)[0] == seen for line in lines)
    assert {len(cells(line)) for line in lines} == {6, 7}  # by load, by k
    for line in re.sub(r"(?ms)^```.*?^```", "", made["markdown"]).split("\n"):
        assert not re.search(r"(?<!\\)<script|(?<!\\)\*\*b|(?<!\\)`c|(?<!\\)\]\(http", line), line


def plain_of(document):
    """The same document with names of letters."""
    routes = dict(zip("ab", document["routes"].values(), strict=True))
    return document | {"routes": routes}


@pytest.mark.parametrize("text, shown", [
    ("# a", "\\# a"), ("- a", "\\- a"), ("+ a", "\\+ a"), ("1. a", "1\\. a"), ("2) a", "2\\) a"),
    ("a [1, 2]", "a [1, 2]"), ("a\n\nb", "a b"), ("a\x00b", "a\ufffdb"), 
    ("==", "\\=="), ("---", "\\---"), ("1.33 [2]", "1.33 [2]"), ("-1.8 %", "-1.8 %"),
    ("[a]: b", "[a\\]: b"),
])
def test_markdown_means_nothing_in_a_text(text, shown):
    assert as_markdown([Block("text", text)]) == shown + "\n"


def test_code_cannot_leave_its_fence():
    made = as_markdown([Block("code", "a: 1\n  b: ```\n``` c", ("x",))])
    assert made == "### x\n\n````\na: 1\n  b: ```\n``` c\n````\n"
    assert "</code>x" not in as_html([Block("code", "</code>x", ("x",))])


# Settings


def test_settings_name_what_was_decided(document):
    found = settings(document)
    command = shlex.split(found["vllm"].split("\n", 1)[1].replace("\\\n", ""))
    assert command[:3] == ["vllm", "serve", "big"]
    config = json.loads(command[command.index("--speculative-config") + 1])
    mixes = one_k(document)
    assert [mixes[at]["k"] for at in (1, 4, 16)] == [2, 0, 0]
    assert config == {"method": "draft_model", "model": "small", "num_speculative_tokens": 2,
                      "num_speculative_tokens_per_batch_size": [[1, 1, 2], [2, 1024, 0]],
                      "draft_sample_method": "probabilistic"}
    assert "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3" \
        in found["sglang"]
    assert "decoding_type: DraftTarget\n  max_draft_len: 2\n" in found["tensorrt_llm"]
    assert "-md small.gguf" in found["llama_cpp"] and "--spec-draft-n-max 2" in found["llama_cpp"]
    assert "load 4 to 16: leave speculation off" in found["sglang"]
    for engine in ("sglang", "llama_cpp"):  # they draft greedily
        assert "--draft-mode greedy" in found[engine]
    document["meta"]["traces"][0]["temperature"] = 0.0
    assert '"draft_sample_method": "greedy"' in settings(document)["vllm"]
    assert "--draft-mode" not in settings(document)["sglang"]


def test_the_yaml_and_the_shell_survive_any_name(document):
    document["meta"]["traces"][0] |= {"draft": "a'b \"c\": d", "target": "x; rm -rf y"}
    found = settings(document)
    command = shlex.split(found["vllm"].split("\n", 1)[1].replace("\\\n", ""))
    assert command[2] == "x; rm -rf y" and json.loads(command[4])["model"] == "a'b \"c\": d"
    assert shlex.split(found["sglang"].split("\n", 3)[3].replace("\\\n", ""))[4] == "x; rm -rf y"
    line = next(line for line in found["tensorrt_llm"].split("\n") if "speculative_model" in line)
    assert json.loads(line.split(":", 1)[1]) == "a'b \"c\": d"


def test_off_everywhere_is_said_and_nothing_is_pasted(document):
    for found in document["routes"].values():
        found["loads"] = {at: load((0.9, 0.95, 0.7)) for at in ("1", "4")}
    assert set(settings(document).values()) == {OFF}
    for made in render(document).values():
        assert "leave speculation off" in made and "--speculative" not in made
    assert not any(block.kind == "code" for block in blocks(document))



def test_lookup_has_the_settings_of_lookup(document):
    trace = document["meta"]["traces"][0]
    trace |= {"lookup": [2, 4], "draft": None}
    found = settings(document)
    config = json.loads(shlex.split(found["vllm"].split("--speculative-config")[1])[0])
    assert (config["method"], config["prompt_lookup_min"], config["prompt_lookup_max"]) == ("ngram", 2, 4)
    k = config["num_speculative_tokens"]
    assert f"NGRAM --speculative-num-draft-tokens {k + 1}" in found["sglang"]
    assert f"max_draft_len: {k}" in found["tensorrt_llm"] and "NGram" in found["tensorrt_llm"]
    assert "--spec-type ngram-simple" in found["llama_cpp"] and "-md" not in found["llama_cpp"]
    trace["draft"] = "small"
    assert "does not do" in settings(document)["vllm"] and "-md" in settings(document)["llama_cpp"]


@pytest.mark.parametrize("chosen, ranges", [
    ([(1, 3)], [[1, 1, 3], [2, 1024, 0]]),
    ([(1, 3), (4, 3), (16, 2), (32, 0)], [[1, 4, 3], [5, 16, 2], [17, 1024, 0]]),
    ([(2, 0), (8, 1)], [[1, 2, 0], [3, 8, 1], [9, 1024, 0]]),
    ([(1, 1), (2048, 1)], [[1, 2048, 1], [2049, 2049, 0]]),
])
def test_the_schedule_covers_every_batch_once_and_ends_off(chosen, ranges):
    assert schedule(chosen) == ranges
    assert ranges[0][0] == 1 and ranges[-1][2] == 0
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(ranges))


def test_runs_of_one_k():
    assert groups([(1, 3), (4, 3), (8, 0), (16, 3)]) == [(1, 4, 3), (8, 8, 0), (16, 16, 3)]


# One engine, one k


def test_the_one_k_decodes_the_mix_fastest(document):
    mix = one_k(document)[1]
    seconds = {k: 3000 / chat + 1000 / js for k, chat, js in zip(KS, (1.20, 1.32, 1.1), (1.35, 1.61, 1.83),
                                                                strict=True)}
    best = min(seconds, key=seconds.get)
    assert mix["k"] == best == 2 and mix["speedup"] == pytest.approx(4000 / seconds[best])
    assert mix["low"] < mix["speedup"] < mix["high"]
    assert mix["routes"]["chat"]["loss"] == pytest.approx(0) and mix["routes"]["json"]["best_k"] == 4
    assert mix["routes"]["json"]["loss"] == pytest.approx(1 - 1.61 / 1.83)
    assert "Speed given up against a k of its own: json 12.0 %." in Page(render(document)["html"]).text
    off = one_k(document)[4]  # json would gain at load 4; three quarters of the traffic would not
    assert off["k"] == 0 and off["routes"]["json"]["loss"] == pytest.approx(1 - 1 / 1.4)


def test_the_interval_of_the_mix_is_that_of_drawn_routes(document):
    mix, chance = one_k(document)[1], np.random.default_rng(0)
    draws = 4000 / (3000 / chance.normal(1.32, 0.05 / 1.96, 100_000)
                    + 1000 / chance.normal(1.61, 0.05 / 1.96, 100_000))
    assert (mix["high"] - mix["low"]) / 2 == pytest.approx(1.96 * draws.std(), rel=0.02)


def test_one_route_is_its_own_mix(document):
    del document["routes"]["json"]
    mix = one_k(document)
    assert [mix[at]["k"] for at in (1, 4, 16)] == [2, 0, 0]
    assert "There is one route" in Page(render(document)["html"]).text


def test_off_for_the_mix_still_says_what_one_route_could_do(document):
    """json gains at load 1, but is one part in a hundred of a traffic that loses."""
    document["routes"]["chat"] = route({"1": load((0.9, 0.8, 0.7))}, tokens=99_000)
    document["routes"]["json"]["loads"].pop("4")
    document["routes"]["json"]["loads"].pop("16")
    assert set(settings(document).values()) == {OFF}
    text = Page(render(document)["html"]).text
    assert "serves all these routes: leave speculation off. For one that serves only the route json:" in text
    assert "--speculative-num-steps 4 " in text


# Little is known


def test_one_prompt_has_no_interval_and_stays_off():
    document = sweep({"a": route({"1": load((1.2, 1.5, 1.3), half=None)}, prompts=1)})
    made = render(document)
    page = Page(made["html"])
    assert page.tables[0][2][3] == "1.50×" and "nan" not in page.text.lower() and "None" not in page.text
    assert "One prompt gives no interval (a)" in page.text
    assert set(settings(document).values()) == {OFF}
    assert len(page.images()) == 1  # one load has no curve over loads


def test_a_route_of_one_prompt_keeps_the_mix_off(document):
    document["routes"]["json"]["loads"]["1"] = load((1.35, 1.61, 1.83), half=None)
    mix = one_k(document)[1]
    assert mix["k"] == 0 and mix["low"] is None and mix["speedup"] > 1


def test_what_is_not_a_number_is_a_dash(document, tmp_path):
    chat = document["routes"]["chat"]["loads"]["1"]
    chat["table"][0] |= {"predicted": float("nan"), "predicted_low": float("nan"), "measured": float("inf")}
    chat |= {"adaptive": float("nan"), "iid": {"best_k": 0, "speedup": 1.0}}
    paths = write(document, tmp_path / "out")
    page = Page(paths["html"].read_text(encoding="utf-8"))
    assert page.tables[0][1][3] == page.tables[0][1][5] == "–" and page.tables[1][1][4:] == ["–", "off"]
    assert "nan" not in page.text.lower()
    found = json.loads(paths["json"].read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert found["routes"]["chat"]["loads"]["1"]["table"][0]["predicted"] is None


def test_many_routes_and_loads_are_all_in_the_tables():
    loads = {str(2**i): load((1.2, 1.3, 1.1)) for i in range(9)}
    document = sweep({f"route {i}": route(loads, tokens=100 + i) for i in range(20)})
    page = Page(render(document)["html"])
    assert len(page.tables[1]) == 1 + 20 * 9
    assert "route 19 " in page.images()[0]["alt"] and "route 3 " not in page.images()[0]["alt"]


def test_few_prompts_and_prompts_left_out_are_said(document):
    document["routes"]["json"]["prompts"] = 3
    said = render(document | {"notes": ["Prompts: a.jsonl: left out line 4."]})["markdown"]
    assert "Few prompts (json 3)" in said and "left out line 4" in said
    document["routes"]["json"]["prompts"] = 12
    assert "Few prompts" not in render(document)["markdown"]


def test_the_formula_is_compared_with_what_the_replay_finds_not_with_the_decision(document):
    document["routes"]["chat"]["loads"] = {"1": load((1.02, 1.04, 0.9))}
    said = Page(render(document)["html"]).text
    assert "the replay of the text finds k = 2, 1.04× [0.99, 1.09], and by its interval off" in said
    assert "the replay of the text finds k = 4, 1.83×." in said


def test_an_empty_sweep_is_refused(document):
    with pytest.raises(ValueError, match="nothing to report"):
        render(document | {"routes": {}})
    document["routes"]["chat"]["loads"] = {}
    with pytest.raises(ValueError, match="nothing to report"):
        render(document)


# Files


def test_three_files_that_say_the_same(document, tmp_path):
    paths = write(document, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.json",
                                                                         "report.md"]
    made = render(document)
    assert paths["html"].read_text(encoding="utf-8") == made["html"]
    assert paths["markdown"].read_text(encoding="utf-8") == made["markdown"]
    found = json.loads(paths["json"].read_text(encoding="utf-8"))
    assert found["routes"] == document["routes"] and found["settings"] == settings(document)
    assert found["one_k"]["1"]["k"] == 2
    assert render(json.loads(json.dumps(document))) == made  # the same bytes from the same numbers


def test_a_failed_write_leaves_the_old_report(document, tmp_path, monkeypatch):
    paths = write(document, tmp_path)
    before = paths["html"].read_text(encoding="utf-8")

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(report.os, "replace", full)
    with pytest.raises(OSError):
        write(document, tmp_path)
    assert paths["html"].read_text(encoding="utf-8") == before
    assert not list(tmp_path.glob("*.part"))


def test_a_bad_place_is_refused(document, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file: --out names a folder"):
        write(document, tmp_path / "file")
    with pytest.raises(ValueError, match="there is no folder"):
        write(document, tmp_path / "a" / "b")


# The command


@pytest.fixture(scope="module")
def pair():
    target = tiny_llama(seed=3)
    pair = tiny_pair(target, with_noise(target, 0.3))
    pair.encode = lambda messages: [1 + ord(letter) % 19 for letter in messages[-1]["content"]][-40:]
    return pair


@pytest.fixture
def invoke(monkeypatch, pair):
    monkeypatch.setattr("course_lib.pairs.load_pair", lambda *_: pair)
    return lambda *arguments: CliRunner().invoke(cli.app, ["report", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"question {i}", "route": "<b>a"}) for i in range(4)))
    return path


def test_prompts_in_one_command_become_a_report(invoke, file, tmp_path):
    out = tmp_path / "report"
    done = invoke("--prompts", file, "--out", out, "--new-tokens", 12, "--ks", "1,2")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.json", "report.md"]
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert done.stdout.startswith(decision("<b>a", found["routes"]["<b>a"]) + "\n")
    assert str(out / "report.html") in done.stdout and "question" not in done.stdout
    assert found["fidelity"] == {"traces": "live", "costs": "live"} and found["ks"] == [1, 2]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;a" in page and "<b>a" not in page


def test_a_trace_and_costs_need_no_model(invoke, monkeypatch, pair, tmp_path):
    prompts = [Prompt(str(i), "a", "own", [{"role": "user", "content": f"text {i * i}"}]) for i in range(3)]
    measure_trace(pair, prompts, Sampling(1.0), 12).save(tmp_path / "trace.parquet")
    CostTable({load: RoundCosts(0.1, {1: 1, 3: 1.1 * load}) for load in (1, 8)},
              {"machine": "m", "date": "2026-11-29", "command": "c"}).save(tmp_path / "costs.json")
    monkeypatch.setattr("course_lib.pairs.load_pair", pytest.fail)
    done = invoke(tmp_path / "trace.parquet", "--costs", tmp_path / "costs.json", "--ks", "1,2",
                  "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert list(found["routes"]["a"]["loads"]) == ["1", "8"] and found["one_k"]["8"]["k"] == 0
    assert found["fidelity"] == {"traces": "recorded", "costs": "recorded"}
    assert found == json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("arguments, said", [
    (["nothing.parquet", "--out", "{}/out"], "nothing.parquet"),
    (["--prompts", "nothing.jsonl", "--out", "{}/out"], "nothing.jsonl"),
    (["--prompts", "{}/mine.jsonl", "--out", "{}/mine.jsonl"], "is a file: --out names a folder"),
    (["--prompts", "{}/mine.jsonl", "--out", "{}/a/b"], "make it first"),
    (["--prompts", "{}/mine.jsonl", "--out", "{}/out", "--ks", "0"], "ks"),
    (["--prompts", "{}/mine.jsonl", "--out", "{}/out", "--costs", "nothing.json"], "nothing.json"),
])
def test_bad_input_is_one_sentence_before_any_work(invoke, monkeypatch, file, tmp_path, arguments, said):
    monkeypatch.setattr("course_lib.pairs.load_pair", pytest.fail)
    done = invoke(*(argument.format(tmp_path) for argument in arguments))
    assert (done.exit_code, done.stdout) == (2, "") and not (tmp_path / "out").exists()
    assert done.stderr.startswith("report: ") and done.stderr.count("\n") == 1 and said in done.stderr
