"""The rooms that must start in a blink load neither torch nor transformers."""

import importlib.util
import subprocess
import sys

import pytest

ROOMS = ["theory", "beta_geometric", "intervals", "replay", "costs", "roofline", "engines", "traces",
         "prompts"]


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_no_torch(room):
    if importlib.util.find_spec(f"course_lib.{room}") is None:
        pytest.skip(f"course_lib.{room} is not built yet")
    code = (
        f"import course_lib.{room}, sys; "
        "sys.exit(', '.join({'torch', 'transformers'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"importing course_lib.{room}: {done.stderr}"
