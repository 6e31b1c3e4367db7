"""The k explorer, in a browser, says what course_lib says: the same numbers to 1e-9, the same refusals."""

import dataclasses
import itertools
import json
import math
import random
import re
from pathlib import Path

import pytest
from chromium import Chromium, find

from course_lib.course import __file__ as course
from course_lib.engines import read_metrics
from course_lib.roofline import DEVICES, MODELS, forward_seconds, roofline_costs, scaled_costs
from course_lib.theory import expected_tokens

EXPLORER = Path(course).with_name("web") / "explorer.html"
FIXTURES = Path(__file__).with_name("fixtures") / "engines"
KS = range(1, 17)

pytestmark = [pytest.mark.site, pytest.mark.skipif(not find(), reason="there is no Chromium")]

# What a person does, without the hands: choose, fill in, and read the table and the sentence.
READ = """
(state) => {
  for (const [name, value] of Object.entries(state)) {
    const field = document.getElementById(name);
    if (field) field.value = value;
    else document.querySelector(`input[name="${name}"][value="${value}"]`).checked = true;
  }
  document.getElementById("form").dispatchEvent(new Event("input"));
  const said = document.getElementById("decision");
  return {
    rows: [...document.querySelectorAll("#rows tr")].map(
      (row) => [...row.querySelectorAll("data")].map((cell) => cell.value)),
    decision: said.textContent, k: said.dataset.k, speedup: said.dataset.speedup,
    even: document.getElementById("even").textContent, hidden: document.getElementById("figures").hidden,
    errors: [...document.querySelectorAll(".error")].map((e) => e.textContent).filter(Boolean),
    read: [...document.querySelectorAll("#read dd")].map((e) => e.textContent),
    notes: document.getElementById("read-notes").textContent,
  };
}
"""


@pytest.fixture(scope="module")
def browser():
    browser = Chromium()
    yield browser
    browser.close()


@pytest.fixture
def page(browser):
    browser.size(1000)
    browser.goto(EXPLORER.as_uri())
    return browser


def read(page, *states):
    found = page.run(f"{json.dumps(states)}.map({READ})")
    assert page.errors == []
    return found


def counters(rounds, drafted, accepted, positions=()):
    values = {"drafts": rounds, "draft_tokens": drafted, "accepted_tokens": accepted}
    lines = [f'vllm:spec_decode_num_{name}_total{{engine="0",model_name="m"}} {value!r}'
             for name, value in values.items()]
    lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",position="{i}"}} {value!r}'
              for i, value in enumerate(positions)]
    return "\n".join(lines) + "\n"


def same_table(found, costs, alpha):
    assert len(found["rows"]) == len(KS)
    for k, row in zip(KS, found["rows"], strict=True):
        tokens, cost, speedup, break_even = map(float, row)
        assert tokens == pytest.approx(expected_tokens(alpha, k), rel=1e-9)
        assert cost == pytest.approx(costs.break_even_tokens(k), rel=1e-9)
        assert speedup == pytest.approx(costs.speedup(expected_tokens(alpha, k), k), rel=1e-9)
        assert break_even == pytest.approx(costs.break_even_alpha(k), abs=1e-9, nan_ok=True)
    k, speedup = costs.best_k(alpha, max(KS))
    assert int(found["k"]) == k and float(found["speedup"]) == pytest.approx(speedup, rel=1e-9)
    assert re.match(f"Speculate with k = {k} " if k else "Do not speculate ", found["decision"])


def test_measured_costs_at_every_load(page):
    rng = random.Random(0)
    names = ("alpha", "c", "extra", "overhead", "load")
    grid = [dict(zip(names, each, strict=True), ridge=295.2)
            for each in itertools.product((0, 0.8, 0.999999, 1), (0, 0.1), (0, 0.02), (0, 0.3), (1, 64))]
    grid += [{"alpha": rng.random(), "c": rng.random() ** 3, "extra": rng.random() * 0.1,
              "overhead": rng.random() * 0.5, "ridge": rng.uniform(1, 500), "load": rng.randint(1, 300)}
             for _ in range(60)]
    best = set()
    for state, found in zip(grid, read(page, *grid), strict=True):
        best.add(int(found["k"]))
        costs = scaled_costs(state["c"], state["load"], state["extra"], state["overhead"], state["ridge"])
        same_table(found, costs, state["alpha"])
    assert {0, 1, 16} < best  # off, the least, the most and some between


