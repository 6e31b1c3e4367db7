"""Protects what people already have: a write that fails leaves the file before it, and nothing beside it."""

import pytest

from course_lib.files import check_replaceable, replacing, write_text


def test_a_file_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with replacing(path) as part:
        part.write_text("after")
        assert path.read_text() == "before"  # until all is written
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_write_that_fails_changes_nothing(tmp_path, error):
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with pytest.raises(error), replacing(path) as part:
        part.write_text("half of i")
        raise error
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_no_hindrance(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as part:
        left = part
        part.write_text("x")
    left.write_text("of a run that was killed")
    write_text(path, "after")
    assert path.read_text() == "after" and not left.exists()


def test_only_what_was_made_here_may_be_replaced_as_a_whole(tmp_path):
    for fine in ("nothing", "empty", "made"):
        folder = tmp_path / fine
        if fine != "nothing":
            folder.mkdir()
        if fine == "made":
            (folder / "mark.json").touch()
            (folder / "more").touch()
        check_replaceable(folder, "mark.json")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(ValueError, match="holds files of another kind, .*: name a new or an empty folder"):
        check_replaceable(tmp_path / "mine", "mark.json")
    with pytest.raises(ValueError, match="is a file: name a folder"):
        check_replaceable(tmp_path / "mine" / "thesis.txt", "mark.json")
