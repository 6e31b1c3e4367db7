"""What a machine with CUDA adds to the course, in one run of a few minutes: `make gpu`.

    the tests that need CUDA
    costs-gpu-*.json      round costs of Llama-3.1-8B with Llama-3.2-1B at their true shapes
    smol-costs-gpu.json   the same of the embedded pair in bfloat16, where its weights are here
    h100-gpu-t*.parquet   real acceptance of the two Llamas, where their weights are here

The Llamas of the first costs are initialised at random. A step's time depends on the shapes of what it reads
and multiplies, not on the values (but for some per cent by which a chip slows down when its bits flip more),
so it is that of the real ones. Acceptance does depend on them: nothing about it can be learned from such a
pair. Each batch is timed inside the decoder's rounds (`timing`) and step by step, under graphs (`graphs`)
and eagerly, where a small draft costs what launching its kernels costs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from huggingface_hub import try_to_load_from_cache

from course_lib.cache import KVCache, forward
from course_lib.costs import CostTable, RoundCosts
from course_lib.fetch import DRAFT_FOLDER, ROOT, TARGET_FOLDER
from course_lib.graphs import StaticLayers
from course_lib.lean import make_lean
from course_lib.measure import run_measure, show
from course_lib.pairs import REGISTRY, Pair, load_pair
from course_lib.prompts import load_prompts
from course_lib.recordings import RECORDINGS
from course_lib.roofline import MODELS, Model
from course_lib.sampling import GREEDY, Sampling
from course_lib.timing import cost_meta, costs_from_times, measure_costs, spread, time_rounds

COMMAND = "make gpu"
NO_CUDA = ("make gpu needs an NVIDIA GPU and a PyTorch built for CUDA, and PyTorch sees none here: nothing "
           "was measured.")
ROPE = {"Llama-3.2-1B": 32.0}  # the factor of Llama-3's scaled rotation; 8 for the larger models
ALPHAS = (0.6, 0.74, 0.85)


@dataclass(frozen=True)
class Plan:
    """What is timed. sizes: by how many positions a cache has, which batches; context is what of it is full.

    new_tokens: how much text a batch writes, with k changing each round. repeats: of each step on its own.
    """

    target: Model = MODELS["llama-3.1-8b"]
    draft: Model = MODELS["llama-3.2-1b"]
    dtype: torch.dtype = torch.bfloat16
    widths: tuple[int, ...] = tuple(range(1, 18))
    sizes: tuple[tuple[int, tuple[int, ...]], ...] = ((512, (1, 2, 4, 8, 16, 32, 64)), (8192, (1, 4, 16)))
    new_tokens: int = 208
    repeats: int = 12


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m course_lib.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=RECORDINGS, help="folder for the recordings")
    parser.add_argument("--budget", type=float, default=400.0, help="seconds after which nothing is begun")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(NO_CUDA, file=sys.stderr)
        return 2
    passed = run_tests()
    device = torch.device("cuda", torch.cuda.current_device())
    written = run(Plan(), device, asked.out, asked.budget, asked.seed)
    return 0 if passed and written else 1


def run_tests() -> bool:
    """The tests marked `gpu`, in a process of their own; whether all passed."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider",
                           str(ROOT / "tests" / "test_cuda.py")], check=False, cwd=ROOT)
    return done.returncode == 0


def run(plan: Plan, device: torch.device, out: Path, budget: float = 400.0, seed: int = 0,
        say: Callable[[str], None] = print) -> list[Path]:
    """Everything but the tests; returns the files written. On a processor nothing is recorded as a graph.

    budget: seconds after which nothing new is begun; what was left out is said, and noted in the files.
    """
    out.mkdir(parents=True, exist_ok=True)
    deadline, written = time.monotonic() + budget, []
    pair = random_pair(plan, device, seed)
    for size in plan.sizes:
        for way in ("graphs", "eager"):
            path = out / f"costs-gpu-{way}-{size[0]}.json"
            if table := shape_costs(plan, pair, way, *size, path, deadline, seed, say):
                written.append(path)
                meta = table.meta
                say(f"\n{path.name}: {meta['machine']}, {way}, context {meta['context']}, random weights; "
                    f"times in ms\n{summary(table)}\n")
    del pair
    if device.type == "cuda":  # real weights on a processor are what the rest of the course is about
        for stage in (real_costs, real_acceptance):
            if time.monotonic() < deadline:
                written += stage(device, out, seed, say)
            else:
                say(f"{stage.__name__.replace('_', ' ')}: left out, time was up")
    return written


