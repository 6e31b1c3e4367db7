"""Protects the decision: predictions against every outcome enumerated, decisions against their rule, and the
check against runs whose speedup is known."""

import json
import math
from copy import copy
from itertools import product

import numpy as np
import pandas as pd
import pytest
from tiny import letter_pair

from course_lib import decision_commands
from course_lib.__main__ import main
from course_lib.costs import CostTable, RoundCosts
from course_lib.intervals import ratio_interval
from course_lib.lookup import LOOKUP, MODEL, NOTHING, Lookup
from course_lib.measure import choose_prompts
from course_lib.prompts import Prompt
from course_lib.replay import tokens_per_round
from course_lib.sampling import Sampling
from course_lib.sweep import KS, TABLE, Text, add_measured, check, costs_for, decide, predict, texts_of
from course_lib.tables import show, sweep_table
from course_lib.theory import expected_tokens
from course_lib.traces import Trace, add_lookup, measure_trace
from course_lib.wallclock import choose

COSTS = RoundCosts(0.3, {1: 1.0, 2: 1.1, 3: 1.25, 5: 1.4, 9: 2.0}, overhead=0.2)
TABLE_OF_COSTS = CostTable({1: COSTS, 8: RoundCosts(0.5, {1: 1.0, 9: 9.0})}, {"machine": "m", "target": "T"})
META = {"pair": "p", "target": "T", "draft": "D", "temperature": 1.0, "top_k": 0, "top_p": 1.0,
        "draft_mode": "sample", "new_tokens": None, "machine": "m", "date": "2026-11-29"}


def trace(texts, **meta):
    """A trace from {(route, prompt): chances}."""
    rows = [(route, prompt, t, a) for (route, prompt), accept in texts.items() for t, a in enumerate(accept)]
    return Trace(pd.DataFrame(rows, columns=["route", "prompt", "t", "accept"]), META | meta)


def random_texts(seed, lengths, route="chat"):
    random = np.random.default_rng(seed)
    return {(route, f"{route}{i}"): random.random(length).round(3) for i, length in enumerate(lengths)}


def seconds_by_enumeration(accept, k, room, costs, drafter=None):
    """Expected time of one text: every outcome of its coins, round by round as the decoder runs them."""
    drafter = [MODEL] * (len(accept) + k) if drafter is None else [*drafter, *[drafter[-1]] * k]
    total = 0.0
    for coins in product([True, False], repeat=len(accept)):
        chance = math.prod(a if coin else 1 - a for a, coin in zip(accept, coins, strict=True))
        t, seconds = 0, 0.0
        while t < len(coins):
            drafts = min(k, room - 1 - t)
            if NOTHING in drafter[t:t + drafts]:
                drafts = drafter[t:].index(NOTHING)
            seconds += drafter[t:t + drafts].count(MODEL) * costs.t_draft + costs.verify_seconds(drafts + 1)
            seconds += costs.overhead if drafts else 0.0
            kept = 0
            while kept < drafts and t + kept < len(coins) and coins[t + kept]:
                kept += 1
            t += kept + 1
        total += chance * seconds
    return total


# The prediction


@pytest.mark.parametrize("room", [0, 3])  # asked for as many tokens as it has, or ended before
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_predicted_seconds_equal_all_outcomes_added_up(k, room):
    texts = [Text("chat", str(n), np.random.default_rng(n).random(n), n + room) for n in (1, 2, 5, 8)]
    found = predict(texts, COSTS, k)
    for text, seconds, plain in zip(texts, found.seconds, found.plain, strict=True):
        expected = seconds_by_enumeration(text.accept, k, text.room, COSTS)
        assert seconds == pytest.approx(expected, rel=1e-12)
        assert plain == pytest.approx(len(text.accept) * 1.0)


@pytest.mark.parametrize("room", [0, 3])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("kinds", [(MODEL, LOOKUP), (NOTHING, LOOKUP), (NOTHING, MODEL, LOOKUP)])
def test_a_guess_by_lookup_costs_its_verify_and_silence_ends_the_drafts(kinds, k, room):
    for n in (1, 3, 7):
        random = np.random.default_rng(n)
        drafter = random.choice(kinds, n).tolist()
        accept = np.where(np.array(drafter) == NOTHING, 0.0, random.random(n))
        found = predict([Text("chat", "a", accept, n + room, np.array(drafter))], COSTS, k)
        assert found.seconds[0] == pytest.approx(seconds_by_enumeration(accept, k, n + room, COSTS, drafter))
    half = Text("chat", "a", accept, n + room, np.array(drafter))._replace(accept=accept[:3])  # cut shorter
    expected = seconds_by_enumeration(accept[:3], k, n + room, COSTS, drafter[:3])
    assert predict([half], COSTS, k).seconds[0] == pytest.approx(expected)


