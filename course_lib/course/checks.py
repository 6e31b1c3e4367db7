"""Checks that meet a learner's answer by name, in exactly one line.

    ○ 2.3 not attempted
    ✓ 2.3  P(exactly 2 of 4) = 0.128
    ✗ 2.3  that is "at least 2" (0.640). After 2 accepted drafts the next must be rejected.

Each notebook has a module `checks_NN.py` that declares what right looks like and every wrong
turn known by name. A wrong turn is a wrong implementation and its message: the learner's function
is run on several inputs beside the right one and each wrong one, and the first wrong one that
agrees everywhere gives its message. A wrong property has a diagnosing function instead, declared
with a wrong answer that must meet it. So one test proves every message of every notebook.

    @exercise(
        "2.3",
        inputs=[(0.8, 4, 2), (0.8, 4, 4), (1.0, 2, 2)],
        right="P(exactly {n} of {k}) = {got:.3f}",
        wrong={"at least": (lambda alpha, k, n: alpha**n, 'that is "at least {n}" ({got:.3f}).')},
        diagnose={"adds up": (adds_up, lambda alpha, k, n: alpha**n * (1 - alpha))},
        raised={"ZeroDivisionError": "alpha = 1 is a limit: treat it by itself."},
    )
    def exactly(alpha, k, n):
        return alpha**n * (1 - alpha) if n < k else alpha**k
"""

import contextlib
import copy
import dis
import inspect
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from course_lib.course.progress import record
from course_lib.course.same import same as _same

Inputs = list[tuple] | Callable[[], list[tuple]]


@dataclass(frozen=True)
class Exercise:
    """One exercise: the right function, and how to talk about answers that are not."""

    id: str
    name: str
    function: Callable
    inputs: Inputs
    right: str
    wrong: dict[str, tuple[Callable, str]]
    diagnose: dict[str, tuple[Callable, Callable]]
    raised: dict[str, str] = field(default_factory=dict)
    same: Callable[[Any, Any], bool] = _same


@dataclass(frozen=True)
class Raised:
    """What a call came to when it came to an exception."""

    error: BaseException


EXERCISES: dict[tuple[str, str], Exercise] = {}  # (two digits of the notebook, name) -> exercise


def exercise(
    id: str,
    *,
    right: str,
    inputs: Inputs = ((),),
    wrong: dict[str, tuple[Callable, str]] | None = None,
    diagnose: dict[str, tuple[Callable, Callable]] | None = None,
    raised: dict[str, str] | None = None,
    rtol: float = 1e-6,
    same: Callable[[Any, Any], bool] | None = None,
) -> Callable[[Callable], Callable]:
    """Register the decorated function as the right answer of exercise `id`, e.g. "2.3".

    The function's name is the exercise's name. A value exercise is a function without parameters.

    right: what ✓ says. Messages are format strings: the argument names, {got} and {want}, for the
        first input (for a wrong answer: the first input where it differs from the right one).
    inputs: tuples of arguments, or a function that makes fresh ones (generators, tensors); each
        call gets its own copy. If the right function raises on an input, the learner's must too.
    wrong: name -> (wrong function, message).
    diagnose: name -> (function of the learner's function giving a message or None, a wrong
        function that must meet it). Asked in order, after `wrong`.
    raised: exception name -> hint for that exception in this exercise.
    rtol, same: how results are compared; `same(got, want)` replaces the default comparison.
    Raises ValueError when the id is malformed or taken, or the name is taken in that notebook.
    """
    number, _, index = id.partition(".")
    if not (number.isdecimal() and index.isdecimal()):
        raise ValueError(f'exercise id {id!r} must be two numbers, like "2.3".')
    key = f"{int(number):02d}"

    def register(function: Callable) -> Callable:
        name = function.__name__
        for (other_key, other_name), other in EXERCISES.items():
            again = other.function.__module__ == function.__module__ and (other.id, other_name) == (id, name)
            if not again and (other.id == id or (other_key, other_name) == (key, name)):
                raise ValueError(
                    f"exercise {id} ({name}) clashes with {other.id} ({other_name}): rename one."
                )
        EXERCISES[key, name] = Exercise(
            id,
            name,
            function,
            inputs,
            right,
            dict(wrong or {}),
            dict(diagnose or {}),
            dict(raised or {}),
            same or (lambda got, want: _same(got, want, rtol)),
        )
        return function

    return register


