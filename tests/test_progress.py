"""Protects a learner's record: written where somebody learns and nowhere else, and never lost."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib.course import notebook
from course_lib.course import progress as room
from course_lib.course.execute import execute
from course_lib.course.outline import NOTEBOOKS, outline
from course_lib.course.quiz import QUESTIONS
from course_lib.course.source import EXERCISE, read_source


@pytest.fixture
def path(tmp_path, monkeypatch):
    path = tmp_path / "of her own" / "progress.jsonl"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    return path


@pytest.fixture
def learning(path, monkeypatch):
    """As in a learner's kernel."""
    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", sys)
    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return path


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["progress", *arguments])


def test_the_outline_is_what_the_sources_hold():
    for one in outline():
        source = NOTEBOOKS / "src" / f"{one.name}.py"
        text = "\n".join(cell.text for cell in read_source(source))
        assert [(task.id, task.level, str(task.minutes)) for task in one.exercises] == EXERCISE.findall(text)
        assert one.title == re.search(r"^# \d\d · (.+)$", text, re.MULTILINE)[1]
        assert one.minutes > sum(task.minutes for task in one.exercises) // 2 and len(one.questions) >= 2


def test_checks_and_answers_are_noted_and_read_back(learning, capsys):
    check, quiz = notebook("02")
    check(lambda *_: ..., "count")
    check(2.5, "count")
    question = next(q for (number, _), q in QUESTIONS.items() if number == "02")
    letters = "ABCDEFGH"
    right = letters[[option.right for option in question.options].index(True)]
    wrong = next(letter for letter in letters if letter != right)
    quiz(question.id, wrong)
    quiz(question.id, right.lower())
    quiz(question.id, "?")
    out = capsys.readouterr().out
    assert f"✗ {question.id}  " in out and f"✓ {question.id}  " in out and "one of the letters A" in out
    done, bad = room.read(learning)
    assert bad == 0 and done["question", question.id].tries == 2 and done["question", question.id].right
    (exercise,) = [key for key in done if key[0] == "exercise"]
    assert done[exercise].tries == 1 and done[exercise].right is None  # "..." is no try


def test_once_right_is_right_for_good_and_the_first_time_counts(path):
    for met in ("at least", "right", "different", "right"):
        room.add(path, "exercise", "2.3", met)
    (found,) = room.read(path)[0].values()
    times = [json.loads(line)["at"] for line in path.read_text().splitlines()]
    assert found == room.Done(4, times[1], "right")


@pytest.mark.parametrize("variable, value", [("PYTEST_VERSION", "9.0"), ("CI", "true"),
                                             ("COURSE_PROGRESS", "off")])
def test_nothing_is_noted_where_nobody_learns(learning, monkeypatch, variable, value):
    assert room.recording()
    monkeypatch.setenv(variable, value)
    room.record("exercise", "2.1", "right")
    assert not room.recording() and not learning.exists()


def test_nothing_is_noted_in_a_plain_python_or_beside_the_solutions(learning, monkeypatch, tmp_path):
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path / "solutions")
    assert not room.recording()
    monkeypatch.chdir(tmp_path)
    assert room.recording()
    monkeypatch.delitem(sys.modules, "ipykernel.kernelapp")
    assert not room.recording()


def test_this_test_run_notes_nothing():
    assert not room.recording()


CELL = """from course_lib.course import notebook
check, quiz = notebook("00")
check(lambda k: (1, k + 1), "least_and_most")"""


def test_a_kernel_notes_what_its_learner_does_and_a_build_does_not(learning, tmp_path):
    cells = new_notebook(cells=[new_code_cell(CELL)])
    execute(nbformat.from_dict(cells), tmp_path, "build")
    assert not learning.exists()
    env = {name: value for name, value in os.environ.items() if name not in ("PYTEST_VERSION", "CI")}
    client = NotebookClient(cells, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel(env=env):
        client.execute_cell(cells.cells[0], 0)
    assert room.read(learning)[0]["exercise", "0.1"].right


def test_notebooks_at_the_same_time_lose_nothing(path):
    code = ("import sys; from pathlib import Path; from course_lib.course.progress import add\n"
            "for n in range(50): add(Path(sys.argv[1]), 'exercise', f'2.{n}', sys.argv[2])")
    path.parent.mkdir()

    def one(name):
        subprocess.run([sys.executable, "-c", code, path, name], check=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, "abcd"))
    done, bad = room.read(path)
    assert bad == 0 and len(done) == 50 and {found.tries for found in done.values()} == {4}


def test_damage_costs_the_damaged_lines_only_and_is_said_in_one_sentence(path):
    room.add(path, "exercise", "0.1", "right")
    with open(path, "ab") as file:
        file.write(b'\xff\xfe\x00\n[1, 2]\n{"exercise": 3, "met": 1, "at": 2}\n{"at": "2026-01-01", "exer')
    room.add(path, "exercise", "0.2", "right")  # behind a line cut short
    before = path.read_bytes()
    done = invoke()
    assert f"4 lines of {path} cannot be read: left alone, and the rest counts." in done.stdout
    assert re.search(r"… 00 Start here +2 of +4 exercises", done.stdout) and path.read_bytes() == before


def test_the_command_says_what_is_next(path):
    found = json.loads(invoke("--json").stdout)
    assert found["next"]["exercise"] == "0.1" and not path.exists()
    for task in outline()[0].exercises:
        room.add(path, "exercise", task.id, "right")
    room.add(path, "exercise", "1.1", "different")
    found = json.loads(invoke("--json").stdout)
    assert found["next"]["exercise"] == "1.1" and found["file"] == str(path)
    said = invoke().stdout
    assert "✓ 00 Start here" in said and "(1 tried)" in said and "Next: exercise 1.1 (" in said
    for one in outline():
        for task in one.exercises:
            room.add(path, "exercise", task.id, "right")
    assert invoke().stdout.endswith("All exercises are solved.\n")


def test_reset_sets_aside_and_loses_nothing(path):
    for n in range(2):
        room.add(path, "exercise", f"0.{n + 1}", "right")
        done = invoke("--reset", "--json")
        assert json.loads(done.stdout)["notebooks"][0]["exercises"][n]["state"] == "open"
        aside = Path(done.stderr.strip().split(" set aside as ")[1])
        assert aside.parent == path.parent and f"0.{n + 1}" in aside.read_text()
    assert len(list(path.parent.iterdir())) == 2 and invoke("--reset").exit_code == 0


def test_a_place_that_cannot_be_written_stops_nothing(learning, monkeypatch, capsys):
    learning.parent.mkdir()
    learning.mkdir()
    monkeypatch.setattr(room, "_complained", False)
    for _ in range(2):
        room.record("exercise", "0.1", "right")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{learning} cannot be written" in said
    done = invoke()
    assert done.exit_code == 2 and "is a directory: COURSE_PROGRESS names a file" in done.stderr
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    assert invoke().stderr == "progress: COURSE_PROGRESS is off, so nothing is noted: unset it\n"


def test_the_usual_place_is_the_users_and_not_the_courses(monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS", raising=False)
    usual, course = room.place(), Path(room.__file__).resolve().parents[2]
    assert usual.is_absolute() and not usual.is_relative_to(course) and usual.name == "progress.jsonl"
