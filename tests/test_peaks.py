"""Protects the measured peaks: they are those of the layers a loaded model has, and of this machine."""

import pytest
import torch

from course_lib import peaks
from course_lib.peaks import measure_peaks


@pytest.fixture
def small(monkeypatch):
    """Layers small enough to be quick; the rates are then those of a cache, which is no matter here."""
    monkeypatch.setattr(peaks, "READ", (64, 512))
    monkeypatch.setattr(peaks, "WORK", (64, 64))
    monkeypatch.setattr(peaks, "TOKENS", 32)


def test_rates_are_amounts_over_the_least_time(small, monkeypatch):
    seconds = iter([2.0, 0.5, 4.0, 8.0])  # layer, copy; layer, plain product
    monkeypatch.setattr(peaks, "_fastest", lambda run, device, tries: run() is None or next(seconds))
    found = measure_peaks("cpu", torch.float64)
    assert found.bytes_per_number == 8
    assert found.bandwidth == 2 * 64 * 512 * 8 / 0.5  # the copy, which reads and writes, was faster
    assert found.flops == 2 * 64 * 64 * 32 / 4.0


def test_the_fastest_of_several_tries_counts(monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 13.0, 20.0, 22.0, 30.0, 35.0])
    monkeypatch.setattr(peaks.time, "perf_counter", lambda: next(clock))
    calls = []
    assert peaks._fastest(lambda: calls.append(1), torch.device("cpu"), tries=3) == 2.0
    assert len(calls) == 4  # the first warms up


def test_packed_layers_count_two_bytes_a_weight(small):
    packs = "fbgemm" in torch.backends.quantized.supported_engines
    assert measure_peaks("cpu", torch.float32, tries=1).bytes_per_number == (2 if packs else 4)
    assert measure_peaks("cpu", torch.bfloat16, tries=1).bytes_per_number == 2