def test_a_k_beyond_the_text_needs_no_cost_that_nobody_measured():
    found = predict([Text("chat", "a", np.full(4, 0.5), 4)], COSTS, 40)
    assert found.seconds[0] == pytest.approx(seconds_by_enumeration([0.5] * 4, 3, 4, COSTS))


def test_texts_of_one_prompt_are_one_line():
    texts = [Text("chat", name, np.ones(n), n) for name, n in (("a", 3), ("b", 2), ("a", 2))]
    found = predict(texts, COSTS, 1)
    assert found.prompt.tolist() == ["a", "b"] and found.tokens.tolist() == [5, 2]


def test_the_table_has_tokens_and_speedup_with_intervals_over_prompts():
    texts = random_texts(0, [30, 40, 50])
    one = decide(trace(texts), TABLE_OF_COSTS, [1, 2, 4])["routes"]["chat"]
    for row in one["loads"]["1"]["table"]:
        found = predict([Text(*name, a, len(a)) for name, a in texts.items()], COSTS, row["k"])
        interval = ratio_interval([30, 40, 50], found.seconds)
        assert [row["predicted"], row["predicted_low"], row["predicted_high"]] == pytest.approx(interval)
        assert row["tokens_low"] < row["tokens_per_round"] < row["tokens_high"]
        # Cheaper rounds at the end are all that lies between the two.
        assert 1 <= row["predicted"] / COSTS.speedup(row["tokens_per_round"], row["k"]) < 1.05
    assert (one["prompts"], one["tokens"]) == (3, 120)
    assert one["alpha"] == pytest.approx(np.concatenate(list(texts.values())).mean())


# The decision


def test_speculate_needs_the_lower_end_above_one():
    steady = {("json", str(i)): [0.9] * 50 for i in range(4)}
    shaky = {("chat", str(i)): [a] * 50 for i, a in enumerate([0.5, 0.99, 0.5, 1.0])}
    hopeless = {("code", str(i)): [0.05] * 50 for i in range(4)}
    routes = decide(trace(steady | shaky | hopeless), TABLE_OF_COSTS)["routes"]
    on, maybe, off = (routes[name]["loads"]["1"] for name in ("json", "chat", "code"))
    best = max(on["table"], key=lambda row: row["predicted"])
    assert (on["decision"], on["best_k"], on["speedup"]) == ("speculate", best["k"], best["predicted"])
    assert on["speedup_interval"] == [best["predicted_low"], best["predicted_high"]]
    assert "lower end" in on["reason"] and "is above 1" in on["reason"]
    assert (maybe["decision"], maybe["best_k"]) == ("off", 0)
    assert maybe["speedup"] > 1 > maybe["speedup_interval"][0] and "is not above 1" in maybe["reason"]
    assert (off["decision"], off["best_k"]) == ("off", 0) and off["speedup"] < 1
    assert "every other k does worse" in off["reason"]


def test_one_prompt_never_switches_speculation_on():
    one = decide(trace({("json", "a"): [1.0] * 50}), TABLE_OF_COSTS)["routes"]["json"]["loads"]["1"]
    assert one["speedup"] > 1.5 and one["speedup_interval"] == [None, None]
    assert (one["decision"], one["best_k"]) == ("off", 0) and "measure more" in one["reason"]


def test_each_load_has_its_own_costs():
    texts = {("json", str(i)): [0.9] * 50 for i in range(4)}
    loads = decide(trace(texts), TABLE_OF_COSTS, KS, [1, 8])["routes"]["json"]["loads"]
    assert loads["1"]["decision"] == "speculate" and loads["8"]["decision"] == "off"
    rounds = [row["tokens_per_round"] for row in loads["1"]["table"]]
    assert rounds == [row["tokens_per_round"] for row in loads["8"]["table"]]


