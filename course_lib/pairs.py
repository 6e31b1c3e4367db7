"""A pair: the target whose text is wanted, the draft that guesses it, and their one vocabulary.

    load_pair("smol")                      the embedded pair, real and small
    load_pair("h100")                      Llama-3.1-8B with Llama-3.2-1B, for a GPU
    load_pair("org/target", "org/draft")   any two Hugging Face ids, or folders
    load_pair("target", "draft@4096")      a draft of `distill` that proposes only the most frequent tokens
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from transformers.utils import logging

from course_lib.fetch import DRAFT_FOLDER, TARGET_FOLDER
from course_lib.graphs import make_graphs
from course_lib.lean import make_lean
from course_lib.lookup import Lookup
from course_lib.reduced import reduce_head

REGISTRY = {
    "smol": (str(TARGET_FOLDER), str(DRAFT_FOLDER)),
    "laptop": ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    "h100": ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
    "h100-70b": ("meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
          "float64": torch.float64}
LOOKUPS = ("first", "only")
REFETCH = ("delete it (a folder, or its entry in the hub's cache) and fetch it again, or make it again if it "
           "is your own")

_RESERVED = re.compile(r"reserved|unused|extra_id", re.IGNORECASE)


class PairError(ValueError):
    """A pair that cannot be used; the message says why and what to do."""


@dataclass
class Pair:
    """Two causal language models of the Llama architecture on one vocabulary.

    eos: the token ids that end a text (Llama-3 has three). context: the most positions both can read.
    device: where token ids go in; a target spread over several GPUs moves them on by itself.
    lookup: drafts come from the text itself where it has a guess (`lookup`), elsewhere from the draft; if
    that is None, from nowhere.
    """

    name: str
    target: torch.nn.Module
    draft: torch.nn.Module | None
    tokenizer: object
    eos: frozenset[int]
    context: int
    device: torch.device
    dtype: torch.dtype
    lookup: Lookup | None = None

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of chat messages, ready for the assistant's answer."""
        return _encode(self.tokenizer, messages)


def load_pair(name_or_target: str = "smol", draft: str | None = None, device: str | None = None,
              dtype: str | None = None, lookup: str | None = None) -> Pair:
    """Load a pair by its registry name, or target and draft by Hugging Face id or folder.

    device: "cpu", "cuda", "cuda:1", "mps", or "auto" (spread the target over every GPU); by default
    the GPU if there is one. dtype: float32, bfloat16, float16 or float64; by default bfloat16 on a
    GPU and on processors that compute in it, else float32 (bfloat16 without such instructions is
    slower, not faster; its float32 products read 16-bit weights where that loses nothing: `packed`, `lean`).
    lookup: "first" drafts from the text itself where it has a guess, else from the draft; "only" needs no
    draft, and loads none.
    Raises PairError when weights are missing, gated or damaged, or when the vocabularies differ.
    """
    if lookup not in (None, *LOOKUPS):
        raise PairError(f"lookup is {' or '.join(LOOKUPS)}, not {lookup!r}")
    if draft is None and lookup == "only" and name_or_target not in REGISTRY:
        name, target = Path(name_or_target).name, name_or_target
    elif draft is None:
        if name_or_target not in REGISTRY:
            raise PairError(f"there is no pair {name_or_target!r}: choose from {', '.join(REGISTRY)}, "
                            "or give a target and a draft (Hugging Face ids or folders)")
        name, (target, draft) = name_or_target, REGISTRY[name_or_target]
    else:
        name, target = f"{Path(name_or_target).name} + {Path(draft).name}", name_or_target
    device, spread = device_of(device, name)
    chosen = _dtype(dtype, device)
    tokenizer = from_hub(transformers.AutoTokenizer, target)
    if lookup != "only":
        _check_tokenizer(tokenizer, draft)
    model = load_model(target, chosen, device, spread)
    (make_graphs if device.type == "cuda" else make_lean)(model)
    pair = Pair(name, model, None, tokenizer, eos_of(model), context_of(model.config), device, chosen,
                Lookup() if lookup else None)
    return pair if lookup == "only" else _with_model(pair, draft)


