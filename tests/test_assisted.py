"""The benchmark against transformers: both sides write the same text, and its shares are shares."""

import pytest

from course_lib.assisted import KS, assisted, describe
from course_lib.prompts import load_prompts


def test_both_sides_write_the_same_text_and_are_timed_for_every_k(smol):
    found = assisted(smol, load_prompts(["json"], limit=1), 8)
    assert found["texts"] == len(KS) and found["texts_different"] == 0
    for k in map(str, KS):
        assert all(seconds[k] > 0 for seconds in found["seconds"].values())
        assert found["ratio"][k] == pytest.approx(
            found["seconds"]["transformers"][k] / found["seconds"]["ours"][k])
        assert 0 < found["loop"][k] < 0.5  # forwards are most of a round, and not all
    assert f"median ratio {found['median_ratio']:.2f}" in describe(found)
