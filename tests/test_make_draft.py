"""A draft for any Llama: a run can be killed, the folder is a plain one, bad input says what is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import greedy_text, save_tiny
from transformers import AutoModelForCausalLM

from course_lib import make_draft as room
from course_lib import plans
from course_lib.__main__ import main
from course_lib.fetch import FREQUENCY
from course_lib.learning import Learner
from course_lib.make_draft import make_draft
from course_lib.pairs import load_pair
from course_lib.plans import Plan
from course_lib.prompts import Prompt
from course_lib.speculate import decode


def prompts(route, count):
    return [Prompt(f"{route}{i}", route, "own", [{"role": "user", "content": f"{route} {i * i} {i}"}])
            for i in range(count)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(room, "PORTION", 16)
    monkeypatch.setattr(room, "EVERY", 7)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("models") / "target")


def make(target, out, say=lambda line: None, **plan):
    plan = {"layers": (0, 3), "steps": 20, "batch": 4, "new_tokens": 8, "rate": 3e-3} | plan
    return make_draft(Plan(str(target), **plan), out, prompts("a", 12), prompts("b", 9), "cpu", say)


class Killed(Exception):
    pass


def test_a_killed_run_goes_on_as_if_it_had_not_been_killed(target, tmp_path, monkeypatch):
    whole = make(target, tmp_path / "whole")
    step = Learner.step
    for last in (9, 0, 16):  # after a checkpoint, at once, and once more
        def killed(learner, rows, progress, last=last):
            if learner.done >= last:
                raise Killed
            return step(learner, rows, progress)

        monkeypatch.setattr(Learner, "step", killed)
        with pytest.raises(Killed):
            make(target, tmp_path / "halved")
    monkeypatch.setattr(Learner, "step", step)
    halved = make(target, tmp_path / "halved")
    for name in ("curve.csv", "model.safetensors", FREQUENCY):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "halved" / name).read_bytes(), name
    assert whole["alpha"] == halved["alpha"] and whole["steps"] == 20
    curve = (tmp_path / "whole" / "curve.csv").read_text().splitlines()
    assert len(curve) == 22 and len(whole["curve"]) == 1 + room.MARKS
    before = (tmp_path / "halved" / "model.safetensors").stat().st_mtime_ns
    assert make(target, tmp_path / "halved") == halved  # finished: nothing is done again
    assert (tmp_path / "halved" / "model.safetensors").stat().st_mtime_ns == before


def test_training_raises_alpha_on_the_route_it_learns(target, tmp_path):
    found = make(target, tmp_path / "draft", steps=80, new_tokens=16)["alpha"]
    assert found["a"]["learned"] and not found["b"]["learned"]
    assert found["a"]["gain"]["mean"] > 0.05
    gain = found["a"]["after"]["mean"] - found["a"]["before"]["mean"]
    assert found["a"]["gain"]["mean"] == pytest.approx(gain)
    assert (found["a"]["prompts"], found["b"]["prompts"]) == (3, 2)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_training_the_draft_is_the_targets_own_layers(tmp_path, tied, dtype):
    target = save_tiny(tmp_path / "target", dtype=dtype, tie_word_embeddings=tied)
    found = make(target, tmp_path / "early", layers=(0, 2), steps=0)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "early", target))
    for name, tensor in ours.items():
        number = name.replace(".layers.1.", ".layers.2.")
        assert tensor.dtype == dtype and torch.equal(tensor, theirs[number]), name
    assert len([name for name in ours if "q_proj" in name]) == 2 and ("lm_head.weight" in ours) is not tied
    assert found["alpha"]["a"]["before"] == found["alpha"]["a"]["after"] and found["tokens"] == 0
    assert not (tmp_path / "early" / FREQUENCY).exists()  # no text was read
    pair = load_pair(str(target), str(tmp_path / "early"), "cpu", "float32")
    rows = [pair.encode(prompt.messages) for prompt in prompts("a", 3)]
    wanted = [greedy_text(pair.target, row, 12, pair.eos) for row in rows]
    assert decode(pair, rows, 3, 12).tokens == wanted


def test_alpha_is_that_of_the_scorer_with_the_saved_draft(target, tmp_path):
    """What is reported is what `measure` would: over the whole vocabulary, with the head as it is saved."""
    from course_lib.sampling import Sampling
    from course_lib.scoring import score_texts

    for proposes in (None, 40):
        out = tmp_path / f"draft{proposes}"
        found = make(target, out, proposes=proposes)
        pair = load_pair(str(target), str(out), "cpu", "float32")
        rows = [row for row in room.load_rows(out / "work" / "held-back.safetensors")][:3]
        scores, _, _ = score_texts(pair, [row["prompt"].tolist() for row in rows],
                                   [row["text"].tolist() for row in rows], Sampling(1.0))
        sums = [float(one["overlap"].sum()) for one in scores]
        tokens = sum(len(row["text"]) for row in rows)
        assert found["alpha"]["a"]["after"]["mean"] == pytest.approx(sum(sums) / tokens, abs=2e-3)
        if proposes:
            few = np.load(out / "proposes.npy")
            assert len(few) == 40 and few.tolist() == np.load(out / FREQUENCY)[:40].tolist()
            assert pair.draft.lm_head(torch.randn(2, 32)).isfinite().sum() == 80


def test_the_folder_assists_plain_transformers(target, tmp_path):
    make(target, tmp_path / "draft")
    big, small = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
                  for folder in (target, tmp_path / "draft"))
    tokens = torch.tensor([[5, 9, 200, 31, 7]])
    alone, assisted = (big.generate(tokens, do_sample=False, max_new_tokens=24, pad_token_id=0, **options)
                       for options in ({}, {"assistant_model": small}))
    assert alone.tolist() == assisted.tolist()
    weights = [path.name for path in (tmp_path / "draft").glob("*.safetensors")]
    assert weights == ["model.safetensors"]  # vLLM takes every such file for weights


def test_a_draft_is_adapted_from_where_it_stands(target, tmp_path):
    first = make(target, tmp_path / "first", proposes=50)
    second = make(target, tmp_path / "second", layers=None, start=str(tmp_path / "first"), steps=5)
    assert second["alpha"]["a"]["before"] == pytest.approx(first["alpha"]["a"]["after"], abs=1e-3)
    assert second["proposes"] == 50  # the same ones
    ours, theirs = (np.load(tmp_path / name / "proposes.npy") for name in ("first", "second"))
    assert ours.tolist() == theirs.tolist()


def test_a_draft_with_a_head_of_its_own_is_adapted_too(target, tmp_path):
    other = save_tiny(tmp_path / "other", layers=1, seed=5, hidden_size=16, intermediate_size=24)
    found = make(target, tmp_path / "adapted", layers=None, start=str(other), steps=60, loss="kl")
    assert found["alpha"]["a"]["gain"]["mean"] > 0
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "adapted", other))
    assert torch.equal(ours["model.embed_tokens.weight"], theirs["model.embed_tokens.weight"])


def test_a_corpus_is_read_as_it_is(target, tmp_path, capsys):
    lines = [{"prompt": f"say {i}", "response": f"{i}, {i + 1}.", "temperature": 0.7} for i in range(24)]
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    arguments = ["distill", "--target", str(target), "--layers", "0,3", "--steps", "18", "--batch", "4",
                 "--text", "corpus", "--prompts", str(file), "--new-tokens", "9", "--json",
                 "--out", str(tmp_path / "draft")]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["alpha"]) == ["mine", "chat", "code", "json"]
    files = sorted((tmp_path / "draft" / "work").glob("text-*"))
    rows = [row for file in files for row in room.load_rows(file)]
    tokenizer = load_pair(str(target), lookup="only", device="cpu").tokenizer
    assert len(rows) == 18 and all(row["text"][-1] == 256 for row in rows)
    said = {tokenizer.decode(row["text"][:-1].tolist()) for row in rows}
    assert said <= {line["response"] for line in lines} and len(said) == 18
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    ids = torch.cat([rows[0]["prompt"], rows[0]["text"][:-1]])[None]
    states = model.model(ids).last_hidden_state[0, len(rows[0]["prompt"]) - 1:]
    torch.testing.assert_close(rows[0]["hidden"].float(), states, rtol=2e-3, atol=2e-3)


def test_minutes_end_a_training(target, tmp_path):
    found = make(target, tmp_path / "draft", steps=None, minutes=0.02)
    assert 1 <= found["steps"] and 1.2 <= found["seconds"]["training"] < 12
    assert [row["step"] for row in found["curve"]][-1] == found["steps"]


@pytest.mark.parametrize("options, words", [
    (["--layers", "0,4", "--steps", "1"], "has the layers 0 ... 3: there is no layer 4"),
    (["--layers", "0,0", "--steps", "1"], "give each layer once, in ascending order"),
    (["--layers", "3,1", "--steps", "1"], "give each layer once, in ascending order"),
    (["--layers", "0,x", "--steps", "1"], "write whole numbers"),
    (["--layers", "0,1", "--minutes", "0"], "minutes must be above 0"),
    (["--layers", "0,1", "--minutes", "nan"], "minutes must be above 0"),
    (["--layers", "0,1", "--steps", "-1"], "steps must be 0 or more"),
    (["--layers", "0,1", "--steps", "1", "--minutes", "1"], "in steps or in minutes, one of the two"),
    (["--layers", "0,1"], "in steps or in minutes, one of the two"),
    (["--layers", "0,1", "--start", "x", "--steps", "1"], "one of the two"),
    (["--layers", "0,1", "--steps", "1", "--proposes", "999"], "257 tokens: a draft cannot propose 999"),
    (["--layers", "0,1", "--steps", "1", "--proposes", "0"], "proposes must be 1 or more"),
    (["--layers", "0,1", "--steps", "0", "--proposes", "9"], "needs text to count them in"),
    (["--layers", "0,1", "--steps", "1", "--loss", "mse"], "choose from turn, kl, tv"),
    (["--layers", "0,1", "--steps", "1", "--text", "corpus"], "--text corpus needs --prompts"),
    (["--layers", "0,1", "--steps", "1", "--text", "book"], "not 'book'"),
    (["--layers", "0,1", "--steps", "1", "--routes", "verse"], "no prompts of route 'verse'"),
    (["--layers", "0,1", "--steps", "1", "--new-tokens", "256"], "leave no room in a context of 256"),
    (["--minutes", "1"], "needs --layers"),
    (["--start", "/nowhere", "--steps", "1"], "there is no model in /nowhere"),
])
def test_bad_input_is_one_sentence(target, tmp_path, options, words, capsys):
    assert main(["distill", "--target", str(target), "--out", str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("distill: ") and said.err.count("\n") == 1
    assert words in said.err
    assert not (tmp_path / "out").exists()  # a corrected command is not refused


CHEAP = """
import json, sys
from course_lib.__main__ import main
for options in json.loads(sys.argv[1]):
    status, loaded = main(["distill", *options]), sorted({"torch", "transformers"} & sys.modules.keys())
    if status != 2 or loaded:
        sys.exit(f"{options}: status {status}, loaded {loaded}")
