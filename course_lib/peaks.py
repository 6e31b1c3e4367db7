"""The two peaks of this machine, measured: bytes it reads in a second, and arithmetic it does in one.

A roofline needs both. A GPU has them on its data sheet; of a CPU, with the threads it was given and the
neighbours it has, only a clock knows them. The best of several tries counts: a peak missed because a
neighbour was busy would lift the bound above what the machine can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from course_lib.packed import pack
from course_lib.roofline import Device

READ = (1_024, 49_152)  # in, out: 50 million weights, more than caches hold
WORK, TOKENS = (1_024, 2_048), 1_024


def measure_peaks(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
                  tries: int = 6) -> Device:
    """This machine as a `roofline.Device`, from layers laid out as `load_pair` lays them out.

    bandwidth: bytes of weights that a layer reads for one token, or of a copy, whichever goes faster.
    flops: a layer over 1,024 tokens, or the plain product of the same size, whichever goes faster.
    bytes_per_number: of a weight; 2 where float32 layers on a processor are packed (see `packed`), though
    their cache keeps 4, so that the roofline is still a bound.
    device, dtype: as a `Pair` has them. Takes some seconds on one core, and 500 MB.
    """
    device = torch.device(device)
    with torch.inference_mode():
        layer, weight, size = _layer(*READ, device, dtype)
        x, there = torch.ones(1, READ[0], device=device, dtype=dtype), torch.empty_like(weight)
        reading = weight.numel() * size / _fastest(lambda: layer(x), device, tries)
        copying = 2 * weight.nbytes / _fastest(lambda: there.copy_(weight), device, tries)  # reads and writes

        layer, weight, _ = _layer(*WORK, device, dtype)
        x = torch.ones(TOKENS, WORK[0], device=device, dtype=dtype)
        products = (lambda: layer(x)), (lambda: x @ weight.T)
        seconds = min(_fastest(product, device, tries) for product in products)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU"
    return Device(name, max(reading, copying), 2 * TOKENS * weight.numel() / seconds, size)


def _layer(wide: int, out: int, device: torch.device, dtype: torch.dtype):
    """A layer of ones as a loaded model has it, its weight, and the bytes it reads for each number."""
    layer = torch.nn.Sequential(torch.nn.Linear(wide, out, bias=False, device=device, dtype=dtype))
    weight = layer[0].weight.detach().fill_(1.0)
    return layer, weight, 2 if pack(layer) else weight.element_size()


def _fastest(run: Callable[[], object], device: torch.device, tries: int) -> float:
    """The least seconds of one call; on a GPU until the work is done, not until it is queued."""
    least = float("inf")
    for _ in range(tries + 1):  # the first warms up: its memory is touched for the first time
        started = time.perf_counter()
        run()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        least = min(least, time.perf_counter() - started)
    return least