def load_encoder(name_or_target: str = "smol") -> Callable[[list[dict[str, str]]], list[int]]:
    """`Pair.encode` of a pair, without its models. Raises PairError where its tokenizer cannot be read.

    name_or_target: as `load_pair` takes it with lookup="only": a registry name, or the target alone.
    """
    target, _ = REGISTRY.get(name_or_target, (name_or_target, None))
    return partial(_encode, from_hub(transformers.AutoTokenizer, target))


def with_draft(pair: Pair, draft: str) -> Pair:
    """The same target with another draft: an id or folder, cut by @N or not, or "lookup" for the text itself.

    Raises PairError as `load_pair` does.
    """
    pair = replace(pair, name=f"{pair.name.split(' + ')[0]} + {Path(draft).name}", lookup=None, draft=None)
    if draft == "lookup":
        return replace(pair, lookup=Lookup())
    _check_tokenizer(pair.tokenizer, draft)
    return _with_model(pair, draft)


def with_untrained_draft(pair: Pair) -> Pair:
    """The same target with a draft that knows nothing: the draft's shape and speed, random weights.

    The weights come from torch's global generator.
    """
    model = type(pair.draft)(pair.draft.config)
    model = model.half().to(pair.device, pair.dtype).eval()  # 16 bits, as in a checkpoint: see `packed`
    return _with_model(pair, pair.draft.name_or_path, model)


def check_vocabularies(target: dict[str, int], draft: dict[str, int]) -> None:
    """Refuse, with PairError, two vocabularies (token → id) that give one id two meanings.

    Only content counts. Sizes may differ: embeddings are padded to round numbers, and a token that
    one side lacks is simply never proposed, or never accepted.
    """
    meaning = {index: token for token, index in target.items()}
    shared = [(index, token) for token, index in draft.items() if index in meaning]
    # Reserved slots get a name in a later release of the same family; nobody writes them.
    different = [(index, token) for index, token in shared if meaning[index] != token
                 and not _RESERVED.search(token) and not _RESERVED.search(meaning[index])]
    if not shared or different:
        index, token = min(different, default=(0, "nothing"))
        raise PairError(f"target and draft have different vocabularies ({len(target)} and {len(draft)} "
                        f"tokens; id {index} is {meaning.get(index, 'nothing')!r} for the target and "
                        f"{token!r} for the draft): speculative decoding needs a draft with the target's "
                        "tokenizer")


def _with_model(pair: Pair, draft: str, model: torch.nn.Module | None = None) -> Pair:
    source, few = _cut(draft)
    if model is None:
        model = load_model(source, pair.dtype, pair.device, False)
    try:
        reduce_head(model, source, few)
    except ValueError as error:
        raise PairError(str(error)) from None
    if few is not None:
        model.name_or_path = f"{model.name_or_path}@{few}"
    (make_graphs if pair.device.type == "cuda" else make_lean)(model)
    return replace(pair, draft=model, context=min(pair.context, context_of(model.config)))


def _encode(tokenizer, messages: list[dict[str, str]]) -> list[int]:
    if tokenizer.chat_template is None:  # a base model: plain text
        return tokenizer("\n".join(message["content"] for message in messages))["input_ids"]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]


def _check_tokenizer(target, draft: str) -> None:
    source = _cut(draft)[0]
    # Read even where both have the same tokenizer.json: other files of the folder add tokens to it.
    check_vocabularies(target.get_vocab(), from_hub(transformers.AutoTokenizer, source).get_vocab())


def _cut(draft: str) -> tuple[str, int | None]:
    """"FOLDER@4096" as the folder and how many tokens it may propose; without @ that is None."""
    source, at, few = draft.rpartition("@")
    return (source, int(few)) if at and few.isdecimal() and not Path(draft).exists() else (draft, None)


def device_of(device: str | None, name: str) -> tuple[torch.device, bool]:
    """Where a pair runs (None: a GPU if there is one), and whether its target is spread over all GPUs.

    Raises PairError for a device that this machine lacks.
    """
    spread = device == "auto" or (device is None and name == "h100-70b" and torch.cuda.device_count() > 1)
    if spread and not torch.cuda.is_available():
        raise PairError("device auto spreads the target over GPUs, and there is none: use --device cpu")
    if device in (None, "auto"):
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.zeros(1, device=chosen).item()  # "meta" exists but holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise PairError(f"device {device!r} cannot be used here ({str(error).splitlines()[0]}): "
                        "use --device cpu") from error
    return chosen, spread


