"""The text a draft learns from: the target's own answers, or given ones.

Every token is stored with the target's last hidden state behind it, so that training needs the
target's head but not its layers. For the shipped draft the work is cut into passes over the training
prompts and chunks of a pass; a chunk's file is a function of (seed, pass, chunk) alone, so writing can
stop, go on, and be shared between processes.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from course_lib.cache import KVCache, forward_hidden
from course_lib.fetch import MODELS, TARGET_FOLDER
from course_lib.files import replacing
from course_lib.packed import pack
from course_lib.prompts import ROUTES, load_prompts
from course_lib.sampling import Sampling, draw, probabilities

WORK = MODELS / "distill"
PARTS = 3  # a pass answers every third training prompt, the next pass the next
# Answers to each prompt of chat, code and JSON, by pass. JSON has the shortest answers, and the most to gain.
SAMPLES = ((3, 3, 3), *[(2, 2, 2)] * 4, *[(2, 3, 4)] * 2, *[(1, 1, 3)] * 3)
PASSES = len(SAMPLES)
# The first seven passes were written when there were no more prompts of a route than this.
EARLY, EARLY_PROMPTS = 7, 410
CHUNK = 22  # prompts written together
TOP = 8  # of the target's likeliest tokens are stored at each position
VALIDATION = 8  # training prompts a route that are never trained on


def write_passes(
    passes,
    new_tokens: int = 128,
    seed: int = 0,
    share: tuple[int, int] = (0, 1),
    work: Path = WORK,
    say=print,
) -> None:
    """Let the target answer the training prompts: pass i takes every PARTS-th prompt,
    SAMPLES[i][route] times.

    Writes work/text-PASS-CHUNK.safetensors; chunks that are there are kept. A chunk's text depends on
    (seed, pass, chunk) alone, so `share` (worker, workers) splits the chunks between processes.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(TARGET_FOLDER)
    model = load_model(TARGET_FOLDER)
    pack(model)
    work.mkdir(parents=True, exist_ok=True)
    for index in passes:
        for number, chunk in enumerate(_chunks(tokenizer, index)):
            path = _text_file(work, index, number)
            if path.exists() or number % share[1] != share[0]:
                continue
            started = time.perf_counter()
            generator = torch.Generator().manual_seed(seed * 1_000_000 + index * 1_000 + number)
            every = _every_answer([SAMPLES[index][route] for route, _, _ in chunk])
            routes, held, prompts = zip(*chunk, strict=True)
            texts, hidden = answer(model, prompts, every, new_tokens, generator, [tokenizer.eos_token_id])
            save_rows(path, model.lm_head, [prompts[i] for i in every], texts, hidden,
                      route=torch.tensor(routes)[every], held_back=torch.tensor(held)[every])
            count, seconds = sum(map(len, texts)), time.perf_counter() - started
            say(f"pass {index} chunk {number}: {count} tokens, {count / seconds:.0f} a second")


@torch.inference_mode()
def answer(model, prompts, every, new_tokens, generator, eos):
    """An answer to prompts[i] for each i in `every`, drawn at temperature 1: token lists, and for each the
    hidden states [length, size] behind its tokens. eos: ids that end a text."""
    device = model.device
    lengths = torch.tensor([len(ids) for ids in prompts], device=device)
    ends = torch.tensor(list(eos), dtype=torch.long, device=device)
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in prompts], batch_first=True)
    cache = KVCache(len(prompts), tokens.shape[1] + new_tokens, device)
    states = forward_hidden(model, tokens.to(device), cache)
    cache.lengths = lengths  # right padding is taken back like a rejected draft
    cache.keep_rows(every)  # one reading of a prompt serves all its answers
    state = states[every, lengths[every] - 1]
    texts, hidden = [[] for _ in every], [[] for _ in every]
    rows, ended = torch.arange(len(every)), torch.zeros(len(every), dtype=torch.bool, device=device)
    for _ in range(new_tokens):
        token = draw(probabilities(model.lm_head(state), Sampling(1.0)), generator)
        for i in (~ended).nonzero()[:, 0].tolist():
            texts[rows[i]].append(int(token[i]))
            hidden[rows[i]].append(state[i].clone())
        ended = ended | torch.isin(token, ends)
        if ended.all():
            break
        if ended.float().mean() > 0.2:  # moving the cache is dear: do it for many rows at once
            going = (~ended).nonzero()[:, 0]
            cache.keep_rows(going)
            rows, token, ended = rows[going.cpu()], token[going], ended[going]
        state = forward_hidden(model, token[:, None], cache)[:, -1]
    return texts, [torch.stack(row) for row in hidden]