def test_data_sheet_costs_at_every_load(page):
    rng = random.Random(1)
    for target, draft, device in itertools.product(MODELS, ("llama-3.2-1b", "smollm2-135m"), DEVICES):
        state = {"costs": "roofline", "target": target, "draft": draft, "device": device,
                 "alpha": rng.random(), "context": rng.choice((0, 200, 16_000)),
                 "overhead": rng.random() * 0.3, "load": rng.choice((1, 8, 64, 300))}
        chip, context = DEVICES[device], state["context"]
        costs = roofline_costs(MODELS[target], MODELS[draft], chip, state["load"], context, max(KS))
        one = forward_seconds(MODELS[target], chip, context=context)
        costs = dataclasses.replace(costs, overhead=state["overhead"] * one)
        same_table(read(page, state)[0], costs, state["alpha"])


def test_a_forward_takes_as_long_in_both_regimes(page):
    sizes = list(itertools.product((1, 64), (1, 5, 200), (0, 100, 16_000)))  # width 200: attention computes
    for name, chip in itertools.product(("llama-3.1-70b", "smollm2-135m"), ("a100", "l4")):
        found = page.run(f"{json.dumps(sizes)}.map((size) => "
                         f"forwardSeconds(MODELS['{name}'], DEVICES['{chip}'], ...size))")
        want = [forward_seconds(MODELS[name], DEVICES[chip], *size) for size in sizes]
        assert found == pytest.approx(want, rel=1e-9)


def test_the_load_named_is_the_first_at_which_nothing_pays(page):
    state = {"alpha": 0.7, "c": 0.1, "extra": 0.005, "overhead": 0.05, "ridge": 295, "load": 1}
    load = int(re.search(r"With (\d+) requests together none does", read(page, state)[0]["even"])[1])
    best = [scaled_costs(0.1, each, 0.005, 0.05, 295).best_k(0.7, 16)[0] for each in range(1, load + 1)]
    assert best[-1] == 0 and all(best[:-1])


@pytest.mark.parametrize("name", ["vllm_v1.txt", "vllm_v1_openmetrics.txt", "vllm_cliff.txt"])
def test_a_servers_metrics_are_read_alike(page, name):
    same_reading(page, (FIXTURES / name).read_text(encoding="utf-8"))


def test_counters_are_read_alike(page):
    rng = random.Random(2)
    for _ in range(40):
        k, rounds = rng.randint(1, 12), rng.randint(1, 100_000)
        positions = [rounds]
        for _ in range(k):
            positions.append(rng.randint(0, positions[-1]))
        drafted = rng.choice((k * rounds, rng.randint(max(sum(positions[1:]), 1), max(k * rounds, 1))))
        same_reading(page, counters(rounds, drafted, sum(positions[1:]), positions[1:]))
    same_reading(page, counters(800, 2400, 1600))  # positions left out
    same_reading(page, counters(1000, 2300, 1100))  # k varies
    same_reading(page, counters(500, 1500, 0, (0, 0, 0)))  # nothing was accepted


def listed(value):
    return list(value) if isinstance(value, list | tuple) else [value]