def _dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    if dtype is not None:
        if dtype not in DTYPES:
            raise PairError(f"there is no dtype {dtype!r}: choose from {', '.join(DTYPES)}")
        return DTYPES[dtype]
    if device.type != "cpu":
        return torch.bfloat16
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    return torch.bfloat16 if "avx512_bf16" in flags or "amx_bf16" in flags else torch.float32


def load_model(source: str, dtype: torch.dtype, device: torch.device, spread: bool):
    """A causal model from a folder or the hub, in evaluation mode. Raises PairError, with the remedy."""
    placing = {"device_map": "auto"} if spread else {}
    if Path(source).exists():  # seconds; only a download is worth a bar
        logging.disable_progress_bar()
    model, found = from_hub(transformers.AutoModelForCausalLM, source, dtype=dtype, output_loading_info=True,
                            **placing)
    missing = found["missing_keys"]
    if missing:  # transformers would fill them with random numbers and only warn
        raise PairError(f"the weights of {source} are incomplete: {len(missing)} tensors are missing, "
                        f"{min(missing)} among them: {REFETCH}")
    changes_logits = any(getattr(model.config, name, None) not in (None, 1)
                         for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"))
    if changes_logits or not (hasattr(model, "lm_head") and hasattr(getattr(model, "model", None), "layers")):
        raise PairError(f"{source} is a {type(model).__name__}: this decoder reads models of the Llama "
                        "architecture (model.model, then model.lm_head and nothing after it)")
    if not spread:
        model.to(device)
    return model.eval()


def context_of(config) -> int:
    """The most tokens, prompt included, that a model of this config reads as it should."""
    # Behind a sliding window a token sees less than our mask shows it; before, they are the same.
    return min(config.max_position_embeddings, getattr(config, "sliding_window", None) or 2**31)


def from_hub(loader, source: str, **options):
    """What a class of transformers loads from a folder or the hub. Raises PairError, with the remedy."""
    folder = Path(source).expanduser()
    looks_local = folder.is_absolute() or source.startswith(".") or source.count("/") > 1
    if (looks_local or folder.exists()) and not (folder / "config.json").exists():
        fetched = str(folder) in REGISTRY["smol"]
        raise PairError(f"there is no model in {folder} (no config.json): "
                        + ("run python -m course_lib fetch" if fetched else "check the path"))
    try:
        return loader.from_pretrained(str(folder) if folder.exists() else source,
                                      local_files_only=folder.exists(), **options)
    except Exception as error:  # every library below has its own exceptions; the learner needs a remedy
        raise PairError(_explain(source, folder, error)) from error


def _explain(source: str, folder: Path, error: Exception) -> str:
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    words = " ".join(str(error).split())[:160] or type(error).__name__

    def caused_by(*kinds):
        return any(isinstance(link, kinds) for link in chain)

    if caused_by(MemoryError, torch.OutOfMemoryError):
        return f"{source} does not fit into memory here: choose a smaller pair, or --dtype bfloat16"
    if caused_by(GatedRepoError):  # before the next: the hub counts it as one kind of "not found"
        return (f"{source} is gated: accept its licence on its Hugging Face page, then log in with "
                "`hf auth login` or set HF_TOKEN")
    if caused_by(RepositoryNotFoundError):
        return (f"there is no model {source!r} on the Hugging Face hub (or it is private), and no such "
                "folder here: check the name, or log in with `hf auth login`")
    if not folder.exists() and caused_by(LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled,
                                         ConnectionError, TimeoutError, httpx.TransportError):
        offline = " (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else ""
        return (f"{source} is not on this machine and could not be downloaded{offline}: connect once, or "
                f"give a folder that holds it. The hub's words: {words}")
    return (f"{source} cannot be read, a file is missing or damaged ({type(error).__name__}: {words}): "
            f"{REFETCH}")


def eos_of(model) -> frozenset[int]:
    """The tokens that end a text of this model."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.eos_token_id
    return frozenset([ids] if isinstance(ids, int) else ids or [])
