"""Protects what a learner is told: every right answer is met with ✓, every known wrong one by its name.

Runs over the checks and quizzes of all notebooks, and over the small example in fixtures/course.
"""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from course_lib import course
from course_lib.course import notebook
from course_lib.course.checks import EXERCISES, _outcomes, exercise, judge
from course_lib.course.quiz import QUESTIONS, as_html, as_text, question
from course_lib.course.same import same

sys.path.insert(0, str(Path(__file__).parent / "fixtures" / "course"))
importlib.import_module("checks_99")
importlib.import_module("quiz_99")
for module in sorted(Path(course.__file__).parent.glob("*_[0-9][0-9].py")):
    importlib.import_module(f"course_lib.course.{module.stem}")

ALL = [pytest.param(e, id=f"{e.id}-{e.name}") for e in EXERCISES.values()]
WRONG = [
    pytest.param(e, name, planted, id=f"{e.id}-{name}")
    for e in list(EXERCISES.values())
    for name, planted in [
        *((n, w[0]) for n, w in e.wrong.items()),
        *((n, d[1]) for n, d in e.diagnose.items()),
    ]
]
QUIZ = [pytest.param(q, id=q.id) for q in list(QUESTIONS.values())]


@pytest.mark.parametrize("exercise", ALL)
def test_the_right_answer_is_right(exercise):
    verdict = judge(exercise, exercise.function)
    assert verdict.met == "right", verdict.line
    assert verdict.line.startswith(f"✓ {exercise.id}  ") and "\n" not in verdict.line


@pytest.mark.parametrize(("exercise", "name", "planted"), WRONG)
def test_a_wrong_answer_meets_its_own_message(exercise, name, planted):
    verdict = judge(exercise, planted)
    assert verdict.met == name, verdict.line
    assert verdict.line.startswith(f"✗ {exercise.id}  ") and len(verdict.line) > 20


@pytest.mark.parametrize("exercise", ALL)
def test_a_stub_is_not_attempted(exercise):
    def as_given(*_): ...

    def empty(*_):
        """Later."""

    def dots(*_):
        return ...

    def later(*_):
        raise NotImplementedError("later")

    for stub in (as_given, empty, dots, later):
        assert judge(exercise, stub).line == f"○ {exercise.id} not attempted", stub.__name__


def test_none_everywhere_is_an_attempt_where_none_can_be_right():
    def never(*arguments):
        given = len(arguments)
        return given if given > 99 else None

    legal = {e.id for e in EXERCISES.values() if any(w is None for w in _outcomes(e, e.function))}
    attempted = {e.id for e in EXERCISES.values() if judge(e, never).met != "not attempted"}
    assert attempted == legal >= {"3.7", "9.5"}


@pytest.mark.parametrize("exercise", ALL)
@pytest.mark.parametrize("error", [ArithmeticError("made up"), SystemExit("made up")], ids=["error", "exit"])
def test_an_exception_is_reported_not_raised(exercise, error):
    def broken(*_):
        raise error

    line = judge(exercise, broken).line
    assert line.startswith(f"✗ {exercise.id}  your code raised {type(error).__name__}: made up: at ")


@pytest.mark.parametrize("exercise", ALL)
def test_nonsense_never_raises(exercise):
    for nonsense in ("a word", [], {"a": 1}, np.zeros((3, 2)), float("nan"), object, lambda: 1):
        assert judge(exercise, lambda *_, n=nonsense: n).line.startswith(f"✗ {exercise.id}  ")


@pytest.mark.parametrize("question", QUIZ)
def test_a_question_shows_one_right_option_and_explains_all(question):
    html, text = as_html(question), as_text(question)
    assert html.count("<b>Right.</b>") == text.count(" Right. ") == 1
    assert html.count("<details>") == len(question.options) >= 3
    assert all(option.why.strip() for option in question.options)
    assert html == as_html(question)


def one_line(capsys, *arguments):
    check, _ = notebook("99")
    check(*arguments)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and out.endswith("\n")
    return out.strip()


def test_check_prints_one_line_and_finds_the_exercise_by_name(capsys):
    def exactly(alpha, k, n):
        print("noise")
        return alpha**n

    assert one_line(capsys, exactly) == (
        '✗ 99.1  that is "at least 2" (0.640). After 2 accepted drafts the next must fail.'
    )
    assert one_line(capsys, 3, "accepted") == "✗ 99.2  you counted the bonus token as accepted."
    assert one_line(capsys, 2, "accepted") == "✓ 99.2  2 of 4"
    assert one_line(capsys, ..., "accepted") == "○ 99.2 not attempted"
    assert one_line(capsys, ...) == "○ not attempted"
    assert "keep the name" in one_line(capsys, lambda: 1)
    assert "the function itself" in one_line(capsys, 0.64)


