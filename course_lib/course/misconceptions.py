"""Every wrong turn that a check knows by name, and what it says, on one page for those who teach.

    python -m course_lib.course.misconceptions      writes notebooks/MISCONCEPTIONS.md

Each line is what a planted wrong answer really meets: the page is made by asking the checks.
"""

from __future__ import annotations

from importlib import import_module

from course_lib.course.checks import EXERCISES, Exercise, judge
from course_lib.course.outline import NOTEBOOKS, Notebook, outline
from course_lib.files import write_text

HEAD = """# Misconceptions

What people get wrong in the exercises, as the checks know it by name, and what each wrong answer is told.
Made by `python -m course_lib.course.misconceptions` from the checks themselves: {turns} wrong turns in
{exercises} exercises. An answer that is wrong in no known way is shown one input for which it differs.
"""


def page(notebooks: list[Notebook]) -> str:
    """The page as Markdown. Imports every check and runs its planted wrong answers (seconds, and torch)."""
    parts, exercises, turns = [], 0, 0
    for notebook in notebooks:
        import_module(f"course_lib.course.checks_{notebook.number}")
        tasks = {task.id: task for task in notebook.exercises}
        known = {one.id: one for (number, _), one in EXERCISES.items() if number == notebook.number}
        parts.append(f"\n## {notebook.number} · [{notebook.title}]({notebook.name}.ipynb)")
        for id, task in tasks.items():
            lines = turned(known[id])
            exercises, turns = exercises + 1, turns + len(lines)
            parts.append(f"\n**{id}** · `{known[id].name}` · {task.level}\n")
            parts += [f"- *{name}*: {line}" for name, line in lines.items()]
    return HEAD.format(turns=turns, exercises=exercises) + "\n".join(parts) + "\n"


def turned(exercise: Exercise) -> dict[str, str]:
    """name of a wrong turn -> what its planted answer is told, without mark and number."""
    planted = {name: function for name, (function, _) in exercise.wrong.items()}
    planted |= {name: wrong for name, (_, wrong) in exercise.diagnose.items()}
    told = {name: judge(exercise, function).line for name, function in planted.items()}
    return {name: line.removeprefix(f"✗ {exercise.id}  ") for name, line in told.items()}


if __name__ == "__main__":
    write_text(NOTEBOOKS / "MISCONCEPTIONS.md", page(outline()))
