"""`make engine`: how the engine is started, what of its metrics is kept, and that another pass shows.

The run itself needs vLLM and half an hour; what it does with engines, test_engine_runs and test_served try on
toys.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tiny import save_tiny

from course_lib import engine_run as room
from course_lib.engines import read_metrics
from course_lib.engines.server import engine_command
from course_lib.fetch import ROOT
from course_lib.pairs import load_pair
from course_lib.prompts import Prompt
from course_lib.sampling import Sampling
from course_lib.traces import Trace, score_trace


@pytest.mark.parametrize("openmp", [True, False])
def test_the_cpu_build_is_started_with_its_openmp_and_the_usual_one_without(openmp, tmp_path):
    python = tmp_path / "bin" / "python"
    (tmp_path / "lib").mkdir()
    if openmp:
        (tmp_path / "lib" / "libiomp5.so").touch()
    words = engine_command(room.serve_command(python), room.NGRAM, 8200, 3, "a folder/T")
    assert (f"LD_PRELOAD={tmp_path / 'lib' / 'libiomp5.so'}" in words) == openmp
    assert ("--enforce-eager" in words) == openmp
    assert str(python) in words and "a folder/T" in words and words[-2] == "--speculative-config"
    assert words[words.index("--dtype") + 1] == "float32"


def test_a_missing_environment_is_said_in_one_sentence(capsys):
    assert room.main([]) == room.main(["/none"]) == 2
    assert capsys.readouterr().err.count("make engine") == 2


def test_what_is_kept_of_the_metrics_reads_the_same(monkeypatch):
    text = (ROOT / "tests" / "fixtures" / "engines" / "vllm_v1.txt").read_text()
    other = "# HELP vllm:time_to_first_token_seconds x\nvllm:time_to_first_token_seconds_bucket{le=\"1\"} 3\n"
    monkeypatch.setattr(room, "fetch_text", lambda base: text + other)
    kept = room._metrics("http://engine")
    assert "first_token" not in kept and read_metrics(kept) == read_metrics(text)


def test_of_the_log_the_lines_on_speculation_are_kept(monkeypatch, tmp_path):
    line = "SpecDecoding metrics: Mean acceptance length: 1.50, Accepted: 15 tokens, Drafted: 90 tokens"

    @contextmanager
    def serving_all(starts):
        for start in starts.values():
            start.log.write_text(f"INFO starting\nINFO {line}\n")
        yield {key: start.base for key, start in starts.items()}, {}
        log = starts[1].log
        log.write_text(log.read_text() + f"INFO {line}\n")  # an engine goes on until it is stopped

    monkeypatch.setattr(room, "serving_all", serving_all)
    wanted = [(0, tmp_path / "target"), (room.CHECKED, tmp_path / "target")]
    with room._engines("serve {target} {port} {speculative}", wanted, room.NGRAM,
                       tmp_path / "log.txt") as urls:
        assert [url.rpartition(":")[2] for url in urls] == [str(room.PORT), str(room.PORT + 1)]
    with room._engines("serve {target} {port} {speculative}", wanted) as urls:  # no log asked for
        assert len(urls) == 2
    found = read_metrics((tmp_path / "log.txt").read_text(), k=3)
    assert (found.accepted, found.drafted) == (30, 180)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_served_pass_that_differs_from_ours_shows(temperature, tmp_path, monkeypatch):
    for name in ("target", "draft"):
        save_tiny(tmp_path / name, layers=2, seed=len(name))
    np.save(tmp_path / "draft" / room.PROPOSES, np.arange(5))  # which an engine does not know of
    monkeypatch.setattr(room, "TARGET_FOLDER", tmp_path / "target")
    monkeypatch.setattr(room, "DRAFT_FOLDER", tmp_path / "draft")
    prompts = [Prompt(f"p{i}", "mine", "heldout", [{"role": "user", "content": "abc" * i}]) for i in (1, 2)]
    monkeypatch.setattr("course_lib.pairs.Pair.encode",
                        lambda pair, messages: list(messages[0]["content"].encode()))
    (tmp_path / "whole").mkdir()
    for file in (tmp_path / "draft").iterdir():
        if file.name != room.PROPOSES:
            (tmp_path / "whole" / file.name).symlink_to(file)
    pair = load_pair(str(tmp_path / "target"), str(tmp_path / "whole"), "cpu", "float32")
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(0, 256, (9,), generator=generator).tolist() for _ in prompts]
    trace = score_trace(pair, prompts, texts, Sampling(temperature))
    found = room.compare(trace, prompts)
    assert found["tokens"] == 18 and found["matches_differ"] == 0
    rows = trace.rows.assign(match=~trace.rows.match, logq=trace.rows.logq - 0.5)
    found = room.compare(Trace(rows, trace.meta), prompts)
    assert found["matches_differ"] == 18
    if temperature:
        assert found["max_difference_logp"] == 0 and found["max_difference_logq"] == pytest.approx(0.5)