def test_what_the_formula_would_have_said_and_what_adapting_could_gain():
    runs = ([1.0] * 16 + [0.0] * 4) * 5
    found = decide(trace({("json", str(i)): runs for i in range(3)}), TABLE_OF_COSTS)
    one = found["routes"]["json"]["loads"]["1"]
    assert found["routes"]["json"]["alpha"] == pytest.approx(0.8)
    k, speedup = max(((k, COSTS.speedup(expected_tokens(0.8, k), k)) for k in KS), key=lambda each: each[1])
    assert one["iid"] == {"best_k": k, "speedup": pytest.approx(speedup)}
    assert one["adaptive"] > 1.05  # all or nothing is where adapting pays
    sure = decide(trace({("json", str(i)): [0.0] * 50 for i in range(3)}), TABLE_OF_COSTS)
    assert sure["routes"]["json"]["loads"]["1"]["adaptive"] == pytest.approx(1.0)
    assert sure["routes"]["json"]["loads"]["1"]["iid"] == {"best_k": 0, "speedup": 1.0}


def test_the_document_is_json_with_every_promised_field():
    found = decide([trace(random_texts(1, [20, 30])), trace(random_texts(2, [25], "code"))], TABLE_OF_COSTS)
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again["ks"] == list(KS) and set(again["routes"]) == {"chat", "code"}
    assert len(again["meta"]["traces"]) == 2 and again["meta"]["costs"]["machine"] == "m"
    for route in again["routes"].values():
        assert set(route) == {"prompts", "tokens", "alpha", "loads"}
        (one,) = route["loads"].values()
        assert set(one) == {"best_k", "decision", "reason", "speedup", "speedup_interval", "adaptive", "iid",
                            "table"}
        assert all(tuple(row) == TABLE for row in one["table"])
        assert all(row["measured"] is row["error"] is None for row in one["table"])


@pytest.mark.parametrize("change, words", [
    ({"ks": [0, 1]}, "k is 0"), ({"ks": []}, "at least one"), ({"ks": [1.5]}, "integer"),
    ({"ks": [9]}, "width 10"), ({"concurrency": [4]}, "batch 4 was not measured"),
    ({"traces": []}, "no trace"), ({"concurrency": [0]}, "concurrency is 0"),
    ({"costs": CostTable({1: COSTS}, {"draft": "other"})}, "draft D and the costs are of other"),
    ({"traces": [trace(random_texts(0, [9])), trace(random_texts(1, [9]), temperature=0.0)]},
     "differ in temperature"),
])
def test_what_does_not_belong_together_is_refused_by_name(change, words):
    given = {"traces": trace(random_texts(0, [20, 20])), "costs": TABLE_OF_COSTS, "ks": [1], **change}
    with pytest.raises(ValueError, match=words):
        decide(**given)


# The check


def runs_as_predicted(texts, ks, factor=1.0):
    """Runs that take exactly the predicted time, those with drafts divided by `factor`."""
    lines = []
    for k in ks:
        for row in predict(texts, COSTS, k).itertuples():
            lines.append((row.route, row.prompt, k, row.tokens, row.rounds, row.seconds / factor))
    plain = predict(texts, COSTS, 1)
    lines += [(row.route, row.prompt, 0, row.tokens, row.tokens, row.plain) for row in plain.itertuples()]
    return pd.DataFrame(lines, columns=["route", "prompt", "k", "tokens", "rounds", "seconds"])


def test_runs_as_fast_as_predicted_have_no_error_and_slower_ones_have_it():
    measured = trace(random_texts(0, [20, 30]) | random_texts(1, [40, 10], "code"))
    for factor in (1.0, 0.8):
        found = add_measured(decide(measured, TABLE_OF_COSTS, [1, 4]), [measured], COSTS,
                             runs_as_predicted(texts_of([measured]), [1, 4], factor))
        for route in found["routes"].values():
            for row in route["loads"]["1"]["table"]:
                assert row["measured"] == pytest.approx(row["predicted"] * factor)
                assert row["error"] == row["cost_error"] == pytest.approx(1 / factor - 1, abs=1e-12)
                assert row["measured_low"] < row["measured"] < row["measured_high"]
        assert [row["error"] for row in found["check"]["pooled"]] == pytest.approx([1 / factor - 1] * 2)
        assert found["check"]["median"] == pytest.approx(1 / factor - 1, abs=1e-12)
        json.dumps(found, allow_nan=False)


def test_the_error_is_of_the_prompts_that_ran_and_the_worst_is_named():
    measured = trace({("chat", "easy"): [1.0] * 40, ("chat", "hard"): [0.0] * 40, ("code", "a"): [0.5] * 40})
    texts = [text for text in texts_of([measured]) if text.prompt != "easy"]
    runs = runs_as_predicted(texts, [2])
    runs.loc[(runs.route == "code") & (runs.k == 2), "seconds"] *= 2  # the decoder was slow there
    found = add_measured(decide(measured, TABLE_OF_COSTS, [2]), [measured], COSTS, runs)
    chat = found["routes"]["chat"]["loads"]["1"]["table"][0]
    assert chat["error"] == pytest.approx(0) and chat["predicted"] > 1.3 * chat["predicted_checked"]
    assert chat["measured_low"] is None  # one prompt ran
    assert found["check"]["worst"] == {"route": "code", "k": 2, "error": pytest.approx(1.0)}
    assert found["check"]["prompts"] == {"chat": 1, "code": 1}


