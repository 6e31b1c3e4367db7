"""Protects the measurement: its JSON, table, picture and command, from bad input to the file it leaves."""

import json

import pytest
import torch
from tiny import letter_pair
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib import bench
from course_lib.fetch import TARGET_FOLDER
from course_lib.intervals import mean_interval
from course_lib.measure import banner, check_arguments, choose_prompts, document, numbers, run_measure, show
from course_lib.plots import tokens_per_round_figure
from course_lib.prompts import Prompt
from course_lib.replay import expected_rounds, tokens_per_round
from course_lib.sampling import GREEDY, Sampling
from course_lib.scoring import batches
from course_lib.theory import expected_tokens
from course_lib.traces import Trace, measure_trace


@pytest.fixture(scope="module")
def pair():
    return letter_pair()


def prompts_of(**counts):
    return [Prompt(f"{route}-{i}", route, "own", [{"role": "user", "content": f"{route} {i * i}"}])
            for route, count in counts.items() for i in range(count)]


@pytest.fixture(scope="module")
def trace(pair):
    return measure_trace(pair, prompts_of(chat=3, code=4, json=1), Sampling(1.0, top_p=0.9), 12, seed=1)


@pytest.fixture
def invoke(monkeypatch, pair):
    monkeypatch.setattr("course_lib.pairs.load_pair", lambda *_: pair)
    return lambda *arguments: CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [{"prompt": f"question {i}", "route": "ab"[i % 2]} for i in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


# The document


def test_the_document_has_the_keys_that_others_read(trace):
    found = json.loads(json.dumps(document(trace, (1, 2, 12)), allow_nan=False))
    assert list(found) == ["pair", "fidelity", "device", "dtype", "temperature", "routes", "settings"]
    assert [found[name] for name in list(found)[:5]] == ["tiny", "live", "cpu", "float64", 1.0]
    assert list(found["routes"]) == ["chat", "code", "json"]
    for values in found["routes"].values():
        assert list(values) == ["prompts", "tokens", "alpha", "alpha_interval", "tokens_per_round"]
        assert list(values["alpha"]) == ["overlap", "coupled", "greedy_match"]
        assert list(values["tokens_per_round"]) == ["1", "2", "12"]
        for interval in values["tokens_per_round"].values():
            assert list(interval) == ["mean", "low", "high"]
    assert document(trace, (1,), "recorded")["fidelity"] == "recorded"


def test_its_numbers_are_those_of_the_trace(trace):
    values = document(trace, (1, 4))["routes"]["code"]
    rows = trace.rows[trace.rows.route == "code"]
    assert (values["prompts"], values["tokens"]) == (4, len(rows))
    for name, column in (("overlap", "overlap"), ("coupled", "accept"), ("greedy_match", "match")):
        assert values["alpha"][name] == pytest.approx(rows[column].astype(float).mean(), abs=1e-6)
    low, high = values["alpha_interval"]
    assert low < values["alpha"]["overlap"] < high
    if rows.groupby("prompt").size().nunique() == 1:
        interval = mean_interval(rows.groupby("prompt").overlap.mean())
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-6)
    rounds = sum(expected_rounds(accept, 4) for accept in trace.accepts("code"))
    assert values["tokens_per_round"]["4"]["mean"] == pytest.approx(len(rows) / rounds)


def test_at_temperature_0_the_three_alphas_are_one(pair):
    alpha = run_measure(pair, prompts_of(chat=3), GREEDY, 8)["routes"]["chat"]["alpha"]
    assert alpha["overlap"] == alpha["coupled"] == alpha["greedy_match"] > 0


def test_one_prompt_has_no_interval(trace, capsys):
    found = document(trace)
    one = found["routes"]["json"]
    assert one["alpha_interval"] == [None, None]
    assert one["tokens_per_round"]["1"]["low"] is one["tokens_per_round"]["1"]["high"] is None
    show(found)
    assert "One prompt gives no interval" in capsys.readouterr().out


