"""The one pass through served engines equals the pass in process, repeats no request, and says what it cannot
see. Against a real HTTP server around the tiny pair, in the format of vLLM (served_server.py), which itself
does not run here."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from served_server import letters, serve
from tiny import letter_pair
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib.engines.kept import read_kept
from course_lib.prompts import Prompt, read_log
from course_lib.replay import tokens_per_round
from course_lib.sampling import GREEDY, Sampling
from course_lib.served import doubt, measure_served
from course_lib.traces import SCHEMA, Trace, measure_trace, score_trace

WORDS = ["What is the time?", "a", "Write a poem of no words", "zzz", "Say it again, Sam",
         "one more for the road"]
PROMPTS = [Prompt(f"p{i}", "ab"[i % 2], "own", [{"role": "user", "content": text}])
           for i, text in enumerate(WORDS)]


@pytest.fixture(scope="module")
def pair():
    return letter_pair()


@pytest.fixture
def engines(pair):
    with serve(pair, pair.target, "big/target") as target, serve(pair, pair.draft, "small/draft") as draft:
        yield target, draft


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "requests"


def served(target, draft, kept, prompts=PROMPTS, temperature=0.0, new_tokens=10, **options):
    return measure_served([target.url], [draft.url], prompts, kept, temperature, new_tokens, **options)


def log_file(tmp_path, *rows):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


# The same as in process


def test_greedy_equals_the_pass_in_process(pair, engines, kept, tmp_path):
    found, ours = served(*engines, kept), measure_trace(pair, PROMPTS, GREEDY, 10)
    assert 20 in ours.rows.token.values, "no text met its end: the test is weaker than meant"
    for name in SCHEMA.names:  # at temperature 0 there is nothing to estimate
        assert found.rows[name].tolist() == ours.rows[name].tolist(), name
    assert 0 < found.rows.match.mean() < 1
    assert tokens_per_round(found, (1, 3)).equals(tokens_per_round(ours, (1, 3)))
    found.save(tmp_path / "trace.parquet")
    again = Trace.load(tmp_path / "trace.parquet")
    assert again.rows.equals(found.rows) and list(again.rows) == SCHEMA.names
    meta = again.meta
    assert set(ours.meta) <= set(meta)
    assert [meta[name] for name in ("pair", "target", "draft")] == [
        "big/target + small/draft", "big/target", "small/draft"]
    assert (meta["draft_mode"], meta["machine"], meta["near_ties"]) == ("greedy", "served", 0)
    assert meta["versions"]["target engine"] == "0.33.0"
    assert meta["doubt"] is None and meta["estimates"] is None


@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
def test_sampled_equals_the_pass_in_process(pair, engines, kept, draft_mode):
    found = served(*engines, kept, temperature=1.0, draft_mode=draft_mode, seed=3)
    ours = score_trace(pair, PROMPTS, found.column("token"), Sampling(1.0), draft_mode)
    assert (found.rows.match == ours.rows.match).all()
    for name in ("logp", "logq", "accept"):
        np.testing.assert_allclose(found.rows[name], ours.rows[name], atol=1e-5, err_msg=name)
    # What one token cannot show is an estimate from it, and the meta says so.
    assert (found.rows.overlap == found.rows.accept).all() and (found.rows.entropy == -found.rows.logp).all()
    assert "estimated" in found.meta["estimates"] and found.meta["draft_mode"] == draft_mode


def test_the_estimates_are_right_on_average(pair, engines, kept):
    prompts = [Prompt(f"p{i}", "a", "own", [{"role": "user", "content": f"{i}"}]) for i in range(20)]
    found = served(*engines, kept, prompts, temperature=1.0, new_tokens=20)
    ours = score_trace(pair, prompts, found.column("token"), Sampling(1.0))
    assert len(found.rows) > 150
    for name in ("overlap", "entropy"):
        off = found.rows[name].astype(float) - ours.rows[name]
        assert abs(off.mean()) < 4 * off.std() / len(off) ** 0.5 and off.std() > 0.05, name


def test_the_text_is_asked_for_at_the_law_and_nothing_else(engines, kept):
    served(*engines, kept, PROMPTS[:1], temperature=1.0, seed=5)
    path, body = next(each for each in engines[0].log if each[1].get("return_token_ids"))
    assert path == "/v1/completions"
    # A model's generation_config.json must not slip in its own: vLLM takes it where the request is silent.
    law = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "seed": 5}
    assert {name: body[name] for name in law} == law


def test_ties_go_to_the_first_token_as_argmax_has_it():
    from course_lib.served import _scores

    said = [None, {"7": {"logprob": -1.0, "rank": 2}, "5": {"logprob": -1.0, "rank": 2}},
            {"3": {"logprob": -1.0, "rank": 2}, "9": {"logprob": -1.0, "rank": 2}}]
    assert _scores([1, 7, 3], said, 2) == {"logprob": [-1.0, -1.0], "top": [5, 3], "best": [-1.0, -1.0]}


def test_another_targets_text_shows_as_near_ties(pair, engines, kept):
    target, draft = engines
    found = measure_served([target.url], [draft.url], PROMPTS, kept, new_tokens=10)
    with serve(pair, pair.draft, "big/target") as other:  # reads what it would not have written
        at = read_kept(kept, json.loads(kept.read_text().splitlines()[0]))
        assert len(at) == 4 * len(PROMPTS)
        kept.write_text("".join(line for line in kept.open() if not line.startswith('["target"')))
        again = measure_served([other.url], [draft.url], PROMPTS, kept, new_tokens=10)
    assert found.meta["near_ties"] == 0 < again.meta["near_ties"]
    assert "does not write this text" in again.meta["doubt"]


# Logs


def test_a_log_is_scored_as_it_is(pair, engines, kept, tmp_path):
    rows = [{"prompt": "What is", "response": "this", "route": "x", "temperature": 1},
            {"messages": PROMPTS[2].messages, "response": "that and more"},
            {"prompt": "What is", "response": "this"}]
    said = []
    prompts = read_log(log_file(tmp_path, *rows), say=said.append, temperature=1.0)
    assert said == ["log.jsonl: 2 of 3 texts have no temperature, and are taken as written at 1"]
    assert [prompt.id for prompt in prompts] == ["log.jsonl:1", "log.jsonl:2", "log.jsonl:3"]
    found = served(*engines, kept, prompts, temperature=1.0)
    texts = [letters(row["response"]) for row in rows]
    assert [column.tolist() for column in found.column("token")] == [texts[0], texts[1], texts[2]]
    ours = score_trace(pair, prompts, texts, Sampling(1.0))
    np.testing.assert_allclose(found.rows.accept, ours.rows.accept, atol=1e-5)
    np.testing.assert_allclose(found.rows.logp, ours.rows.logp, atol=1e-5)
    assert found.meta["logged"] == 3 and found.meta["new_tokens"] == len("that and more")
    # Nothing was written anew.
    assert not any(body.get("return_token_ids") for _, body in engines[0].log)


@pytest.mark.parametrize("line, reason", [
    ("{", "is not JSON"), ('{"prompt": "a"}', 'no "response"'),
    ('{"prompt": "a", "response": ""}', "an empty one"),
    ('{"prompt": "a", "response": "b", "temperature": 0.7}', "was written at temperature 0.7, not 1"),
    ('{"prompt": "a", "response": "b", "temperature": "1"}', "was written at temperature '1'"),
    ('{"prompt": "a", "response": "b", "top_p": 0.9}', "top-p"), ('{"response": "b"}', "has neither"),
    ('{"prompt": "a", "response": "\\ud800"}', "surrogate"), ("[" * 100000, "nested too deeply")])
def test_bad_lines_are_named_and_left_out_only_if_asked(tmp_path, line, reason):
    path, said = log_file(tmp_path, {"prompt": "a", "response": "b", "temperature": 1}, "", line), []
    with pytest.raises(ValueError, match="log.jsonl line 3 ") as error:
        read_log(path, temperature=1.0)
    assert reason in str(error.value) and "--skip-bad" in str(error.value)
    assert len(read_log(path, True, said.append, 1.0)) == 1
    assert said == ["log.jsonl: left out line 3: no text of this temperature"]
    with pytest.raises(ValueError, match="holds no text"):
        read_log(log_file(tmp_path, line), True, said.append, 1.0)


def test_doubt_is_raised_by_text_of_another_law_and_by_no_other():
    rng = np.random.default_rng(0)
    best = np.log(rng.uniform(0.3, 1.0, 2000))
    false = [doubt(rng.random(len(best)) < np.exp(best), best, 1.0) for _ in range(200)]
    assert not any(false)
    assert "another temperature" in doubt(rng.random(len(best)) < np.exp(best / 2), best, 1.0)
    # One unlikely token in a text that is nearly certain is no proof, many are.
    sure = np.log(np.full(30, 0.999))
    assert doubt(np.arange(30) > 0, sure, 1.0) is None and doubt(np.arange(30) > 20, sure, 1.0)
    assert doubt(np.arange(100) > 1, best, 0.0) is None
    assert doubt(np.arange(100) > 2, best, 0.0).startswith("3 of 100 tokens are not")


# Going on, failing, taking turns


def test_a_run_that_failed_goes_on_and_repeats_no_finished_request(pair, engines, kept):
    whole = served(*engines, kept.with_name("other"))
    with serve(pair, pair.target, "big/target", after=9) as target, \
            serve(pair, pair.draft, "small/draft") as draft:
        with pytest.raises(ValueError, match=r"failed \(both engines score\).*answers 503.*EngineCore"):
            served(target, draft, kept, concurrency=1)
        with open(kept, "ab") as file:
            file.write(b'["target", 3, {"logp')  # killed in the middle of a line
        target.after = None
        found = served(target, draft, kept, concurrency=3)
        assert found.rows.equals(whole.rows) and found.meta["near_ties"] == 0
        sent = [json.dumps(each) for each in target.log if "naïve" not in str(each)]  # all but the probe
        assert len(sent) == len(set(sent)) == 3 * len(PROMPTS)
        assert target.count("/v1/completions") == 2 * len(PROMPTS)
        assert draft.count("/v1/completions") == len(PROMPTS)
        # And a third time there is nothing to ask.
        served(target, draft, kept)
        assert target.count("/v1/completions") == 2 * len(PROMPTS)
        with pytest.raises(ValueError, match="requests of another measurement: remove it"):
            served(target, draft, kept, new_tokens=11)


def test_a_killed_process_started_again_repeats_no_finished_request(pair, tmp_path):
    file, out = tmp_path / "mine.txt", tmp_path / "out.parquet"
    file.write_text("\n".join(f"question {i}" for i in range(12)))
    with serve(pair, pair.target, "t", slow=0.05) as target, serve(pair, pair.draft, "d", slow=0.05) as draft:
        command = [sys.executable, "-m", "course_lib", "measure", "--served-target", target.url,
                   "--served-draft", draft.url, "--prompts", str(file), "--out", str(out), "--ks", "1,2",
                   "--new-tokens", "6", "--served-concurrency", "2", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while target.count("/v1/completions") < 15 and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        while target.under_way or draft.under_way:  # what was under way ends in the engine
            time.sleep(0.01)
        kept = tmp_path / "out.parquet.requests"
        finished, before = len(kept.read_text().splitlines()) - 1, len(target.log) + len(draft.log)
        assert not out.exists() and 12 + 12 < finished < 48
        target.slow = draft.slow = 0.0
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(target.log) + len(draft.log) - before == 48 - finished + 2  # and the probe of each
    assert json.loads(done.stdout)["routes"]["mine"]["prompts"] == 12
    assert not kept.exists() and len(Trace.load(out).accepts()) == 12


def test_replicas_take_turns_and_requests_are_bounded(pair, kept):
    with serve(pair, pair.target, "t", slow=0.02) as one, serve(pair, pair.target, "t", slow=0.02) as two, \
            serve(pair, pair.draft, "d") as draft:
        found = measure_served([one.url, two.url + "/v1/"], [draft.url], PROMPTS, kept, new_tokens=6,
                               concurrency=2)
        assert one.count("/v1/completions") == two.count("/v1/completions") == len(PROMPTS)
        assert one.peak <= 2 and two.peak <= 2 and found.meta["near_ties"] == 0
        with pytest.raises(ValueError, match="serve 2 models"):
            measure_served([one.url, draft.url], [draft.url], PROMPTS, kept)


def test_prompts_fit_the_smaller_context_with_room_to_score(pair, kept):
    with serve(pair, pair.target, "t") as target, serve(pair, pair.draft, "d", context=24) as draft:
        # 24 tokens of context: 8 to write, 1 to score, and 15 for the prompt. The server asserts the rest.
        with pytest.raises(ValueError, match="prompt p0 has 17 tokens.*context of 24.*--cut"):
            served(target, draft, kept, new_tokens=8)
        found = served(target, draft, kept.with_name("cut"), new_tokens=8, cut=True)
        assert found.meta["cut"] == ["p0", "p2", "p4", "p5"]
        with pytest.raises(ValueError, match="the text alone is too long"):
            served(target, draft, kept.with_name("long"), new_tokens=23, cut=True)


# Refusals


@pytest.mark.parametrize("options, reason", [
    ({"fault": "no ids"}, "token_ids"), ({"fault": "logits"}, "prompt_logprobs"),
    ({"shift": 1}, "vocabulary")])
def test_engines_that_answer_otherwise_are_refused(pair, kept, options, reason):
    with serve(pair, pair.target, "t", **options) as target, \
            serve(pair, pair.draft, "d", version=None) as draft, \
            pytest.raises(ValueError, match=reason):
        served(target, draft, kept, PROMPTS[:2], new_tokens=4)


@pytest.mark.parametrize("arguments, reason", [
    (["--temperature", "0.7"], "normaliser cannot be seen"),
    (["--temperature", "1", "--top-p", "0.9"], "top-p"), (["--temperature", "1", "--top-k", "5"], "top-k"),
    (["--lookup", "first"], "--lookup is for models loaded"),
    (["--draft", "d"], "--draft is for"), (["--limit", "0"], "limit"),
    (["--served-concurrency", "0"], "concurrency"), (["--draft-mode", "odd"], "draft_mode"),
    (["--log", "none.jsonl"], "there is no file none.jsonl"), (["--log", "a", "--prompts", "b"], "not both"),
    (["--served-target", "localhost:1"], "is no address"),
    (["--served-target", "http://127.0.0.1:9"], "cannot be reached")])
def test_bad_input_is_one_sentence_and_status_2(arguments, reason):
    start = ["measure", "--served-target", "http://127.0.0.1:9", "--served-draft", "http://127.0.0.1:9"]
    done = CliRunner().invoke(cli.app, [*start, *arguments])
    assert done.exit_code == 2 and done.stdout == "" and reason in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--served-target", "--served-draft", "--log"])
def test_one_engine_is_not_enough(option):
    done = CliRunner().invoke(cli.app, ["measure", option, "http://127.0.0.1:9"])
    assert done.exit_code == 2 and "go together" in done.stderr


def test_the_command_says_what_is_estimated_and_what_is_odd(engines, tmp_path):
    target, draft = engines
    tokens = letters("x")
    while len(tokens) < 60:  # written greedily, and logged as sampled
        tokens.append(1 + int(target.logprobs(tokens)[-1][1:20].argmax()))
    text = "".join(chr(94 + token) for token in tokens[1:])
    log = log_file(tmp_path, *[{"prompt": "x", "response": text, "temperature": 1}] * 4)
    arguments = ["measure", "--served-target", target.url, "--served-draft", draft.url, "--temperature", "1",
                 "--log", str(log), "--ks", "1,2", "--out", str(tmp_path / "t.parquet")]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.stderr
    assert "is estimated by the" in done.stdout and "tokens are the target's likeliest" in done.stdout
    assert "both engines score: 8/8" in done.stderr
    found = json.loads(CliRunner().invoke(cli.app, [*arguments, "--json"]).stdout)
    assert found["device"] == "vLLM" and {"estimates", "doubt"} <= set(found["settings"])
    alpha = found["routes"]["mine"]["alpha"]
    assert alpha["overlap"] == pytest.approx(alpha["coupled"])
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".requests")] == []
