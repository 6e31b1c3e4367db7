"""The rooms that must start in a blink load neither torch nor transformers.

A room that computes with the models says so at its top. Every other one there is, found and not listed,
must load without them, through whatever it imports.
"""

import re
import subprocess
import sys
from pathlib import Path

import course_lib

ALWAYS_LIGHT = {"theory", "intervals", "replay", "costs", "roofline", "engines", "traces", "prompts",
                "__main__"}
HEAVY = re.compile(r"^(import|from) (torch|transformers)\b", re.MULTILINE)

IMPORT_EACH = """
import importlib, sys
for room in sys.argv[1:]:
    importlib.import_module(f"course_lib.{room}")
    if loaded := {"torch", "transformers"} & sys.modules.keys():
        sys.exit(f"importing course_lib.{room} loads {', '.join(sorted(loaded))}")
"""


def test_rooms_without_a_model_import_no_torch():
    package = Path(course_lib.__file__).parent
    rooms = [".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
             for path in sorted(package.rglob("*.py")) if not HEAVY.search(path.read_text(encoding="utf-8"))]
    rooms.remove("__init__")
    assert set(rooms) >= ALWAYS_LIGHT
    done = subprocess.run([sys.executable, "-c", IMPORT_EACH, *rooms], check=False, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
