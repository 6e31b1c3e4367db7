"""Settings shared by all tests."""

import os

from hypothesis import settings

# Before torch is there. Threads of workers that share a core wait for each other, a hundred times over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says nothing on a busy machine. In CI the same examples every time: a
# red run there is about the change, and new examples are met at the desk.
settings.register_profile("course", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("course")
