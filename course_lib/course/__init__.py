"""The course's own machinery: checks, quizzes, and building and executing notebooks.

A notebook starts with

    from course_lib.course import notebook
    check, quiz = notebook("02")
"""

from collections.abc import Callable
from importlib import import_module

from course_lib.course import checks as _checks
from course_lib.course import quiz as _quiz


def notebook(number: str) -> tuple[Callable, Callable]:
    """The `check` and `quiz` of one notebook, given its two digits.

    Loads `checks_NN.py` and `quiz_NN.py` beside this file unless something is registered under
    that number already. Raises ValueError for a number that has neither.
    """
    for module, known in (("checks", _checks.EXERCISES), ("quiz", _quiz.QUESTIONS)):
        if any(key[0] == number for key in known):
            continue
        name = f"{__name__}.{module}_{number}"
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ValueError(f"notebook {number!r} is unknown: there is no {module}_{number}.py.") from None
    return _checks.checker(number), _quiz.quizzer(number)
