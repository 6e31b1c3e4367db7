"""Quiz questions that read the same on a page and in a running notebook.

Every option carries its explanation, folded. The questions of a notebook are in `quiz_NN.py`:

    question("2.a", "How many tokens does a round emit?",
             right=("3.36", "the accepted drafts and one more."),
             wrong=[("2.36", "that is the accepted drafts alone."), ("4.20", "…")])

One right option by construction. `code` in backticks is the only markup. A learner who wants to commit to an
answer before opening a fold writes the letter, `quiz("2.a", "B")`; that is noted in their progress.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from course_lib.course.progress import record


@dataclass(frozen=True)
class Option:
    text: str
    right: bool
    why: str


@dataclass(frozen=True)
class Question:
    id: str
    text: str
    options: tuple[Option, ...]


_LETTERS = "ABCDEFGHIJ"
QUESTIONS: dict[tuple[str, str], Question] = {}  # (two digits of the notebook, id) -> question


def question(id: str, text: str, right: tuple[str, str], wrong: list[tuple[str, str]]) -> Question:
    """Register a question; each option is (text, explanation).

    The order of the options is derived from their texts, so it is the same on every machine and
    the right one is not always first.
    Raises ValueError for a malformed or repeated id, fewer than three options, two equal options,
    or an empty text.
    """
    match = re.fullmatch(r"(\d+)\.[a-z]", id)
    if not match:
        raise ValueError(f'question id {id!r} must be a number and a letter, like "2.a".')
    options = [Option(right[0], True, right[1]), *(Option(t, False, why) for t, why in wrong)]
    if len(options) < 3:
        raise ValueError(f"question {id} needs at least two wrong options, it has {len(wrong)}.")
    if len({option.text for option in options}) < len(options):
        raise ValueError(f"question {id} has the same option twice.")
    if not text.strip() or any(not o.text.strip() or not o.why.strip() for o in options):
        raise ValueError(f"question {id}: the question, each option and each explanation need a text.")
    options.sort(key=lambda option: hashlib.sha256(f"{id} {option.text}".encode()).hexdigest())
    made = Question(id, text, tuple(options))
    key = (f"{int(match[1]):02d}", id)
    if QUESTIONS.get(key, made) != made:
        raise ValueError(f"question {id} exists already: give this one another letter.")
    QUESTIONS[key] = made
    return made


def quizzer(number: str) -> Callable[..., None]:
    """The `quiz` of one notebook: `quiz("2.a")` shows that question, `quiz("2.a", "B")` answers it."""

    def quiz(id: str, answer: str | None = None) -> None:
        found = QUESTIONS.get((number, id))
        if found is None:
            known = ", ".join(key[1] for key in QUESTIONS if key[0] == number)
            raise ValueError(
                f"there is no question {id!r} in notebook {number}; there are {known or 'none'}."
            )
        from IPython.display import display

        display({"text/html": as_html(found), "text/plain": as_text(found)}, raw=True)
        if answer is not None:
            option, line = judge(found, answer)
            print(line)
            if option is not None:
                record("question", id, "right" if option.right else option.text)

    return quiz


def judge(question: Question, answer: str) -> tuple[Option | None, str]:
    """The option of a letter, None if there is none, and the line that says how good it is."""
    letters = _LETTERS[: len(question.options)]
    letter = answer.strip().upper() if isinstance(answer, str) else ""
    if len(letter) != 1 or letter not in letters:
        return None, f"✗ {question.id}  answer with one of the letters {', '.join(letters)}."
    option = question.options[letters.index(letter)]
    return option, f"{'✓' if option.right else '✗'} {question.id}  {option.why}"


def as_html(question: Question) -> str:
    """The question as HTML, each option's explanation behind a fold."""
    items = "\n".join(
        f"<li>{_code(o.text)}<details><summary>Is it this one?</summary>"
        f"<p><b>{'Right.' if o.right else 'No.'}</b> {_code(o.why)}</p></details></li>"
        for o in question.options
    )
    return f'<p><b>Question {question.id}.</b> {_code(question.text)}</p>\n<ol type="A">\n{items}\n</ol>'


def as_text(question: Question) -> str:
    """The question as plain text, the answers after all the options."""
    asked = [f"  {letter}. {o.text}" for letter, o in zip(_LETTERS, question.options, strict=False)]
    answers = [
        f"  {letter}. {'Right.' if o.right else 'No.'} {o.why}"
        for letter, o in zip(_LETTERS, question.options, strict=False)
    ]
    return "\n".join([f"Question {question.id}. {question.text}", *asked, "", "Answers", *answers])


def _code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