def test_check_speaks_of_the_input_that_failed(capsys):
    def exactly(alpha, k, n):
        return 1 / (k - n) if n == k else alpha**n * (1 - alpha)

    assert one_line(capsys, exactly) == (
        "✗ 99.1  your code raised ZeroDivisionError: division by zero: "
        "at exactly(alpha=0.8, k=4, n=4), nothing here needs a division."
    )

    def largest(values):
        return 3

    assert one_line(capsys, largest) == "✗ 99.3  largest(values=[]) should raise ValueError, and gives 3."

    def exactly(alpha, k, n):
        if n == 2:
            return 0.128
        print("forgot to return")

    assert one_line(capsys, exactly).endswith("gives None; expected 0.4096. Is a return missing?")


def test_two_long_lists_that_begin_alike_are_told_apart():
    plan = EXERCISES["08", "plan"]
    line = judge(plan, lambda ks, prompts: [*plan.function(ks, prompts)[:-1], []]).line
    assert line == "✗ 8.4  plan(ks=[1, 2, 4], prompts=6): at [5] it has []; expected [1, 2, 4, 0]."


def test_an_answer_that_changes_its_arguments_gets_fresh_ones():
    found = EXERCISES["99", "largest"]

    def sorts(values):
        values.sort()
        if not values:
            raise ValueError
        return values.pop()

    assert judge(found, sorts).met == judge(found, sorts).met == "right"


def test_a_clash_or_a_bad_id_is_refused():
    with pytest.raises(ValueError, match="clashes with 99.1"):
        exercise("99.1", right="")(lambda: 1)
    with pytest.raises(ValueError, match="two numbers"):
        exercise("99", right="")
    with pytest.raises(ValueError, match="two wrong options"):
        question("99.z", "?", ("a", "a"), [("b", "b")])
    with pytest.raises(ValueError, match="same option twice"):
        question("99.z", "?", ("a", "a"), [("a", "b"), ("c", "c")])
    with pytest.raises(ValueError, match="each explanation"):
        question("99.z", "?", ("a", ""), [("b", "b"), ("c", "c")])
    with pytest.raises(ValueError, match="exists already"):
        question("99.a", "?", ("a", "a"), [("b", "b"), ("c", "c")])
    with pytest.raises(ValueError, match="notebook '77' is unknown"):
        notebook("77")
    with pytest.raises(ValueError, match="no question '99.q'"):
        notebook("99")[1]("99.q")


def test_the_right_option_is_not_always_in_the_same_place():
    places = set()
    for letter in "abcdefgh":
        made = question(f"98.{letter}", "?", ("r", "r"), [("v", "w"), ("w", "w")])
        del QUESTIONS["98", made.id]
        places.add([option.right for option in made.options].index(True))
    assert places == {0, 1, 2}


@pytest.mark.parametrize(
    ("got", "want", "answer"),
    [
        (0.1 + 0.2, 0.3, True),
        (0.3001, 0.3, False),
        ([1, 2], np.array([1.0, 2.0]), True),
        ((1, 2), [1, 2], True),
        ([1, 2, 3], [1, 2], False),
        (np.ones((2, 1)), np.ones(2), False),
        ({"a": [1.0]}, {"a": [1.0 + 1e-12]}, True),
        ({"a": 1}, {"b": 1}, False),
        ("ab", "ab", True),
        ("1", 1, False),
        (None, 1, False),
        (None, 0, False),
        (True, 1, True),
        ([1, [2, "x"]], [1, [2, "x"]], True),
        ({1, 2}, {2, 1}, True),
        (float("nan"), float("nan"), True),
    ],
)
def test_same(got, want, answer):
    assert same(got, want) is answer


def test_same_reads_tables_and_things_like_tensors():
    import pandas as pd

    class Tensor:  # what we use of torch's, without the two seconds of importing it
        def detach(self):
            return self

        cpu = float = detach

        def is_floating_point(self):
            return True

        def numpy(self):
            return np.array([1.0, 2.0])

    assert same(Tensor(), [1.0, 2.0]) and not same(Tensor(), [1.0, 2.1])
    assert same(pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1.0, 2.0]}))
    assert not same(pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"n": [1, 2]}))
