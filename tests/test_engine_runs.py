"""Running engines: the client's times and failures, the check that believes no counters, the sweep that loses
no cell. Against a real HTTP server with a toy model that speculates (engine_server.py); no vLLM runs here."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from engine_server import END, Engine, engine
from scipy.stats import hypergeom
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib.costs import CostTable, RoundCosts
from course_lib.engines import check as checking
from course_lib.engines import decision
from course_lib.engines.check import check, detects, first_difference, permutation_p, same_law
from course_lib.engines.client import Answer, Piece, ask, ask_all, connect, in_turn, served_model
from course_lib.engines.server import ENGINES, Start, engine_command, serving, serving_all
from course_lib.engines.sweep import read, sweep, unfinished
from course_lib.prompts import Prompt
from course_lib.tables import show
from course_lib.traces import Trace

SERVER = Path(__file__).parent / "engine_server.py"
CHAT = [{"role": "user", "content": "one"}]
SHORT = ("a", "b")


def prompts(n=4, route="chat"):
    return [Prompt(f"{route}{i}", route, "own", [{"role": "user", "content": f"{i}"}]) for i in range(n)]


def free_port(together=1):
    """The first of so many ports that nobody listens on."""
    while True:
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(together)]
            probes[0].bind(("127.0.0.1", 0))
            port = probes[0].getsockname()[1]
            try:
                for at, probe in enumerate(probes[1:], port + 1):
                    probe.bind(("127.0.0.1", at))
            except OSError:
                continue
            return port


# The client.


def test_tokens_are_counted_by_usage_and_times_begin_with_text():
    with engine(k=3, step=0.02, seed=1) as one, connect() as client:
        answer = ask(client, one.url + "/v1/", "toy", CHAT, 24, top=2)
        events = one.rounds + 1
        assert answer.error is None and answer.tokens == len(answer.pieces)
        assert answer.finish in ("length", "stop")
        assert events < answer.tokens  # a round's tokens come in one event
        assert answer.text == "".join(piece.token for piece in answer.pieces)
        # The event with the role came at once, the text a step later; then a step a round.
        assert answer.ttft >= 0.02 and answer.decode >= one.rounds * 0.02
        assert answer.tpot == pytest.approx(answer.decode / (answer.tokens - 1))
        assert answer.ttft + answer.decode <= answer.seconds
        assert all(len(piece.top) == 2 for piece in answer.pieces)
        # One token, and no time between the first text and the last, however long after the role it came.
        assert ask(client, one.url, "toy", CHAT, 1).decode == 0


def test_completions_say_the_same_as_chat():
    with engine(seed=1) as one, connect() as client:
        answer = ask(client, one.url, "toy", "once upon", 8, top=3)
        assert one.bodies[0]["prompt"] == "once upon" and one.bodies[0]["logprobs"] == 3
        assert answer.tokens == len(answer.pieces) == 8 and answer.error is None
        assert "".join(piece.token for piece in answer.pieces) == answer.text


@pytest.mark.parametrize("fault, error, detail", [
    ("dies", "broken", ""), ("overloaded", "overloaded", "queue full"), ("silent", "timeout", ""),
    ("error", "engine", '"no"'), ("garbage", "broken", "cannot be read")])
def test_failures_are_answers(fault, error, detail):
    with engine(k=2, fault=fault) as one, connect(timeout=0.2 if fault == "silent" else 10) as client:
        answer = ask(client, one.url, "toy", CHAT, 8)
        assert answer.error == error and detail in answer.detail and answer.tpot is None


def test_refused_and_endless_are_answers_and_no_address_is_not():
    with connect() as client, engine(step=0.03) as one:
        assert ask(client, f"http://127.0.0.1:{free_port()}", "toy", CHAT, 8).error == "refused"
        slow = ask(client, one.url, "toy", CHAT, 50, limit=0.1)
        assert slow.error == "timeout" and slow.seconds < 1
        for address in ("localhost:8000", "http:/localhost:8000", "http://", "http://localhost:80000"):
            with pytest.raises(ValueError, match=f"'{address}' is no address: write http://HOST:PORT"):
                ask(client, address, "toy", CHAT, 8)
        assert served_model(one.url) == "toy"
        with pytest.raises(ValueError, match="cannot be reached"):
            served_model(f"http://127.0.0.1:{free_port()}")


def test_as_many_requests_at_a_time_as_asked_in_order_and_no_more_to_the_dead():
    with engine(step=0.003) as one, connect() as client:
        answers = ask_all(lambda n: ask(client, one.url, "toy", CHAT, n), range(1, 13), 4)
        assert one.peak == 4 and [answer.tokens for answer in answers[:4]] == [1, 2, 3, 4]
    asked = []
    answers = ask_all(lambda n: asked.append(n) or Answer(error="refused"), range(20), 1)
    assert len(asked) == 5 and [answer.error for answer in answers[5:]] == ["not sent"] * 15
    assert not any(answer.error == "not sent" for answer in
                   ask_all(lambda n: Answer(error="timeout" if n % 5 else None), range(20), 1))
    turns = []
    found = in_turn({k: lambda item, k=k: turns.append(k) or Answer(error="refused" if k == 2 else None)
                     for k in (0, 1, 2)}, range(8))
    assert turns[:9] == [0, 1, 2, 1, 2, 0, 2, 0, 1] and turns.count(2) == 5 and turns.count(0) == 8
    assert [answer.error for answer in found[2]] == ["refused"] * 5 + ["not sent"] * 3
    with pytest.raises(ZeroDivisionError):  # a mistake of the program is not a failure of the engine
        ask_all(lambda n: Answer(seconds=1 / n), [1, 0, 1], 2)


# The check.


def checked(base=None, samples=60, temperature=1.0, **spec):
    options = {"sharp": 8.0, "seed": 2} | spec
    with engine(**{"sharp": 8.0, "seed": 1} | (base or {})) as ours, engine(**options) as theirs:
        greedy = [[{"role": "user", "content": f"p{i}"}] for i in range(4)]
        return check(ours.url, theirs.url, "toy", "toy", greedy, SHORT, new_tokens=24, samples=samples,
                     temperature=temperature)


def test_at_temperature_0_only_greedy_text_is_compared_and_the_rest_is_not_vouched_for():
    found = checked(k=3, fault="unwritten", temperature=0.0)  # a fault of sampled text alone
    assert found["verdict"] == "pass" and "sampled" not in found and "not tested" in found["reasons"][1]
    assert all(line.startswith("counters, greedy") for line in checking.counted(found))
    assert checked(k=3, fault="greedy", temperature=0.0)["verdict"] == "fail"


def test_a_right_engine_passes():
    found = checked(k=3)
    again = checked(k=3)
    assert [again[part] for part in ("greedy", "sampled")] == [found["greedy"], found["sampled"]]
    assert found["verdict"] == "pass" and found["greedy"]["same"] == 4 and found["greedy"]["tokens"] == 96
    assert found["sampled"]["counters"]["rounds"] > 0 and found["sampled"]["detects"] <= 0.5
    assert json.dumps(found, allow_nan=False)
    said = "\n".join([*found["reasons"], *checking.counted(found)])
    assert "4 of 4 texts are the same" in said and "against 0.0050 (0.01 over 2 prompts)" in said


def test_unwritten_memory_is_found_though_counters_look_ordinary():
    found = checked(k=3, fault="unwritten")
    assert found["verdict"] == "fail"
    assert (found["greedy"]["verdict"], found["sampled"]["verdict"]) == ("pass", "fail")
    first, *rest = found["sampled"]["counters"]["per_position"]
    assert first > 0.5 and rest == [0, 0] and found["sampled"]["counters"]["prefix_rate"] > 0.15
    assert "a cliff to zero" in " ".join(checking.counted(found))


def test_a_quietly_shifted_law_and_a_wrong_greedy_token_are_found():
    assert checked(k=3, tilt=9.0)["sampled"]["verdict"] == "fail"
    wrong = checked(k=3, fault="greedy")["greedy"]
    assert wrong["verdict"] == "fail" and wrong["different"] >= 1
    assert all(each["margin"] is None or each["margin"] > 0.1 for each in wrong["differences"])


@pytest.mark.parametrize("base, spec, why", [
    ({}, {"k": 0}, "drafted nothing"), ({"k": 2}, {"k": 2}, "drafted too"),
    ({}, {"k": 2, "fault": "overloaded"}, "overloaded")])
def test_what_says_nothing_is_undecided(base, spec, why):
    found = checked(base, samples=20, **spec)
    assert found["verdict"] == "undecided" and why in " ".join(found["reasons"])


def answer(*pieces, text=None):
    pieces = tuple(Piece(token, logprob, top) for token, logprob, top in pieces)
    return Answer("".join(piece.token for piece in pieces) if text is None else text, len(pieces), "length",
                  pieces=pieces)


def test_a_near_tie_is_told_apart_by_the_reference():
    ours = answer(("a", -0.1, {"a": -0.1}), ("b", -0.70, {"b": -0.70, "c": -0.72, "d": -3.0}))
    for token, margin in (("c", 0.02), ("d", 2.3), ("e", float("inf"))):
        # What the engine under test says of its own token does not matter.
        theirs = answer(("a", -0.1, {"a": -0.1}), (token, -0.01, {token: -0.01, "b": -0.01}))
        found = first_difference(ours, theirs)
        assert found["at"] == 1 and found["tokens"] == ["b", token]
        assert found["margin"] == pytest.approx(margin)
    assert first_difference(ours, ours) is None
    ended = first_difference(ours, replace(ours, text="a", pieces=ours.pieces[:1]))
    assert ended == {"at": 1, "tokens": ["b", None], "margin": None}
    assert first_difference(ours, replace(ours, text="aX")) is not None  # the same tokens, another text
    silent = first_difference(Answer("one two"), Answer("one six"))
    assert silent == {"at": None, "tokens": ["two", "six"], "margin": None}


def test_permutation_p_is_that_of_all_tables():
    # Of all tables with these margins those count that are as far from even (6.5 of 13) as this one.
    exact = sum(hypergeom(24, 13, 12).pmf(a) for a in range(1, 13) if abs(a - 6.5) >= 2.5)
    found = permutation_p(np.array([[9, 3], [4, 8]]), np.random.default_rng(0))
    assert found == pytest.approx(exact, abs=0.02)
    assert permutation_p(np.array([[30, 0], [0, 30]]), np.random.default_rng(0)) == 1e-4


def test_the_level_holds_and_the_power_is_as_stated(monkeypatch):
    monkeypatch.setattr(checking, "RESAMPLES", 99)
    rng = np.random.default_rng(0)
    law = np.array([0.45, 0.2, 0.1, 0.08, 0.05, 0.04, 0.04, 0.04])

    def sample(p, n=60):
        return [(str(each), "b", "c") for each in rng.choice(len(p), size=n, p=p)]

    tests = [same_law(sample(law), sample(law), sample(law), rng) for _ in range(100)]
    tests = [test for test in tests if test["usable"]]
    assert len(tests) > 80 and sum(test["p"] <= 0.05 for test in tests) <= 11  # 5 expected
    share = detects(tests[:1], 0.05)
    other = law * (1 - share)
    other[-1] += share
    found = [same_law(sample(law, 200), sample(law), sample(other), rng)["p"] <= 0.05 for _ in range(50)]
    assert sum(found) >= 40 and detects(tests[:3], 0.05) < share


def test_prompts_without_likely_answers_are_not_used():
    rng = np.random.default_rng(0)
    many = [tuple(map(str, rng.integers(0, 50, 6))) for _ in range(60)]
    assert not same_law(many, many, many, rng)["usable"]
    one = [("a", "b")] * 60  # two tokens: hardly a round
    assert not same_law(one, one, one, rng)["usable"]
    said = same_law([("a", "b", "c")] * 60, [("a", "b", "c")] * 60, [("a", "b", "d")] * 60, rng)
    assert said["usable"] and said["p"] == 1e-4 and said["outcomes"][-1] == {
        "outcome": "any other", "base": 0, "spec": 60}


# The toy speculates exactly: else nothing above would mean anything.


def test_the_toy_engine_keeps_the_law_of_its_target():
    one = Engine(k=2, seed=3)
    try:
        p = one.law("x", [], 1.0)
        first = [p[a] * one.law("x", [a], 1.0)[b] * one.law("x", [a, b], 1.0)[c]
                 for a, b, c in product(range(END), repeat=3)]
        likely = int(np.argmax(first))
        texts = [[token for some in one.generate("x", 3, 1.0) for token in some] for _ in range(1500)]
        wanted = [likely // END**2, likely // END % END, likely % END]
        share = sum(text == wanted for text in texts) / 1500
        error = np.sqrt(first[likely] * (1 - first[likely]) / 1500)
        assert share == pytest.approx(first[likely], abs=4 * error)
    finally:
        one.server_close()


# The sweep.


def test_a_sweep_measures_counts_and_decides(tmp_path):
    out = tmp_path / "sweep.jsonl"
    asked = prompts(4) + prompts(4, "code")
    with engine(step=0.01) as plain, engine(k=3, step=0.01) as three:
        urls = {0: plain.url, 3: three.url}
        sweep(urls, asked, [1, 4], out, new_tokens=16)
        meta, cells = read(out)
        assert len(cells) == 8 and unfinished(out, [0, 3], ["chat", "code"], [1, 4]) == []
        # Every k of a route and load in turn, from another one each time.
        assert list(cells) == [("chat", 1, 0), ("chat", 1, 3), ("code", 1, 3), ("code", 1, 0),
                               ("chat", 4, 0), ("chat", 4, 3), ("code", 4, 3), ("code", 4, 0)]
        total = sum(cell["counters"]["rounds"] for key, cell in cells.items() if key[2])
        assert 0 < three.rounds - total <= 16  # the rest is the warm-up
        sent = len(three.bodies)
        sweep(urls, asked, [1, 4], out, new_tokens=16)
        assert len(three.bodies) == sent  # there was nothing left to do
        with pytest.raises(ValueError, match="other temperature"):
            sweep(urls, asked, [1], out, new_tokens=16, temperature=1.0)
        with pytest.raises(ValueError, match="other prompts"):
            sweep(urls, asked[1:], [1], out, new_tokens=16)
        with pytest.raises(ValueError, match="concurrency 5 needs as many prompts"):
            sweep(urls, asked, [5], tmp_path / "new", new_tokens=16)
    found = decision.document(meta, cells)
    one = found["routes"]["chat"]["loads"]["1"]
    plain, three = one["table"]
    assert one["best_k"] == 3 and one["decision"] == "speculate" and one["speedup_interval"][0] > 1
    assert three["tokens_per_round"] > 1.5 and 0.5 < three["round_cost"] < 2
    assert plain["tokens_per_round"] is None or plain["rounds"] == 0
    assert plain["ttft"]["p50"] <= plain["ttft"]["p90"] <= plain["ttft"]["p99"] and plain["failures"] == {}
    assert plain["tpot"]["low"] <= plain["tpot"]["mean"] <= plain["tpot"]["high"]
    four = found["routes"]["chat"]["loads"]["4"]["table"][0]
    assert four["tokens_per_second"] > 2 * plain["tokens_per_second"]
    assert json.dumps(found, allow_nan=False)
    show(decision.table(found))


def test_dead_overloaded_and_odd_engines_are_counted_and_the_rest_kept(tmp_path):
    out = tmp_path / "sweep.jsonl"
    with engine() as plain, engine(k=2) as two, engine(k=3, fault="dies") as three, \
            engine(k=5, fault="overloaded") as five, engine(k=2) as seven, engine(k=1, fault="wordy") as one:
        urls = {0: plain.url, 1: one.url, 2: two.url, 3: three.url, 5: five.url, 7: seven.url,
                9: f"http://127.0.0.1:{free_port()}"}
        sweep(urls, prompts(6), [1], out, new_tokens=8)
        meta, cells = read(out)
        left = unfinished(out, list(urls), ["chat"], [1])
        assert {k for _, _, k in left} == {1, 3, 5, 9}  # without one answer a cell is not finished
    found = decision.document(meta, cells)["routes"]["chat"]["loads"]["1"]
    rows = {row["k"]: row for row in found["table"]}
    assert rows[2]["answered"] == 6 and rows[2]["speedup"] is not None
    assert rows[1]["failures"] == {"uncounted": 6}
    assert rows[3]["failures"] == {"broken": 5, "not sent": 1}
    assert rows[5]["failures"] == {"overloaded": 5, "not sent": 1}
    assert rows[9]["failures"] == {"refused": 5, "not sent": 1}
    assert "cannot be reached" in rows[9]["warnings"][0]
    assert any("the counters say k=2, not 7" in each for each in rows[7]["warnings"])


def test_other_traffic_and_a_baseline_that_drafts_are_noticed(tmp_path):
    with engine(k=2) as one:
        original = one.metrics
        one.metrics = lambda: (setattr(one, "generated", one.generated + 500), original())[1]
        sweep({0: one.url, 2: one.url}, prompts(4), [2], tmp_path / "out", new_tokens=8)
    cells = read(tmp_path / "out")[1]
    assert "it is no baseline" in cells["chat", 2, 0]["warnings"][0]
    assert "somebody else uses it" in " ".join(cells["chat", 2, 2]["warnings"])


# A sweep in a process of its own: {k: address}, or of one engine that it starts itself.
ALONE = """
import json, sys
from contextlib import nullcontext
from pathlib import Path
from course_lib.engines.server import Start, serving
from course_lib.engines.sweep import sweep
from course_lib.prompts import Prompt
given = json.loads(sys.argv[1])
prompts = [Prompt(str(i), "chat", "own", [{"role": "user", "content": str(i)}]) for i in range(4)]
out, urls = Path(given["out"]), {int(k): url for k, url in given["urls"].items()}
serve = given.get("serve")
with serving(Start(serve, urls[2], out.with_suffix(".log")), 20) if serve else nullcontext():
    sweep(urls, prompts, [1, 2, 4], out, new_tokens=16)