def checker(number: str) -> Callable:
    """The `check` of one notebook: `check(function)` or `check(value, "name")` prints one line."""

    def check(answer: Any, name: str | None = None) -> None:
        found, verdict = _named(number, answer, name)
        print(verdict.line)
        if found is not None and verdict.met != "not attempted":
            record("exercise", found.id, verdict.met)

    return check


class Verdict(NamedTuple):
    """What an answer met, and the line that says so.

    met: "right", "not attempted", "raised", "different", or the name of the wrong answer or of
        the diagnosis it met.
    """

    met: str
    line: str


def judge(exercise: Exercise, answer: Callable) -> Verdict:
    """Compare `answer` with what is known. Never raises for what the answer does."""
    try:
        met, text = _meet(exercise, answer)
    except Exception as error:  # such as a message that cannot print this answer
        met, text = "different", f"the check could not read your answer ({_describe(error)})."
    if met == "not attempted":
        return Verdict(met, f"○ {exercise.id} not attempted")
    return Verdict(met, f"{'✓' if met == 'right' else '✗'} {exercise.id}  {' '.join(text.split())}")


def _named(number: str, answer: Any, name: str | None) -> tuple[Exercise | None, Verdict]:
    """The exercise that is meant, None if there is none, and what to say."""
    if name is None and not callable(answer):
        if answer is None or answer is ...:
            return None, Verdict("not attempted", "○ not attempted")
        return None, Verdict(
            "different",
            '✗ check needs the function itself, check(name), or a value and its name, check(value, "name").',
        )
    name = name or getattr(answer, "__name__", "?")
    found = EXERCISES.get((number, name))
    if found is None:
        known = ", ".join(n for key, n in EXERCISES if key == number)
        line = f"✗ no exercise here is called {name!r}: keep the name you were given ({known})."
        return None, Verdict("different", line)
    return found, judge(found, answer if callable(answer) else lambda: answer)


def _meet(exercise: Exercise, answer: Callable) -> tuple[str, str]:
    got = _outcomes(exercise, answer)
    want = _outcomes(exercise, exercise.function)
    if _unattempted(answer, got, want):
        return "not attempted", ""
    agrees = [_agree(exercise, g, w) for g, w in zip(got, want, strict=True)]
    if all(agrees):
        return "right", _fill(exercise, exercise.right, 0, got, want)
    first = agrees.index(False)

    for name, (function, message) in exercise.wrong.items():
        theirs = _outcomes(exercise, function)
        if all(_agree(exercise, g, t) for g, t in zip(got, theirs, strict=True)):
            return name, _fill(exercise, message, first, got, want)

    # An exception comes before the diagnosis: a diagnosing function would only trip over it.
    for index, outcome in enumerate(got):
        if isinstance(outcome, Raised) and not agrees[index]:
            return "raised", _explain_raised(exercise, index, outcome.error)

    for name, (diagnosing, _) in exercise.diagnose.items():
        message = _run(diagnosing, (answer,))
        if message and not isinstance(message, Raised):  # it may trip over a strange answer
            return name, message

    return "different", _plain_difference(exercise, first, got, want)


def _outcomes(exercise: Exercise, function: Callable) -> list[Any]:
    return [_run(function, arguments) for arguments in _arguments(exercise)]


def _arguments(exercise: Exercise) -> list[tuple]:
    # Fresh for every function: a learner's answer may change a list, or advance a generator.
    return exercise.inputs() if callable(exercise.inputs) else copy.deepcopy(list(exercise.inputs))


