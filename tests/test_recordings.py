"""Recordings are found by name, and a missing one names the command that makes it."""

import pytest

from course_lib.recordings import recording


def test_a_recording_is_found_by_its_name(tmp_path):
    (tmp_path / "smol-t0.parquet").write_bytes(b"PAR1")
    assert recording("smol-t0.parquet", tmp_path) == tmp_path / "smol-t0.parquet"


def test_a_missing_one_names_the_command_and_what_is_there(tmp_path):
    (tmp_path / "costs-cpu.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no recording smol-t9.parquet .*costs-cpu.json.*make recordings"):
        recording("smol-t9.parquet", tmp_path)
    with pytest.raises(ValueError, match="here are: none"):
        recording("x", tmp_path / "nowhere")
