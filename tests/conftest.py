"""Settings shared by all tests."""

import os

import pytest
from hypothesis import settings

# Before torch is there. Threads of workers that share a core wait for each other, a hundred times over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing on a busy machine. In CI the same examples every time: a
# red run there is about the change, and new examples are met at the desk.
settings.register_profile("course", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("course")


@pytest.fixture(scope="session")
def smol():
    """The embedded pair in float32, loaded once. Skips where it was not fetched."""
    from course_lib.fetch import DRAFT_FOLDER, TARGET_FOLDER  # here: most tests need neither it nor torch
    from course_lib.pairs import load_pair

    if not all((folder / "config.json").exists() for folder in (TARGET_FOLDER, DRAFT_FOLDER)):
        pytest.skip("the embedded pair is not in data/models: run `python -m course_lib fetch`")
    return load_pair("smol", device="cpu", dtype="float32")