def _run(function: Callable, arguments: tuple) -> Any:
    try:
        with _quiet():
            return function(*arguments)
    except (Exception, SystemExit) as error:  # whatever it is, it is the learner's
        return Raised(error)


@contextlib.contextmanager
def _quiet():
    # The check speaks one line, however often it calls a function that prints or warns.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}  # all that an empty body does


def _unattempted(answer: Callable, got: list, want: list) -> bool:
    if not all(_is_stub(g) for g in got):
        return False
    # Where None can be right, None everywhere may be a real answer, though a wrong one: its body decides.
    meant = any(w is None for w in want) and all(g is None for g in got)
    return not meant or _does_nothing(answer)


def _does_nothing(function: Callable) -> bool:
    """Is its body no more than `...`, `pass`, a docstring or `return None`?"""
    code = getattr(function, "__code__", None)
    return code is not None and all(step.opname in _NOTHING for step in dis.get_instructions(code))


def _is_stub(outcome: Any) -> bool:
    if isinstance(outcome, Raised):
        return isinstance(outcome.error, NotImplementedError)
    return outcome is None or outcome is ...


def _agree(exercise: Exercise, got: Any, want: Any) -> bool:
    if isinstance(got, Raised) or isinstance(want, Raised):
        return isinstance(got, Raised) and isinstance(want, Raised) and type(got.error) is type(want.error)
    try:
        return bool(exercise.same(got, want))
    except Exception:
        return False  # not even comparable, so not the same


def _fill(exercise: Exercise, message: str, index: int, got: list, want: list) -> str:
    names = list(inspect.signature(exercise.function).parameters)
    values = dict(zip(names, _arguments(exercise)[index], strict=False))
    # A set of strings has another order in each process; a message has not.
    values |= {name: "{" + ", ".join(sorted(map(repr, value))) + "}" for name, value in values.items()
               if isinstance(value, (set, frozenset)) and value}
    return message.format(**values, got=got[index], want=want[index])


def _plain_difference(exercise: Exercise, index: int, got: list, want: list) -> str:
    call = _call(exercise, index)
    if isinstance(want[index], Raised):
        return f"{call} should raise {type(want[index].error).__name__}, and gives {_short(got[index])}."
    here, there = got[index], want[index]
    mine, right = _short(here), _short(there)
    hint = " Is a return missing?" if here is None and not any(w is None for w in want) else ""
    if mine == right and isinstance(here, list | tuple) and isinstance(there, list | tuple):
        for place, (one, other) in enumerate(zip(here, there, strict=False)):  # cut short they look alike
            if not _agree(exercise, one, other):
                return f"{call}: at [{place}] it has {_short(one)}; expected {_short(other)}."
    return f"{call} gives {mine}; expected {right}.{hint}"


def _explain_raised(exercise: Exercise, index: int, error: BaseException) -> str:
    name = type(error).__name__
    hint = exercise.raised.get(name) or _HINTS.get(name) or "run the call by itself to see where it happens."
    return f"your code raised {_describe(error)}: at {_call(exercise, index)}, {hint}"


_HINTS = {
    "ZeroDivisionError": "something it divides by is 0: a limit needs a line of its own.",
    "TypeError": "look at the number and kinds of the arguments; the parameters you were given must stay.",
    "NameError": "a name in it has not been defined: is it spelled as above, and did that cell run?",
    "IndexError": "it reads past the end: count the positions from 0.",
    "KeyError": "it looks up a key that is not there.",
    "RecursionError": "it calls itself without an end.",
}


def _describe(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _call(exercise: Exercise, index: int) -> str:
    names = list(inspect.signature(exercise.function).parameters)
    if not names:
        return exercise.name
    values = zip(names, _arguments(exercise)[index], strict=False)
    return f"{exercise.name}({', '.join(f'{n}={_short(v)}' for n, v in values)})"


def _short(value: Any) -> str:
    text = " ".join((f"{value:.6g}" if isinstance(value, float) else repr(value)).split())
    return text if len(text) <= 60 else text[:57] + "…"