"""


def sweep_alone(out, urls, **more):
    given = json.dumps({"out": str(out), "urls": urls, **more})
    # A shell's background job is born deaf to Ctrl-C, and its children with it: here they must hear it.
    return subprocess.Popen([sys.executable, "-c", ALONE, given], stderr=subprocess.PIPE, text=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_a_killed_sweep_loses_no_finished_cell(tmp_path):
    out = tmp_path / "sweep.jsonl"
    with engine(step=0.006) as plain, engine(k=2, step=0.006) as two:
        first = sweep_alone(out, {0: plain.url, 2: two.url})
        until(lambda: out.exists() and len(read(out)[1]) >= 2)
        first.kill()
        first.communicate()
        kept = out.read_text().splitlines()
        done, asked = len(kept) - 1, len(plain.bodies) + len(two.bodies)
        assert 2 <= done < 6
        second = sweep_alone(out, {0: plain.url, 2: two.url})
        second.communicate()
        assert second.returncode == 0 and len(read(out)[1]) == 6
        assert out.read_text().splitlines()[:done + 1] == kept
        # Four requests for each cell that was left, and a warm-up an engine.
        assert len(plain.bodies) + len(two.bodies) - asked <= 4 * (6 - done) + 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep.jsonl"]


def test_another_file_is_refused(tmp_path):
    for text in ("", "{", '{"format": "other"}', "[1]", '{"format": "course_lib engine sweep 1"}\n{"k": 1}'):
        (tmp_path / "file").write_text(text)
        with pytest.raises(ValueError, match="is no sweep of engines"):
            read(tmp_path / "file")


# The decision, from cells made by hand.


def cell(tpots, tokens=11, seconds=10.0, failed=0, counters=None):
    answers = [{"prompt": f"p{i}", "error": None, "tokens": tokens, "ttft": 0.1, "seconds": 0.1 + each,
                "decode": each} for i, each in enumerate(tpot * (tokens - 1) for tpot in tpots)]
    answers += [{"prompt": f"f{i}", "error": "timeout"} for i in range(failed)]
    return {"answers": answers, "seconds": seconds, "counters": counters or {}, "warnings": []}


META = {"settings": {"temperature": 0.0, "new_tokens": 16}, "date": "2026-11-29"}


def decided(**cells):
    found = decision.document(META, {("chat", 1, int(name[1:])): each for name, each in cells.items()})
    return found["routes"]["chat"]["loads"]["1"]


def test_speedup_is_of_the_same_prompts_and_off_is_said():
    plain = cell([0.10, 0.20, 0.30])
    one = decided(k0=plain, k2=cell([0.05, 0.10, 0.15], counters={"tokens_per_round": 2.4}))
    row = one["table"][1]
    assert row["speedup"] == pytest.approx(2) and row["speedup_low"] == pytest.approx(2)
    assert row["round_cost"] == pytest.approx(1.2) and (one["best_k"], one["decision"]) == (2, "speculate")
    assert row["tokens_per_second"] == pytest.approx(3.3) and row["tpot"]["mean"] == pytest.approx(0.1)
    unsure = decided(k0=plain, k2=cell([0.05, 0.10, 0.40]))
    assert (unsure["best_k"], unsure["decision"]) == (0, "off") and "is not above 1" in unsure["reason"]
    assert "every other k does worse" in decided(k0=plain, k2=cell([0.2, 0.3, 0.4]))["reason"]
    assert "one prompt gives no interval" in decided(k0=cell([0.2]), k2=cell([0.1]))["reason"]
    for missing in (decided(k2=plain), decided(k0=cell([], failed=3), k2=plain),
                    decided(k0=plain, k2=cell([0.01], failed=9))):
        assert missing["decision"] == "unknown" and missing["best_k"] == 0


def test_the_prediction_stands_beside_what_was_measured():
    rows = [("chat", f"p{i}", t, 0.5) for i in range(3) for t in range(40)]
    meta = {"pair": "p", "target": "T", "draft": "D", "temperature": 0.0, "top_k": 0, "top_p": 1.0,
            "draft_mode": "sample", "new_tokens": 40}
    trace = Trace(pd.DataFrame(rows, columns=["route", "prompt", "t", "accept"]), meta)
    costs = CostTable({1: RoundCosts(0.1, {1: 1.0, 3: 1.1})}, {"machine": "m"})
    cells = {("chat", load, k): cell([0.1, 0.2, 0.3] if k == 0 else [0.08, 0.15, 0.2])
             for load in (1, 4) for k in (0, 2)}
    loads = decision.document(META, cells, [trace], costs)["routes"]["chat"]["loads"]
    row, other = loads["1"]["table"][1], loads["4"]["table"][1]
    assert row["predicted_tokens"] == pytest.approx(1.75, abs=0.05)
    assert row["error"] == pytest.approx(row["predicted"] / row["speedup"] - 1)
    assert other["predicted_tokens"] == row["predicted_tokens"] and other["predicted"] is None
    with pytest.raises(ValueError, match="compare the same"):
        decision.document(META, cells, [Trace(trace.rows, meta | {"temperature": 1.0})])


# Starting and stopping.


def alive(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{process_id}/stat").read_text().split()[2:3]


def answers_at(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_started_engine_and_its_children_are_gone_after_success_and_failure(tmp_path):
    log, port = tmp_path / "log", free_port()
    base, pids = f"http://127.0.0.1:{port}", tmp_path / "pids"
    # An engine that leaves a child behind, as one with workers does.
    script = (f"import os, subprocess, sys; child = subprocess.Popen(['sleep', '60']);"
              f"open({str(pids)!r}, 'w').write(str(child.pid)); sys.argv = ['e', '--port', '{port}'];"
              f"exec(compile(open({str(SERVER)!r}).read(), 'e', 'exec'), {{'__name__': '__main__'}})")
    start = Start([sys.executable, "-c", script], base, log)
    with pytest.raises(RuntimeError), serving(start, 20) as address:
        assert served_model(address) == "toy" and alive(int(pids.read_text()))
        with pytest.raises(ValueError, match="answers at .* already"), serving(Start(["true"], base, log)):
            pass
        raise RuntimeError
    until(lambda: not alive(int(pids.read_text())))  # a killed process takes a moment to be gone
    assert not answers_at(port)
    for command, timeout, why in (
            (["sh", "-c", "echo no memory; exit 3"], 20, r"ended \(status 3\) before it served: no memory"),
            ([str(tmp_path / "none")], 20, "cannot be started"),
            (["sleep", "9"], 0.2, "not healthy after 0.2 s")):
        with pytest.raises(ValueError, match=why), serving(Start(command, base, log), timeout):
            pass


def test_of_engines_started_together_those_that_fail_are_told_apart(tmp_path):
    one, other = free_port(), free_port()
    serve = [sys.executable, str(SERVER), "--port"]
    starts = {"good": Start([*serve, str(one)], f"http://127.0.0.1:{one}", tmp_path / "good"),
              "bad": Start(["sh", "-c", "exit 3"], f"http://127.0.0.1:{other}", tmp_path / "bad")}
    with serving_all(starts, 20) as (up, problems):
        assert list(up) == ["good"] and served_model(up["good"]) == "toy"
        assert "status 3" in str(problems["bad"])
    assert not answers_at(one)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_told_to_end_leaves_no_engine_and_keeps_its_cells(tmp_path, number):
    out, port = tmp_path / "sweep.jsonl", free_port()
    running = sweep_alone(out, {2: f"http://127.0.0.1:{port}"}, serve=[
        sys.executable, str(SERVER), "--port", str(port), "--k", "2", "--step", "0.02"])
    until(lambda: out.exists() and len(read(out)[1]) >= 1)
    assert answers_at(port)
    running.send_signal(number)
    assert "KeyboardInterrupt" in running.communicate(timeout=20)[1]
    assert running.returncode != 0 and not answers_at(port) and len(read(out)[1]) >= 1


@pytest.mark.parametrize("at_once", [[], ["--at-once"]])
def test_engines_started_by_the_sweep_make_one_sweep_and_are_gone(at_once, tmp_path, capsys):
    mine, out, port = tmp_path / "mine.txt", tmp_path / "sweep.jsonl", free_port(3)
    mine.write_text("one\ntwo\nthree\n")
    arguments = ["engine", "sweep", "--engine", "vllm", "--port", str(port), "--ks", "0,2,3", *at_once,
                 "--serve", f"{sys.executable} {SERVER} --port {{port}} {{speculative}}", "--json",
                 "--concurrency", "1", "--prompts", str(mine), "--speculative", '{"method": "ngram"}',
                 "--new-tokens", "8", "--out", str(out)]
    assert cli.main(arguments) == 0
    plain, two, _ = json.loads(capsys.readouterr().out)["routes"]["mine"]["loads"]["1"]["table"]
    assert (plain["answered"], two["answered"]) == (3, 3) and two["rounds"] > 0 and not plain["rounds"]
    ports = [int(cell["url"].rpartition(":")[2]) for cell in read(out)[1].values()]
    assert sorted(ports) == ([port, port + 1, port + 2] if at_once else [port] * 3)
    assert not any(answers_at(each) for each in set(ports))
    before = out.read_text()
    assert cli.main(arguments) == 0 and out.read_text() == before  # and no engine was started for it


def test_the_command_of_an_engine():
    serve, config = ENGINES["vllm"]
    assert engine_command(serve, config, 8001, 0, "T", "D") == ["vllm", "serve", "T", "--port", "8001"]
    *plain, flag, value = engine_command(serve, config, 8001, 3, "a folder/T", "D")
    assert plain == ["vllm", "serve", "a folder/T", "--port", "8001"] and flag == "--speculative-config"
    assert json.loads(value) == {"method": "draft_model", "model": "D", "num_speculative_tokens": 3}
    assert engine_command(*ENGINES["sglang"], 1, 3, "T", "D")[-2:] == ["--speculative-num-draft-tokens", "4"]
    assert engine_command(*ENGINES["llama_cpp"], 1, 3, "T", "D")[-6:] == [
        "-md", "D", "--spec-type", "draft-simple", "--spec-draft-n-max", "3"]
    line = "serve --port {port} {speculative}"
    for bad, speculative, why in (("serve {speculative}", "{}", "needs \\{port"), (line, "word", "neither"),
                                  ("serve {port}", "{}", "needs \\{port"), (line, "[1]", "neither"),
                                  (line + " {target}", "{}", "nothing says"),
                                  (line + " 'x", "{}", "--serve is .* \\(no closing quotation\\): close"),
                                  (line, "-x \\", "--speculative is .* \\(no escaped character\\)"),
                                  (line, "-md {draft}", "nothing says")):
        with pytest.raises(ValueError, match=why):
            engine_command(bad, speculative, 1, 1)


# The commands.


def test_check_says_fail_and_undecided_by_its_status(monkeypatch):
    monkeypatch.setattr(checking, "check", partial(check, short=SHORT))
    runner = CliRunner()
    with engine(sharp=8.0) as base, engine(sharp=8.0) as other, \
            engine(k=3, sharp=8.0, fault="greedy") as wrong:
        options = ["engine", "check", "--base", base.url, "--samples", "20", "--limit", "1"]
        done = runner.invoke(cli.app, [*options, "--spec", wrong.url, "--json"])
        assert done.exit_code == 1 and json.loads(done.stdout)["verdict"] == "fail"
        done = runner.invoke(cli.app, [*options, "--spec", other.url])
        assert done.exit_code == 2 and "drafted nothing" in done.stdout
        assert done.stdout.endswith("undecided\n")


@pytest.mark.parametrize("option, value, said", [
    ("--spec", "HTTP://127.0.0.1:{port}/v1/", "is given as the engine with speculation and as the one"),
    ("--spec", "http:/127.0.0.1", "is no address: write http://HOST:PORT"),
    ("--level", "1", "level is 1: it must be between 0 and 1"),
    ("--samples", "19", "samples must be 20 or more, not 19"),
    ("--tie", "nan", "tie must be 0 or more, not nan"),
    ("--temperature", "-1", "temperature must be 0 or more, not -1"),
    ("--seed", "-1", "seed must be 0 or more, not -1"),
    ("--concurrency", "0", "concurrency must be 1 or more, not 0"),
    ("--timeout", "0", "timeout must be above 0 seconds, not 0"),
    ("--new-tokens", "0", "new tokens must be 1 or more, not 0"),
    ("--limit", "0", "limit must be 1 or more prompts"),
    ("--routes", "verse", "there is no route 'verse'"),
    ("--prompts", "none.txt", "there is no file none.txt"),
])
def test_check_looks_at_its_options_before_it_asks_an_engine(option, value, said, capsys):
    port = free_port()  # nobody is there: asked, it could not be reached
    given = {"--base": f"http://127.0.0.1:{port}", "--spec": "http://127.0.0.1:9"} | {
        option: value.format(port=port)}
    assert cli.main(["engine", "check", *[word for pair in given.items() for word in pair]]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("engine check: ") and said in shown and shown.count("\n") == 1


@pytest.mark.parametrize("arguments, said", [
    (["check", "--base", "x", "--spec", "y"], "check: 'x' is no address"),
    (["sweep"], "sweep: Missing option '--out'"),
    (["check", "--base", "x", "--spec", "y", "--tie", "few"], "check: Invalid value for '--tie'"),
    (["sweep", "--out", "f"], "sweep: give --urls of engines that run, or --engine"),
    (["sweep", "--out", "f", "--urls", "3"], "sweep: --urls has '3': write K=http"),
    (["sweep", "--out", "f", "--urls", "3=http:/a"], "sweep: 'http:/a' is no address: write http"),
    (["sweep", "--out", "f", "--urls", "3=http://a:80000"], "sweep: 'http://a:80000' is no address"),
    (["sweep", "--out", "f", "--urls", "3=http://a,3=http://b"], "sweep: --urls has two engines for k=3"),
    (["sweep", "--out", "f", "--urls", "3=http://a", "--ks", "0"], "sweep: --urls has no engine for k=0"),
    *((["sweep", "--out", "f", "--engine", "vllm", "--port", *words.split()], f"sweep: --port is {said}") for
      words, said in (("0", "0: a port is a number from 1 to 65535\n"), ("65536", "65536: a port is"),
                      ("65533 --at-once --ks 0,1,2,3", "65533: a port is a number from 1 to 65535, and with "
                       "--at-once 4 engines take 65533 to 65536\n"))),
    (["sweep", "--out", "/none/f", "--urls", "3=http://a"], "sweep: there is no folder"),
    (["sweep", "--out", "f", "--urls", "3=http://a", "--concurrency", "0"], "sweep: --concurrency: a"),
])
def test_wrong_use_is_one_line_and_status_2(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["engine", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith(f"engine {said}") and shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_that_measured_nothing_says_so(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("one\ntwo\none\n")
    arguments = ["engine", "sweep", "--urls", f"0=http://127.0.0.1:{free_port()}", "--concurrency", "1",
                 "--prompts", str(tmp_path / "mine.txt"), "--out", str(tmp_path / "sweep.jsonl"), "--json"]
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["routes"] and "no request was answered" in said.err
    assert "left out line 3: the same as an earlier prompt" in said.err
