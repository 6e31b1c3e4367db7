"""Protects the answers to the articles' questions: each number is what its expression comes to."""

import re

import pytest

from course_lib.costs import RoundCosts
from course_lib.course.build import NOTEBOOKS
from course_lib.roofline import DEVICES, scaled_costs
from course_lib.theory import (
    accepted_pmf,
    alpha_from_prefix_rate,
    alpha_from_tokens,
    expected_accepted,
    expected_tokens,
)

PAGE = (NOTEBOOKS / "CHECKPOINTS.md").read_text(encoding="utf-8")
FUNCTIONS = (accepted_pmf, alpha_from_prefix_rate, alpha_from_tokens, expected_accepted, expected_tokens,
             scaled_costs, RoundCosts)
KNOWN = {one.__name__: one for one in FUNCTIONS} | {"DEVICES": DEVICES}
COMPUTED = re.findall(r"(\d+(?:\.\d+)?)[×%]?(?: [×%])?\s+<!-- (.+?) -->", PAGE)


@pytest.mark.parametrize(("printed", "expression"), COMPUTED, ids=[expression for _, expression in COMPUTED])
def test_a_number_is_what_its_expression_comes_to(printed, expression):
    digits = len(printed.partition(".")[2])
    value = eval(expression, {"__builtins__": {"range": range}}, KNOWN)
    assert f"{float(value):.{digits}f}" == printed, f"{expression} is {value}"


def test_every_expression_stands_behind_a_number():
    assert len(COMPUTED) == PAGE.count("<!--") >= 40
