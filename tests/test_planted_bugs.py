"""Protects the tests: each bug that people write into speculative decoding is planted, and turns them red.

A bug is one exact replacement in a copy of the package. One process, so that torch is loaded once, runs the
tests that should notice against each copy in turn, and against a copy without a bug.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "course_lib"

LAW = "test_speculate.py::test_the_text_follows_the_target_law"
ALL_KEPT = "test_speculate.py::test_a_draft_that_is_the_target_saves_all_the_rounds_it_can"
CACHES = "test_speculate.py::test_both_caches_say_what_a_fresh_forward_says[itself-4-4]"
REPLAY = "test_replay.py::test_expected_rounds_equal_all_outcomes_added_up"

DRAWN = "drafts.append(draw(q[-1], generator)"

# name: (file, what stands there, what the bug makes of it, the test that must fail)
BUGS = {
    "the bonus token is dropped": (
        "speculate.py", "new = drafts[i][:kept[i]] + [extra[i]]",
        "new = drafts[i][:kept[i]] + [extra[i]][:int(kept[i] < limit[i]) or int(limit[i] == 0)]", ALL_KEPT),
    "the residual is drawn from p": (
        "speculate.py", "extra = draw(residual(p[every, kept], q_rejected), generator)",
        "extra = draw(p[every, kept], generator)", f"{LAW}[2-3-4-sample-plain]"),
    "k for k + 1: the last draft counts as the bonus": (
        "speculate.py", "kept = accepted.long().cumprod(1).sum(1).minimum(limit)",
        "kept = accepted.long().cumprod(1).sum(1).minimum((limit - 1).clamp(min=0))", ALL_KEPT),
    "after full acceptance the draft's cache is one short": (
        "speculate.py", "self.draft_cache.lengths = self.draft_cache.lengths.minimum(self.length - 1)",
        "self.draft_cache.lengths = self.length - 1", CACHES),
    "q is of another temperature than the drafts": (
        "speculate.py", DRAWN, DRAWN.replace(
            "q[-1]", "probabilities(same_width(logits, vocabulary), Sampling(1.0))"),
        f"{LAW}[2-3-4-sample-cold]"),
    "a greedy draft is judged by its softmax": (
        "speculate.py", "q = torch.stack([*q, torch.zeros_like(p[:, 0])], 1)",
        "q = torch.stack([*(q if draft_sampling == sampling else p[:, :k].unbind(1)), "
        "torch.zeros_like(p[:, 0])], 1)", f"{LAW}[2-3-4-greedy-plain]"),
    "drafts behind a rejected one are kept": (
        "speculate.py", "accepted.long().cumprod(1).sum(1)", "accepted.long().sum(1)",
        f"{LAW}[2-3-4-sample-plain]"),
    "top-p is forgotten": (
        "sampling.py", "if sampling.top_p < 1:", "if sampling.top_p < 0:", f"{LAW}[2-3-4-sample-top-p]"),
    "replay takes every position for the start of a round": (
        "replay.py", "        value = _backward(a, np.arange(k, k + 1), np.ones((1, 1, 1)))\n"
        "        rounds[:, column] = value[starts, np.arange(len(starts))]\n",
        "        for row, start in enumerate(starts):\n"
        "            text = a[start:, row]\n"
        "            emitted = [1 + np.cumprod(text[t:t + k]).sum() for t in range(len(text))]\n"
        "            rounds[row, column] = len(text) / np.mean(emitted) if len(text) else 0\n", REPLAY),
}

RUN_EACH = """
import json, os, sys, pytest
os.chdir(sys.argv[1])
jobs, failed = json.load(open("jobs.json")), {}
class Why:
    def pytest_runtest_makereport(self, call):
        if call.excinfo:
            self.error = call.excinfo.typename
for name, (copy, tests) in jobs.items():
    for module in list(sys.modules):
        if module.startswith(("course_lib", "tiny", "conftest", "test_")):
            del sys.modules[module]
    sys.path[:0] = [copy]
    why = Why()
    status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], [why]))
    import course_lib
    assert course_lib.__file__.startswith(copy), course_lib.__file__
    failed[name] = why.error if status == 1 else status
    sys.path.remove(copy)
json.dump(failed, open("failed.json", "w"))
"""


def plant(folder, bug):
    """A copy of the package with one bug, or without."""
    unused = shutil.ignore_patterns("__pycache__", "course", "engines")
    shutil.copytree(PACKAGE, folder / "course_lib", ignore=unused)
    if bug:
        file, right, wrong, _ = bug
        path = folder / "course_lib" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {file}: renew it"
        path.write_text(text.replace(right, wrong), encoding="utf-8")


def test_every_planted_bug_turns_the_tests_red(tmp_path):
    jobs = {}
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("tiny.py", "conftest.py", "acceptance_cases.json", "test_speculate.py", "test_replay.py"):
        if (TESTS / name).exists():
            shutil.copy(TESTS / name, tests)
    for number, (name, bug) in enumerate({"no bug": None, **BUGS}.items()):
        copy = tmp_path / str(number)
        plant(copy, bug)
        wanted = [bug[3]] if bug else sorted({bug[3] for bug in BUGS.values()})
        jobs[name] = str(copy), [str(tests / test) for test in wanted]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run([sys.executable, "-c", RUN_EACH, str(tmp_path)], capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    failed = json.loads((tmp_path / "failed.json").read_text())
    assert failed.pop("no bug") == 0, done.stdout[-3000:]
    # An assertion failed: not the copy that does not run, nor a test that does not exist.
    assert failed == dict.fromkeys(BUGS, "AssertionError"), done.stdout[-6000:]
