"""Every file in data/ says where it came from, and is the file that says so."""

import json

import pytest

from course_lib.manifest import check, read, write

ENTRY = {"generator": "by hand", "seed": None, "versions": {}, "date": "2026-01-31", "licence": "Apache-2.0"}


@pytest.fixture
def data(tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.jsonl").write_text("one\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "large").write_text("not listed")
    list_files(tmp_path, {"prompts/a.jsonl": ENTRY})
    write(tmp_path)
    return tmp_path


def list_files(data, entries):
    (data / "manifest.json").write_text(json.dumps(entries))


def test_the_course_data_is_what_the_manifest_says():
    assert check() == []


def test_write_fills_in_size_and_sum_and_keeps_the_words(data):
    assert check(data) == []
    entry = read(data)["prompts/a.jsonl"]
    assert entry["bytes"] == 4 and {field: entry[field] for field in ENTRY} == ENTRY
    assert sorted(path.name for path in data.iterdir()) == ["manifest.json", "models", "prompts"]


def test_a_changed_file_is_found_and_write_renews_it(data):
    (data / "prompts" / "a.jsonl").write_text("two\n")
    assert [problem.split(" is ")[0] for problem in check(data)] == ["data/prompts/a.jsonl"]
    write(data)
    assert check(data) == []


def test_a_file_without_entry_is_found_and_not_written(data):
    (data / "new.bin").write_text("?")
    assert "data/new.bin is not in data/manifest.json: add an entry with generator" in check(data)[0]
    before = (data / "manifest.json").read_text()
    with pytest.raises(ValueError, match="data/new.bin is not in"):
        write(data)
    assert (data / "manifest.json").read_text() == before


def test_an_entry_without_file_is_found_and_not_written(data):
    (data / "prompts" / "a.jsonl").unlink()
    assert "does not exist" in check(data)[0]
    with pytest.raises(ValueError, match="does not exist"):
        write(data)


def test_an_entry_must_say_everything(data):
    list_files(data, {"prompts/a.jsonl": {"generator": "by hand"}})
    lacking = "seed, versions, date, licence, sha256, bytes"
    assert check(data) == [f"the entry of data/prompts/a.jsonl lacks {lacking}."]


@pytest.mark.parametrize("text, said", [(None, "does not exist"), ("{", "is not JSON")])
def test_an_unreadable_manifest_is_refused(data, text, said):
    (data / "manifest.json").unlink()
    if text:
        (data / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=said):
        check(data)
