"""Protects the page of misconceptions: all there are, in the words that a wrong answer really meets."""

import re
from importlib import import_module

import pytest

from course_lib.course.checks import EXERCISES, judge
from course_lib.course.misconceptions import page
from course_lib.course.outline import NOTEBOOKS, outline

RENEW = "run python -m course_lib.course.misconceptions"


@pytest.fixture(scope="module")
def committed():
    return (NOTEBOOKS / "MISCONCEPTIONS.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_checks_say_today(committed):
    today = page(outline())
    assert committed.splitlines() == today.splitlines(), RENEW


def test_every_exercise_of_every_notebook_is_on_it(committed):
    listed = re.findall(r"^\*\*(\d+\.\d+)\*\* · `(\w+)`", committed, re.MULTILINE)
    assert [id for id, _ in listed] == [task.id for one in outline() for task in one.exercises], RENEW


def test_a_name_leads_to_the_verdict_of_that_name():
    import_module("course_lib.course.checks_02")
    exercise = EXERCISES["02", "exactly"]
    for name, (planted, _) in exercise.wrong.items():
        assert judge(exercise, planted).met == name