def test_luck_with_the_text_is_told_from_costs():
    measured = trace({("chat", "a"): [0.5] * 400, ("chat", "b"): [0.5] * 400})
    lucky = runs_as_predicted(texts_of([trace({("chat", name): [0.8] * 400 for name in "ab"})]), [2])
    found = add_measured(decide(measured, TABLE_OF_COSTS, [2]), [measured], COSTS, lucky)
    row = found["routes"]["chat"]["loads"]["1"]["table"][0]
    assert row["error"] < -0.2 and row["cost_error"] == pytest.approx(0, abs=1e-3)
    assert found["check"]["median_cost_error"] == pytest.approx(0, abs=1e-3)
    assert found["check"]["median"] > 0.2


def test_texts_that_end_early_are_compared_by_the_token():
    measured = trace({("chat", "a"): [0.5] * 40, ("chat", "b"): [0.5] * 40})
    runs = runs_as_predicted(texts_of([measured]), [2])
    plain = runs.k == 0
    runs.loc[plain, ["tokens", "seconds"]] *= 3  # sampled anew, plain decoding wrote three times as much
    found = add_measured(decide(measured, TABLE_OF_COSTS, [2]), [measured], COSTS, runs)
    assert found["routes"]["chat"]["loads"]["1"]["table"][0]["error"] == pytest.approx(0)


def prompts_of(names):
    return [Prompt(f"{route}{i}", route, "own", [{"role": "user", "content": "1 2 3"}])
            for route, many in names.items() for i in range(many)]


def test_prompts_are_spread_over_the_route_in_turn_and_the_rest_is_spare():
    prompts = prompts_of({"chat": 10, "code": 4})
    timed, spare = choose(prompts_as_texts(prompts), prompts, 3)
    assert [prompt.id for prompt in timed] == ["chat0", "code0", "chat4", "code2", "chat9", "code3"]
    assert len(spare) == 8 and not {p.id for p in spare} & {p.id for p in timed}
    timed, spare = choose(prompts_as_texts(prompts), prompts, None)
    assert len(timed) == 14 and {prompt.split for prompt in spare} == {"train"}
    with pytest.raises(ValueError, match="prompt chat3 of the trace is not among"):
        choose(prompts_as_texts(prompts), [p for p in prompts if p.id != "chat3"], 2)
    with pytest.raises(ValueError, match="limit is 0"):
        choose(prompts_as_texts(prompts), prompts, 0)


def prompts_as_texts(prompts):
    return [Text(prompt.route, prompt.id, np.ones(3), 3) for prompt in prompts]


@pytest.fixture(scope="module")
def pair():
    return letter_pair()