def real_costs(device: torch.device, out: Path, seed: int, say: Callable[[str], None]) -> list[Path]:
    """Round costs of the embedded pair, if it is here."""
    if not all((folder / "config.json").exists() for folder in (TARGET_FOLDER, DRAFT_FOLDER)):
        say("the embedded pair is not here: `python -m course_lib fetch` brings it")
        return []
    path = out / "smol-costs-gpu.json"
    table = measure_costs(load_pair("smol", device=str(device)), load_prompts(limit=8), (1, 8, 32),
                          forwards=False, seed=seed, command=COMMAND)
    table.save(path)
    say(f"\n{path.name}: the embedded pair in {table.meta['dtype']}\n{summary(table)}\n")
    return [path]


def real_acceptance(device: torch.device, out: Path, seed: int, say: Callable[[str], None]) -> list[Path]:
    """Traces of Llama-3.1-8B with Llama-3.2-1B at two temperatures, if their weights are here."""
    if not all(isinstance(try_to_load_from_cache(name, "config.json"), str) for name in REGISTRY["h100"]):
        say(f"the weights of {' and '.join(REGISTRY['h100'])} are not here: real acceptance was not measured")
        return []
    pair, paths = load_pair("h100", device=str(device)), []
    for temperature in (0.0, 1.0):
        paths.append(out / f"h100-gpu-t{temperature:g}.parquet")
        show(run_measure(pair, load_prompts(limit=8), Sampling(temperature), seed=seed, out=paths[-1],
                         command=COMMAND))
    return paths


def shape_costs(plan: Plan, pair: Pair, way: str, positions: int, batches: tuple[int, ...], path: Path,
                deadline: float, seed: int, say: Callable[[str], None]) -> CostTable | None:
    """Time one way ("graphs" or "eager") at each batch that time and memory allow; save after each."""
    for model in (pair.target, pair.draft):
        lean = model.__dict__["lean"]
        lean = lean.lean if isinstance(lean, StaticLayers) else lean
        graphs = StaticLayers(lean, capture=pair.device.type == "cuda") if way == "graphs" else lean
        model.__dict__["lean"] = graphs  # what was recorded before gives its memory back
    random, generator = np.random.default_rng(seed), torch.Generator(pair.device).manual_seed(seed)
    ks = [width - 1 for width in plan.widths if width > 1]
    length = positions - plan.new_tokens - max(ks)
    costs, meta = {}, cost_meta(pair, GREEDY, "sample", COMMAND) | {
        "weights": "random; the time of a step does not depend on their values", "layers": way, "seed": seed,
        "driver": driver(pair.device), "cuda": torch.version.cuda, "positions": positions, "context": 0,
        "left_out": {}, "rounds": {}, "forwards": {}}
    table = None
    for batch in batches:
        if time.monotonic() > deadline:
            meta["left_out"][str(batch)] = "time was up"
            continue
        rows = random.integers(pair.target.config.vocab_size, size=(batch, length)).tolist()
        try:
            steps = time_steps(pair, batch, length, positions, plan.widths, plan.repeats, random)
            times = time_rounds(pair, rows, ks, plan.new_tokens, GREEDY, "sample", generator, random)
        except RuntimeError as error:  # memory that ends while a graph is recorded has other names, too
            full = isinstance(error, torch.OutOfMemoryError)
            meta["left_out"][str(batch)] = "memory was full" if full else str(error).splitlines()[0]
            continue
        times = times[times.k.isin([0, *ks])]
        costs[batch] = costs_from_times(times)
        meta["rounds"][str(batch)], meta["forwards"][str(batch)] = spread(times), steps
        meta["context"] = round(float(times.context.mean()))
        table = CostTable(dict(costs), meta)
        table.save(path)
    if meta["left_out"]:
        say(f"{way}, {positions} positions, left out: "
            + ", ".join(f"batch {batch} ({why})" for batch, why in meta["left_out"].items()))
        if table:
            table.save(path)
    return table