def read_pass(work: Path, index: int) -> list[dict]:
    """Every row of a pass; files that another process is still writing are waited for."""
    count = sum(len(_numbers(route, index)) for route in ROUTES)
    rows = []
    for number in range(math.ceil(count / CHUNK)):
        path = _text_file(work, index, number)
        while not path.exists():
            time.sleep(5)
        rows += load_rows(path)
    return rows


def save_rows(path: Path, head, prompts, texts, hidden, **columns: torch.Tensor) -> None:
    """Write texts (token ids) behind prompts, with the states [length, size] behind each of their tokens and
    whatever `columns` say of each row. head: the target's, for its likeliest tokens."""
    states = torch.cat(list(hidden))
    with replacing(path) as part:
        save_file(
            {
                **columns,
                "prompt": torch.tensor([token for ids in prompts for token in ids]),
                "prompt_length": torch.tensor([len(ids) for ids in prompts]),
                "text": torch.tensor([token for text in texts for token in text]),
                "text_length": torch.tensor([len(text) for text in texts]),
                "hidden": states.half().cpu(),
                "top": top_tokens(head, states.half().to(states.dtype)).cpu(),
            },
            part,
        )


def load_rows(path: Path) -> list[dict]:
    """What `save_rows` wrote: of each row prompt, text, hidden, top (TOP tokens a position), its columns."""
    data = load_file(path)
    lengths = data.pop("text_length").tolist()
    columns = {"prompt": data.pop("prompt").split(data.pop("prompt_length").tolist())}
    columns |= {key: data.pop(key).split(lengths) for key in ("text", "hidden", "top")}
    columns |= {key: column.tolist() for key, column in data.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def token_counts(work: Path, vocabulary: int = 0) -> np.ndarray:
    """How often each token stands in all the written text [largest token + 1, or more]."""
    texts = []
    for path in sorted(work.glob("text-*.safetensors")):
        with safe_open(path, "pt") as file:
            texts.append(file.get_tensor("text").numpy())
    return np.bincount(np.concatenate(texts), minlength=vocabulary)


def by_frequency(times: np.ndarray) -> np.ndarray:
    """Token ids, most frequent first; of equals the lower, which a BPE vocabulary merged earlier."""
    return np.argsort(-times, kind="stable")


@torch.inference_mode()
def top_tokens(head, hidden) -> torch.Tensor:
    """The TOP likeliest tokens under hidden states [tokens, size], as int32 [tokens, TOP]."""
    parts = [head(part).topk(TOP).indices for part in hidden.split(256)]
    return torch.cat(parts).int()


def load_model(folder: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                             local_files_only=True).eval()


def _text_file(work: Path, index: int, number: int) -> Path:
    return work / f"text-{index}-{number:02d}.safetensors"


def _chunks(tokenizer, index: int) -> list[list[tuple[int, bool, list[int]]]]:
    """The pass's prompts as (route, held back for validation?, token ids), similar lengths together."""
    rows = []
    for route, name in enumerate(ROUTES):
        for number in _numbers(name, index):
            messages = _training_prompts(name)[number].messages
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
            rows.append((route, number in _held_back(), ids))
    rows.sort(key=lambda row: len(row[2]))
    return [rows[i : i + CHUNK] for i in range(0, len(rows), CHUNK)]


def _numbers(route: str, index: int) -> list[int]:
    """Which of the route's training prompts a pass answers; those held back only in pass 0."""
    count = len(_training_prompts(route))
    numbers = range(index % PARTS, min(count, EARLY_PROMPTS) if index < EARLY else count, PARTS)
    return [number for number in numbers if index == 0 or number not in _held_back()]


def _held_back() -> range:
    return range(0, PARTS * VALIDATION, PARTS)


@lru_cache
def _training_prompts(route: str):
    return load_prompts([route], "train")


def _every_answer(samples: list[int]) -> torch.Tensor:
    """Which prompt each answer is to: all the first answers, then the second ones, and so on."""
    return torch.tensor([i for n in range(max(samples)) for i, count in enumerate(samples) if n < count])