def test_the_commands_decide_from_files_and_refuse_in_one_line(pair, tmp_path, capsys):
    measure_trace(pair, prompts_of({"chat": 3}), Sampling(1.0), 20).save(tmp_path / "a.parquet")
    costs = CostTable({1: COSTS, 2: COSTS}, {"machine": "m", "date": "2026", "command": "c"})
    costs.save(tmp_path / "costs.json")
    given = ["sweep", str(tmp_path / "a.parquet"), "--costs", str(tmp_path / "costs.json")]
    assert main([*given, "--ks", "1,4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ks"] == [1, 4] and set(found["routes"]["chat"]["loads"]) == {"1", "2"}
    assert main([*given, "--concurrency", "2"]) == 0
    said = capsys.readouterr().out
    assert "chat, load 2: " in said and "tokens/round" in said and "load 1" not in said
    assert main(["costs", str(tmp_path / "costs.json")]) == 0
    assert "batch 2: a plain step takes 1e+03 ms" in capsys.readouterr().out
    for arguments, line in (([*given, "--ks", "0"], "sweep: a k of --ks is 0"),
                            ([*given, "--ks", "9"], "sweep: width 10 (k=9) was not measured"),
                            ([*given, "--concurrency", "4"], "sweep: batch 4 was not measured"),
                            (["sweep", "none.parquet"], "sweep: there is no file none.parquet"),
                            (["costs", "none.json"], "costs: none.json cannot be read"),
                            (["costs", "--batches", "x"], "costs: --batches is 'x'")):
        assert main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(line) and said.err.count("\n") == 1


def test_a_recorded_trace_is_decided_with_lookup_too(pair, tmp_path, monkeypatch, capsys):
    """Before the draft, or alone."""
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(json.dumps({"route": "chat", "prompt": text})
                              for text in ("1 2 1 2 1 2", "3 4 3 4")))
    prompts = choose_prompts(file, None, None)
    recorded = measure_trace(pair, prompts, Sampling(0.0), 24)
    recorded.save(tmp_path / "a.parquet")
    CostTable({1: COSTS}, {"machine": "m", "date": "2026", "command": "c"}).save(tmp_path / "costs.json")
    found = {}
    for lookup, draft in (("first", pair.draft), ("only", None)):
        loaded = copy(pair)
        loaded.draft, loaded.lookup = draft, Lookup()
        monkeypatch.setattr(decision_commands, "pair_of", lambda *_, loaded=loaded: loaded)
        assert main(["sweep", str(tmp_path / "a.parquet"), "--costs", str(tmp_path / "costs.json"),
                     "--ks", "1,4", "--prompts", str(file), "--lookup", lookup, "--json"]) == 0
        table = json.loads(capsys.readouterr().out)["routes"]["chat"]["loads"]["1"]["table"]
        found[lookup] = [row["tokens_per_round"] for row in table]
        wanted = add_lookup(recorded, pair.encode, prompts, Lookup(), draft=draft is not None)
        assert found[lookup] == pytest.approx(tokens_per_round(wanted, [1, 4])["mean"].tolist())
    assert found["first"] != found["only"]


def test_a_clock_that_scattered_is_said(pair, capsys):
    prompts = prompts_of({"chat": 2})
    found = check(pair, measure_trace(pair, prompts, Sampling(0.0), 8), prompts, [2], limit=2)
    row = found["routes"]["chat"]["loads"]["1"]["table"][0]
    for half, said in ((0.4, False), (0.6, True)):
        row |= {"measured": 1.0, "measured_low": 1 - half, "measured_high": 1 + half,
                "predicted_checked": 1.23}
        show(sweep_table(found))
        out = " ".join(capsys.readouterr().out.split())
        assert ("± more than half of what was measured at chat k=2: the machine was busy" in out) == said
        assert f"1.23 1.00 ±{half:.2f}" in out  # the error is of these two


@pytest.mark.parametrize("sampling", [Sampling(0.0), Sampling(1.0)])
def test_a_check_fills_every_line_of_load_1(pair, sampling, capsys):
    prompts, said = prompts_of({"chat": 3, "code": 2}), []
    measured = measure_trace(pair, prompts, sampling, 24)
    found = check(pair, measured, prompts, [1, 3], limit=2, progress=lambda *line: said.append(line))
    for route in found["routes"].values():
        for row in route["loads"]["1"]["table"]:
            assert row["measured"] > 0 and row["error"] == pytest.approx(
                row["predicted_checked"] / row["measured"] - 1)
    if sampling.temperature == 0:  # the decoder's rounds are the replay's
        table = found["routes"]["code"]["loads"]["1"]["table"]
        assert [row["tokens_measured"] for row in table] == pytest.approx(
            [row["tokens_per_round"] for row in table])
    assert found["check"]["prompts"] == {"chat": 2, "code": 2} and found["check"]["new_tokens"] == 24
    assert found["meta"]["costs"]["target"] == measured.meta["target"]
    assert said[-1][1:] == (4, 4)
    show(sweep_table(found))
    assert "Told the tokens per round of these runs" in " ".join(capsys.readouterr().out.split())
    json.dumps(found, allow_nan=False)


def test_costs_given_before_are_used_as_they_are(pair):
    prompts = prompts_of({"chat": 2})
    measured = measure_trace(pair, prompts, Sampling(0.0), 8)
    costs = costs_for(pair, [measured], prompts, [2])
    assert set(costs.at(1).t_verify) == {1, 3}
    found = check(pair, measured, prompts, [2], costs=costs)
    assert found["meta"]["costs"] == costs.meta
    with pytest.raises(ValueError, match="concurrency hold 1"):
        check(pair, measured, prompts, [2], concurrency=[2], costs=costs)
    measured.meta["draft"] = "another"
    with pytest.raises(ValueError, match="draft"):
        check(pair, measured, prompts, [2])