def same_reading(page, text):
    ours = read_metrics(text)
    theirs = page.run(f"readMetrics({json.dumps(text)})")
    names = {"k": "k", "rounds": "rounds", "drafted": "drafted", "accepted": "accepted", "alpha": "alpha",
             "tokensPerRound": "tokens_per_round", "prefixRate": "prefix_rate", "perPosition": "per_position",
             "conditional": "conditional"}
    for theirs_name, ours_name in names.items():
        want = getattr(ours, ours_name)
        for one, other in zip(listed(theirs[theirs_name]), listed(want), strict=True):
            assert one == (other if other is None else pytest.approx(other, rel=1e-9, abs=1e-9)), theirs_name
    for word in ("k varies", "cliff to zero", "positions add up"):
        assert any(word in said for said in ours.warnings) == any(word in said for said in theirs["warnings"])
    found = read(page, {"acceptance": "counters", "metrics": text})[0]
    assert found["errors"] == [] and len(found["read"]) == (9 if ours.per_position else 7)
    assert float(found["rows"][0][0]) == pytest.approx(1 + ours.alpha, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Paste the text"),
        ("hello", "These are no metrics of vLLM"),
        ('vllm:generation_tokens_total{model_name="m"} 5', "does not speculate"),
        (counters(10, 30, 40), "more than it drafts"),
        (counters(0, 0, 0), "no traffic"),
        (counters(10, 30, math.nan), "must be 0 or more, and finite"),
        (counters(10, 30, 12, (5, 6, 1)), "More rounds accepted position 2 than position 1"),
        (counters(10, 90, 12, (5, 4, 3)), "more than the 3 positions"),
        (counters(10, 30, 12) * 2, "two scrapes"),
        (counters(10, 30, 12) + counters(5, 15, 5).replace('"m"', '"n"'), "several models here: m, n"),
        ('vllm:spec_decode_num_drafts_total{model_name="m} 5', "Line 1 is no line of metrics"),
        (counters(10, 30, 12).replace("num_accepted_tokens_total", "x"), "accepted_tokens_total is missing"),
        ((FIXTURES / "vllm_v0.txt").read_text(encoding="utf-8"), "This is vLLM V0"),
        ((FIXTURES / "two_models.txt").read_text(encoding="utf-8"), "several models here"),
    ],
)
def test_text_that_cannot_be_read_gets_one_sentence(page, text, sentence):
    found, after = read(page, {"acceptance": "counters", "metrics": text}, {"acceptance": "alpha"})
    assert len(found["errors"]) == 1 and sentence in found["errors"][0]
    assert found["hidden"] and found["decision"] == f"Nothing is computed yet. {found['errors'][0]}"
    assert not after["hidden"] and after["errors"] == [] and len(after["rows"]) == 16


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"alpha": "1.2"}, "α must be a number from 0 to 1."),
        ({"alpha": "abc"}, "α must be a number from 0 to 1."),
        ({"c": "-1"}, "Draft cost c must be a number from 0 to 100."),
        ({"extra": ""}, "Verify cost of each extra token must be a number from 0 to 10."),
        ({"ridge": "0"}, "Ridge must be a number from 1 to 1000000."),
        ({"overhead": "1e300"}, "Overhead of a round must be a number from 0 to 100."),
        ({"load": "2.5"}, "Concurrency must be a whole number."),
        ({"costs": "roofline", "context": "-3"}, "Context must be a number from 0 to 10000000."),
    ],
)
def test_a_bad_number_gets_one_sentence(page, state, sentence):
    found = read(page, state)[0]
    assert found["errors"] == [sentence] and found["hidden"]
    assert found["decision"] == f"Nothing is computed yet. {sentence}"
    [field] = [name for name in state if name != "costs"]
    assert page.run(f'document.getElementById("{field}").getAttribute("aria-invalid")') == "true"
    mended = read(page, {field: "1"})[0]
    assert mended["errors"] == [] and not mended["hidden"]


def test_a_field_that_is_not_shown_spoils_nothing(page):
    found = read(page, {"c": "-1", "costs": "roofline"})[0]
    assert found["errors"] == [] and not found["hidden"]


def test_the_keyboard_moves_sliders(page):
    before = page.run('document.getElementById("decision").textContent')
    page.run('document.getElementById("alpha-slider").focus()')
    for _ in range(5):
        page.press("ArrowRight")
    assert page.run('document.getElementById("alpha").value') == "0.75"
    page.press("Tab")
    assert page.run("document.activeElement.id") == "alpha"
    assert page.run('document.getElementById("decision").textContent') != before


def test_shapes_and_chips_are_those_of_the_package(page):
    models, devices = page.run("MODELS"), page.run("DEVICES")
    assert models.keys() == MODELS.keys() and devices.keys() == DEVICES.keys()
    for name, model in MODELS.items():
        assert models[name] == {"name": model.name, "layers": model.layers, "hidden": model.hidden,
                                "ffn": model.ffn, "heads": model.heads, "kvHeads": model.kv_heads,
                                "headDim": model.head_dim, "vocab": model.vocab}
    for name, device in DEVICES.items():
        assert devices[name] == {"name": device.name, "bandwidth": device.bandwidth, "flops": device.flops,
                                 "bytes": device.bytes_per_number}


def test_nothing_is_loaded(page):
    assert {address.split(":")[0] for address in page.requests} <= {"file", "data"}
    assert len([address for address in page.requests if address.startswith("file:")]) == 1
