"""The command line: quick to start, one line for bad input, one JSON document for programs."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib.fetch import FetchError


def invoke(*arguments):
    return CliRunner().invoke(cli.app, arguments)


def test_help_loads_nothing_heavy():
    heavy = "{'torch', 'transformers', 'pandas', 'numpy', 'nbformat', 'matplotlib'}"
    code = f"import sys, course_lib.__main__; sys.exit(', '.join({heavy} & sys.modules.keys()) or 0)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_takes_json_and_says_what_it_does():
    for command in cli.app.registered_commands:
        name = command.callback.__name__
        text = invoke(name, "--help").stdout
        assert "--json" in text, name
        assert command.callback.__doc__, name


@pytest.mark.parametrize("error", [ValueError("bad\ninput"), FetchError("bad\ninput"), OSError("bad input")])
def test_bad_input_is_one_line_and_status_2(monkeypatch, error):
    def refuse(say):
        raise error

    monkeypatch.setattr("course_lib.fetch.fetch", refuse)
    for arguments in (["fetch"], ["fetch", "--json"]):
        done = invoke(*arguments)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", "fetch: bad input\n")


@pytest.mark.parametrize("arguments, line", [
    (["measure", "--batch", "two"], "measure: Invalid value for '--batch': "),
    (["metrics"], "metrics: Missing argument"),
    (["measure", "--nothing"], "measure: No such option: --nothing"),
    (["nothing"], "course_lib: No such command 'nothing'"),
    (["distill", "--seed", "-1"], "distill: Invalid value for '--seed'"),
    (["measure", "--seed", str(2**63)], "measure: Invalid value for '--seed'"),
    (["bench", "onepass", "--seed", "-1"], "bench: Invalid value for '--seed'"),
    (["bench", "training", "--new-tokens", "0"], "bench: Invalid value for '--new-tokens'"),
    (["measure", "--new-tokens", "0"], "measure: Invalid value for '--new-tokens'"),
    (["sweep", "--new-tokens", "0"], "sweep: Invalid value for '--new-tokens'"),
    (["measure", "--ks", "1234"], "measure: a k of --ks is 1234: nobody drafts more than 1000 tokens"),
    (["sweep", "--ks", "1,2000"], "sweep: a k of --ks is 2000: nobody drafts"),
    (["costs", "--ks", "9" * 20], "costs: a k of --ks is 9999"),
    (["metrics", "none.txt"], "metrics: there is no file none.txt"),
    (["metrics", "/"], "metrics: / is a directory"),
])
def test_wrong_usage_is_one_line_and_status_2(arguments, line, capsys):
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(line) and said.err.count("\n") == 1


def test_main_returns_the_status_of_what_it_ran(monkeypatch, capsys):
    assert cli.main(["--help"]) == cli.main(["measure", "--help"]) == 0
    assert cli.main([]) == 2 and "Usage" in capsys.readouterr().out

    def stopped(say):
        raise KeyboardInterrupt

    monkeypatch.setattr("course_lib.fetch.fetch", stopped)
    assert cli.main(["fetch"]) == 130
    monkeypatch.setattr("course_lib.fetch.fetch", lambda say: ("a", "b"))
    assert cli.main(["fetch"]) == 0


def test_a_bug_is_not_passed_off_as_bad_input(monkeypatch):
    monkeypatch.setattr("course_lib.fetch.fetch", lambda say: [][1])
    assert isinstance(invoke("fetch").exception, IndexError)


def test_progress_does_not_get_into_the_json(monkeypatch, tmp_path):
    def slow(say):
        say("downloading")
        return tmp_path / "target", tmp_path / "draft"

    monkeypatch.setattr("course_lib.fetch.fetch", slow)
    done = invoke("fetch", "--json")
    assert json.loads(done.stdout) == {"target": str(tmp_path / "target"), "draft": str(tmp_path / "draft")}
    assert done.stderr == "downloading\n"


@pytest.mark.parametrize("status, code", [("ok", 0), ("warn", 0), ("fail", 1)])
def test_doctor_exits_by_whether_something_must_be_fixed(monkeypatch, status, code):
    from course_lib.doctor import Row

    monkeypatch.setattr("course_lib.doctor.examine", lambda: [Row("disk", status, "little", "make room")])
    assert invoke("doctor").exit_code == code
    done = invoke("doctor", "--json")
    assert done.exit_code == code
    assert json.loads(done.stdout) == {
        "usable": code == 0,
        "checks": [{"check": "disk", "status": status, "found": "little", "remedy": "make room"}],
    }


def test_manifest_exits_by_whether_something_is_wrong(monkeypatch):
    monkeypatch.setattr("course_lib.manifest.read", lambda: {})
    for problems, code in (([], 0), (["data/x is missing."], 1)):
        monkeypatch.setattr("course_lib.manifest.check", lambda found=problems: found)
        done = invoke("manifest", "--json")
        assert done.exit_code == code
        assert json.loads(done.stdout) == {"ok": not problems, "problems": problems}
        assert invoke("manifest").exit_code == code


def test_build_refuses_an_unknown_notebook():
    done = invoke("build", "77", "--check", "--json")
    assert done.exit_code == 2 and done.stdout == ""


def test_run_says_where_the_pages_are(monkeypatch, tmp_path):
    monkeypatch.setattr("course_lib.course.execute.run_command", lambda folder, notebooks, timeout: 0)
    done = invoke("run", "--out", str(tmp_path), "--json")
    assert json.loads(done.stdout) == {"ok": True, "index": str(tmp_path / "html" / "index.html")}