def test_the_table_has_the_best_route_first_and_fits_any_number_of_ks(trace, capsys):
    found = document(trace, range(1, 13))
    show(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tiny · live · cpu float64 · T=1 top-p 0.9 · 1–4 prompts a route, 12 tokens ·")
    assert lines[2].split() == ["route", "α", *(f"k={k}" for k in range(1, 13))]
    order = [line.split()[0] for line in lines[3:6]]
    assert order == sorted(found["routes"], key=lambda route: -found["routes"][route]["alpha"]["overlap"])
    row = next(line for line in lines if line.startswith("code"))
    twelfth = found["routes"]["code"]["tokens_per_round"]["12"]
    half = (twelfth["high"] - twelfth["low"]) / 2
    assert row.rstrip().endswith(f"{twelfth['mean']:.2f} ±{half:.2f}".replace("±0.", "±."))


def test_the_banner_names_what_changes_the_numbers(trace):
    found = document(trace)
    found["settings"] |= {"draft_mode": "greedy", "top_k": 5, "top_p": 1.0}
    assert "T=1 top-k 5 greedy draft ·" in banner(found)
    found["temperature"] = 0.0
    assert "T=0 top-k 5 ·" in banner(found)


def test_near_ties_and_cut_prompts_are_said(trace, capsys):
    found = document(trace)
    found["settings"] |= {"near_ties": 3, "cut": ["chat-1"]}
    show(found)
    out = capsys.readouterr().out
    assert "3 near-ties" in out and "Cut to fit the context: chat-1." in out


# The picture


def test_the_figure_says_its_numbers_and_can_be_read_in_grey(trace):
    table = tokens_per_round(trace, range(1, 9))
    figure, alt = tokens_per_round_figure(table)
    axes = figure.axes[0]
    solid = [line for line in axes.lines if line.get_marker() not in ("", "None")]
    assert len({line.get_marker() for line in solid}) == len({line.get_color() for line in solid}) == 3
    assert len({str(line.get_linestyle()) for line in solid}) == 3
    for line, (route, rows) in zip(solid, table.groupby("route", sort=False), strict=True):
        assert line.get_label() == route and list(line.get_ydata()) == list(rows["mean"])
        first, last = rows["mean"].iloc[0], rows["mean"].iloc[-1]
        formula = expected_tokens(first - 1, 8)
        assert f"{route} goes from {first:.2f} to {last:.2f} (formula {formula:.2f})" in alt
    assert "chat, code and json, k from 1 to 8" in alt


def test_the_figure_claims_no_interval_for_one_prompt(pair, trace):
    one = measure_trace(pair, prompts_of(chat=1), GREEDY, 8)
    _, alt = tokens_per_round_figure(tokens_per_round(one, (1, 2)))
    assert "One prompt gives no interval" in alt and "bands" not in alt
    _, alt = tokens_per_round_figure(tokens_per_round(trace, (1, 2)))
    assert "intervals over up to 4 prompts (none over a single one)" in alt


# The command


def test_measure_prints_one_json_document_and_leaves_trace_and_picture(invoke, file, tmp_path):
    done = invoke("measure", "--prompts", file, "--new-tokens", 6, "--ks", "4,1,4", "--temperature", 0.7,
                  "--draft-mode", "greedy", "--limit", 2, "--out", tmp_path / "t", "--figure",
                  tmp_path / "f.png", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert {route: values["prompts"] for route, values in found["routes"].items()} == {"a": 2, "b": 2}
    assert list(found["routes"]["a"]["tokens_per_round"]) == ["1", "4"]
    for said in ("the target writes, the draft reads: 4/4", "Tokens per round against k for a and b"):
        assert said in done.stderr
    assert document(Trace.load(tmp_path / "t"), (1, 4)) == found
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"mine.jsonl", "t", "f.png"}


def test_measure_prints_a_table(invoke, file):
    done = invoke("measure", "--prompts", file, "--new-tokens", 4, "--routes", "b")
    assert "tiny · live · cpu float64 · T=0 · 3 prompts a route, 4 tokens" in done.stdout
    assert "k=8" in done.stdout and "±" in done.stdout


@pytest.mark.parametrize("what, new_tokens, seed", [
    ("new tokens", 0, 0), ("seed", 1, -1), ("seed", 1, 2**63)])
def test_numbers_that_cannot_be_are_refused(what, new_tokens, seed):
    with pytest.raises(ValueError, match=f"^{what} must be"):
        check_arguments(new_tokens, seed, None, None)


@pytest.mark.parametrize("arguments, error", [
    (["--ks", "1,two"], "--ks is '1,two': write whole numbers"),
    (["--limit", "0"], "limit must be 1 or more"),
    (["--routes", "poem"], "mine.jsonl has no route 'poem': it has a, b"),
    (["--temperature", "-1"], "temperature must be 0"),
    (["--top-p", "0"], "top_p must lie in"),
    (["--draft-mode", "beam"], '"sample" or "greedy"'),
    (["--new-tokens", "250"], "prompt mine.jsonl:1 has 10 tokens, and with 250 new ones"),
    (["--target", "x"], "--target and --draft go together"),
    (["--out", "nowhere/at/all"], "there is no folder"),
    (["--out", "."], "is a directory: name a file to write"),
    (["--out", "x" * 255], "cannot be written"),
    (["--out", "/dev/null"], "not a file"),
    (["--figure", "."], "PNG"),
    (["--figure", "f.jpg"], "ends in .png, not f.jpg"),
    (["--batch", "0"], "batch must be 1 or more"),
    (["--routes", ""], "has no route ''"),
    (["--target", "", "--draft", "x"], "--target is empty"),
    (["--target", "x", "--draft", " "], "--draft is empty"),
    (["--prompts", "none.jsonl"], "there is no file none.jsonl"),
    (["--prompts", "."], ". is a directory"),
])
def test_bad_input_is_one_line_and_costs_no_forward(invoke, file, pair, monkeypatch, arguments, error):
    monkeypatch.setattr(type(pair.target), "forward", lambda *_, **__: pytest.fail("it computed first"))
    monkeypatch.setattr(type(pair.target.model), "forward", lambda *_, **__: pytest.fail("it computed first"))
    done = invoke("measure", "--prompts", file, *arguments, "--json")
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith("measure: ") and error in done.stderr and done.stderr.count("\n") == 1


def test_a_bad_line_stops_it_unless_it_may_be_skipped_and_cut_cuts(invoke, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"prompt": "one"}\n{"text": "two"}\n{"prompt": "' + "long" * 10 + '"}\n')
    assert "x.jsonl line 2 has neither" in invoke("measure", "--prompts", file).stderr
    done = invoke("measure", "--prompts", file, "--skip-bad", "--new-tokens", 230, "--cut", "--json")
    assert done.exit_code == 0 and "left out line 2" in done.stderr
    assert json.loads(done.stdout)["settings"]["cut"] == ["x.jsonl:3"]


def test_choosing_prompts(file):
    assert [prompt.id for prompt in choose_prompts(file, ["b", "a"], 1)] == ["mine.jsonl:2", "mine.jsonl:1"]
    assert [prompt.id for prompt in choose_prompts(file, ["b", "b"], 1)] == ["mine.jsonl:2"]
    assert len(choose_prompts(None, ["json", "json"], 3)) == 3
    held_out = choose_prompts(None, ["json"], 3)
    assert [(prompt.route, prompt.split) for prompt in held_out] == [("json", "heldout")] * 3
    assert numbers(" 8, 1,8 ", "--ks") == [1, 8]


# The benchmark


def test_the_benchmark_compares_the_same_thing(invoke, pair, monkeypatch):
    found = bench.onepass(pair, prompts_of(chat=5), GREEDY, new_tokens=10, batch=3, ks=(1, 2, 5))
    for tokens in found["tokens_per_round"].values():
        assert tokens["decoded"] == pytest.approx(tokens["replayed"], abs=1e-12)
    seconds = found["seconds"]
    assert len(seconds["one_pass_runs"]) == 3 and list(seconds["decoding"]) == ["1", "2", "5"]
    assert found["ratio"] == pytest.approx(seconds["one_pass"] / sum(seconds["decoding"].values()))
    assert 0 < found["ratio_without_writing"] < found["ratio"]
    assert f"ratio {found['ratio']:.3f}" in bench.describe(found)
    monkeypatch.setattr(bench, "KS", (1,))
    assert invoke("bench", "nothing").exit_code == 2
    done = invoke("bench", "onepass", "--limit", 1, "--new-tokens", 4, "--json")
    assert json.loads(done.stdout)["prompts"] == 3


# The embedded pair


def test_the_embedded_pair_is_measured(tmp_path, smol):
    torch.manual_seed(0)
    found = run_measure(smol, choose_prompts(None, ["code"], 2), GREEDY, 12, out=tmp_path / "t")
    assert found["pair"] == "smol" and found["routes"]["code"]["prompts"] == 2
    assert found["settings"]["near_ties"] == 0
    means = [each["mean"] for each in found["routes"]["code"]["tokens_per_round"].values()]
    assert 1 < means[0] <= means[-1]
    assert Trace.load(tmp_path / "t").meta["target"] == TARGET_FOLDER.name


def test_a_batch_of_none_is_refused_where_batches_are_made():
    with pytest.raises(ValueError, match="batch must be 1 or more"):
        list(batches([3, 4], 0))
