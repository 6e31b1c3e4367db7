"""`make gpu` refuses without CUDA and, on any device, runs to its end: true shapes, and files that load."""

import time

import pytest
import torch
from transformers import AutoModelForCausalLM

from course_lib import gpu
from course_lib.costs import CostTable
from course_lib.gpu import Plan, config_of, main, run, shape_costs
from course_lib.roofline import MODELS, Model

TINY = Plan(Model("tiny target", 2, 32, 48, 4, 2, 64, tied=False),
            Model("tiny draft", 1, 16, 24, 2, 1, 64, tied=True),
            torch.float32, (1, 2, 4), ((128, (1, 3)), (256, (1,))), new_tokens=40, repeats=3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_without_cuda_it_says_so_and_writes_nothing(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "needs an NVIDIA GPU" in said.err
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    said = []
    files = run(TINY, torch.device("cpu"), tmp_path_factory.mktemp("gpu"), say=said.append)
    return files, "\n".join(said)


def test_it_runs_to_the_end_on_tiny_shapes(written):
    files, said = written
    assert [path.name for path in files] == [f"costs-gpu-{way}-{positions}.json"
                                             for positions in (128, 256) for way in ("graphs", "eager")]
    assert all(path.name in said for path in files) and "left out" not in said
    assert not list(files[0].parent.glob("*.part"))


def test_its_tables_have_every_width_with_quartiles_and_say_where_they_are_from(written):
    for path, batches in zip(written[0], ((1, 3), (1, 3), (1,), (1,)), strict=True):
        table = CostTable.load(path)
        assert tuple(table.batches) == batches
        for batch, at in table.batches.items():
            assert tuple(at.t_verify) == (1, 2, 4) and at.t_draft > 0
            steps = table.meta["forwards"][str(batch)]
            assert set(steps["verify"]) == {"1", "2", "4"} and set(steps["draft"]) == {"1", "2"}
            for low, middle, high in (*steps["verify"].values(), *steps["draft"].values()):
                assert 0 < low <= middle <= high
            rounds = table.meta["rounds"][str(batch)]
            assert all(one["count"] >= 3 for one in rounds.values())
            assert at.round_seconds(3) == pytest.approx(rounds["3"]["seconds"][1])
        meta = table.meta
        assert meta["command"] == "make gpu" and "random" in meta["weights"] and meta["left_out"] == {}
        assert {"driver", "seed", "machine", "date", "versions"} <= set(meta)
        assert meta["positions"] - 45 < meta["context"] < meta["positions"]
        assert meta["layers"] in path.name and meta["target"] == "tiny target, random weights"


def test_when_time_is_up_the_rest_is_named(tmp_path):
    pair, said = gpu.random_pair(TINY, torch.device("cpu"), 0), []
    late = shape_costs(TINY, pair, "graphs", 128, (1, 3), tmp_path / "a.json", time.monotonic() - 1, 0,
                       said.append)
    assert late is None and not (tmp_path / "a.json").exists()
    assert said == ["graphs, 128 positions, left out: batch 1 (time was up), batch 3 (time was up)"]


def test_a_batch_that_does_not_fit_is_left_out_and_the_others_stay(tmp_path, monkeypatch):
    def full(pair, batch, *rest):
        if batch > 1:
            raise torch.OutOfMemoryError if batch == 3 else RuntimeError("capture failed\nat length")
        return {}

    monkeypatch.setattr(gpu, "time_steps", full)
    path = tmp_path / "a.json"
    shape_costs(TINY, gpu.random_pair(TINY, torch.device("cpu"), 0), "eager", 128, (1, 3, 4), path,
                time.monotonic() + 60, 0, print)
    table = CostTable.load(path)
    assert tuple(table.batches) == (1,)
    assert table.meta["left_out"] == {"3": "memory was full", "4": "capture failed"}


@pytest.mark.parametrize("key, parameters, head, factor", [
    ("llama-3.2-1b", 1_235_814_400, 64, 32.0), ("llama-3.1-8b", 8_030_261_248, 128, 8.0)])
def test_the_shapes_are_the_true_ones(key, parameters, head, factor):
    config = config_of(MODELS[key])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    assert config.head_dim == head and config.vocab_size == 128_256
    assert config.rope_parameters["factor"] == factor and model.model.rotary_emb.rope_type == "llama3"


def test_the_plan_is_what_the_course_shows():
    assert Plan().widths == tuple(range(1, 18)) and Plan().sizes[0][1] == (1, 2, 4, 8, 16, 32, 64)