"""


def test_cheap_mistakes_are_said_without_loading_torch(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").touch()
    (tmp_path / "one.txt").write_text("one prompt\n")
    layers, out = ["--layers", "0,1"], ["--out", str(tmp_path / "out")]
    mistakes = [(["--layers", "", "--steps", "1", *out], "--layers is '': write whole numbers"),
                (["--layers", "a,b", "--steps", "1", *out], "--layers is 'a,b': write whole numbers"),
                (["--layers", "1,0", "--steps", "1", *out], "in ascending order"),
                ([*layers, "--minutes", "-1", *out], "minutes must be above 0, not -1"),
                ([*layers, "--steps", "-1", *out], "steps must be 0 or more, not -1"),
                ([*layers, *out], "in steps or in minutes, one of the two"),
                ([*layers, "--steps", "1"], "say where the draft goes: --out FOLDER"),
                ([*layers, "--steps", "1", "--batch", "0", *out], "batch must be 1 or more, not 0"),
                ([*layers, "--steps", "1", "--loss", "mse", *out], "there is no loss 'mse'"),
                ([*layers, "--steps", "1", "--target", " ", *out], "--target is empty"),
                (["--start", "", "--steps", "1", *out], "--start is empty"),
                ([*layers, "--steps", "1", "--prompts", "none.txt", *out], "there is no file none.txt"),
                ([*layers, "--steps", "1", "--prompts", str(tmp_path / "one.txt"), *out], "has one prompt"),
                ([*layers, "--steps", "1", "--out", str(tmp_path / "taken")], "is not empty"),
                (["--minutes", "1"], "--minutes needs --layers"),
                (["--steps", "0"], "steps must be 1 or more, not 0"),
                (["--steps", "1", "--out", str(tmp_path / "one.txt")], "is a file: name a folder")]
    done = subprocess.run([sys.executable, "-c", CHEAP, json.dumps([options for options, _ in mistakes])],
                          capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and len(lines) == len(mistakes), done.stderr
    for line, (_, words) in zip(lines, mistakes, strict=True):
        assert line.startswith("distill: ") and words in line


def test_models_that_do_not_fit_are_refused(target, tmp_path):
    with pytest.raises(ValueError, match="knows 300 tokens and"):
        other = save_tiny(tmp_path / "other", vocabulary=300)
        make(target, tmp_path / "out", layers=None, start=str(other))
    config = json.loads((target / "config.json").read_text()) | {"model_type": "gpt2"}
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="of the architecture gpt2"):
        make(tmp_path / "gpt2", tmp_path / "out")
    with pytest.raises(ValueError, match="one prompt: give two at least"):
        plans.split(prompts("a", 1), [])


def test_a_folder_whose_plan_is_damaged_is_left_alone(target, tmp_path):
    (tmp_path / "work").mkdir()
    for damage in (b"{", b"[1]", b"\xff\xfe", b""):
        (tmp_path / "work" / "plan.json").write_bytes(damage)
        with pytest.raises(ValueError, match="plan.json is damaged, .*: name a new folder, or delete"):
            make(target, tmp_path)


def test_a_folder_that_is_taken_is_left_alone(target, tmp_path):
    make(target, tmp_path / "draft", steps=0)
    with pytest.raises(ValueError, match="holds a run with other steps, seed"):
        make(target, tmp_path / "draft", steps=1, seed=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="is not empty"):
        make(target, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