@torch.inference_mode()
def time_steps(pair: Pair, batch: int, length: int, positions: int, widths: tuple[int, ...], repeats: int,
               random: np.random.Generator) -> dict:
    """Steps on their own, each with its head, behind `length` tokens a row in a cache of `positions`.

    Returns {"draft" or "verify": {width: [lower quartile, median, upper quartile]}} in seconds. The widths
    come in a new random order each time.
    """
    found = {}
    for role, model, asked in (("draft", pair.draft, (1, 2)), ("verify", pair.target, widths)):
        tokens = torch.randint(model.config.vocab_size, (batch, max(asked)), device=pair.device)
        cache = KVCache(batch, positions, pair.device)
        start = torch.full_like(cache.lengths, length)
        seconds = {width: [] for width in asked}
        for repeat in range(repeats + 2):  # two to warm up: the first has zeros in the cache, too
            for width in random.permutation(asked).tolist():
                cache.lengths = start
                taken = _seconds(partial(forward, model, tokens[:, :width], cache), pair.device)
                if repeat > 1:
                    seconds[width].append(taken)
            if not repeat:
                for store in (*cache.keys, *cache.values):
                    store.normal_()
        found[role] = {str(w): np.quantile(each, [0.25, 0.5, 0.75]).tolist() for w, each in seconds.items()}
    return found


def random_pair(plan: Plan, device: torch.device, seed: int) -> Pair:
    """Target and draft of the plan's shapes with lean layers and random weights, made on the device."""
    torch.manual_seed(seed)
    models = []
    for shape in (plan.target, plan.draft):
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config_of(shape), dtype=plan.dtype).eval()
        make_lean(model, packed=False)
        models.append(model)
    context = min(model.config.max_position_embeddings for model in models)
    name = f"{plan.target.name} + {plan.draft.name}, random weights"
    return Pair(name, *models, None, frozenset(), context, device, plan.dtype)


def config_of(shape: Model) -> transformers.LlamaConfig:
    """The configuration of a Llama-3 model of this shape, its scaled rotation included."""
    rope = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": ROPE.get(shape.name, 8.0),
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, tie_word_embeddings=shape.tied, rms_norm_eps=1e-5, rope_parameters=rope,
        max_position_embeddings=131_072, bos_token_id=None, eos_token_id=None)
    config._name_or_path = f"{shape.name}, random weights"
    return config


def summary(table: CostTable) -> str:
    """A line a batch: times in ms, the verify in plain steps, and the best k of independent drafts."""
    lines = []
    for batch, at in sorted(table.batches.items()):
        widest, plain = max(at.t_verify), at.round_seconds(0)
        best = {f"best k, α={alpha}": "{} ({:.2f}×)".format(*at.best_k(alpha, widest - 1))
                for alpha in ALPHAS}
        lines.append({"batch": batch, "plain": f"{1e3 * plain:.2f}", "draft": f"{1e3 * at.t_draft:.2f}",
                      "c": f"{at.t_draft / plain:.3f}", "overhead": f"{1e3 * at.overhead:.2f}",
                      **{f"verify {w}": f"{at.t_verify[w] / plain:.2f}" for w in _some(at)}, **best})
    return pd.DataFrame(lines).to_string(index=False)


def driver(device: torch.device) -> str:
    """The NVIDIA driver's version, or "" where nobody says."""
    if device.type != "cuda":
        return ""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              check=True, capture_output=True, text=True, timeout=20).stdout
        return said.splitlines()[0].strip()
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def _some(costs: RoundCosts) -> list[int]:
    return [width for width in (2, 5, 9, 17) if width in costs.t_verify]


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    """One step, from an idle device until its work is done: a decoder, too, waits before it goes on."""
    if device.type != "cuda":
        started = time.perf_counter()
        step()
        return time.perf_counter() - started
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


if __name__ == "__main__":
    sys.exit(main())
