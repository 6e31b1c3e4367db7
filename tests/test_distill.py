"""The draft's training: the written-out gradient is the true one, and a run is a function of its seed."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from course_lib import distill, learning, teacher
from course_lib.fetch import FREQUENCY, PROPOSES, sha256


def tiny(layers=4, seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():  # laws that are neither uniform nor a copy of the input
        if "proj" in name or "embed" in name:
            parameter.data.mul_(10)
    return model


@pytest.mark.parametrize("tv_weight", [0.0, 0.3, 1.0])
def test_the_gradient_is_that_of_the_stated_loss(tv_weight, monkeypatch):
    target = tiny()
    draft = learning.prune(target, (0, 3))
    draft.model.embed_tokens.requires_grad_(False)  # as `Learner` does
    head = target.lm_head.weight.detach()
    rows = [
        {"prompt": torch.arange(3), "text": torch.arange(5, 9), "hidden": torch.randn(4, 16)},
        {"prompt": torch.arange(2), "text": torch.arange(9, 11), "hidden": torch.randn(2, 16)},
    ]
    kl, overlap, count = learning.backward(draft, (head, head), rows, tv_weight)
    got = [p.grad.clone() for p in draft.parameters() if p.requires_grad]
    draft.zero_grad()
    ours, theirs = learning.states(draft, rows)
    q, p = (ours @ head.T).softmax(-1), (theirs @ head.T).softmax(-1)
    true_kl = (p * (p.log() - q.log())).sum(-1).mean()
    true_overlap = torch.minimum(p, q).sum(-1).mean()
    ((1 - tv_weight) * true_kl + 3 * tv_weight * (1 - true_overlap)).backward()
    want = [p.grad for p in draft.parameters() if p.requires_grad]
    assert count == 6 and kl == pytest.approx(true_kl.item(), rel=1e-4)
    assert overlap == pytest.approx(true_overlap.item(), rel=1e-4)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)


def test_pruning_keeps_the_layers_it_is_asked_for():
    target = tiny()
    draft = learning.prune(target, (1, 3))
    for ours, theirs in ((0, 1), (1, 3)):
        for name, tensor in draft.model.layers[ours].state_dict().items():
            assert torch.equal(tensor, target.model.layers[theirs].state_dict()[name])
    assert draft.lm_head.weight is draft.model.embed_tokens.weight
    whole = learning.prune(target, (0, 1, 2, 3))
    ids = torch.arange(6)[None]
    torch.testing.assert_close(whole(ids).logits, target(ids).logits)


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A tiny target, two prompts a route and pass, and a folder of its own."""

    class Tokenizer:
        eos_token_id = 1

        def apply_chat_template(self, messages, **_):
            return {"input_ids": [2 + ord(c) % 30 for c in messages[-1]["content"]]}

    class Some:
        def __init__(self, text):
            self.messages = [{"role": "user", "content": text}]

    texts = ["hello", "good day", "what?", "tell me", "why so", "again", "more", "less", "to be", "or not"]
    for module in (distill, teacher):
        monkeypatch.setattr(module, "TARGET_FOLDER", tmp_path / "target")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "model.safetensors").write_bytes(b"weights")
    teacher._training_prompts.cache_clear()
    monkeypatch.setattr(teacher, "load_prompts", lambda routes, split: [Some(t) for t in texts])
    for module in (distill, teacher):
        monkeypatch.setattr(module, "load_model", lambda folder: tiny())
    monkeypatch.setattr(teacher.transformers.AutoTokenizer, "from_pretrained", lambda folder: Tokenizer())
    monkeypatch.setattr(teacher, "VALIDATION", 1)
    monkeypatch.setattr(teacher, "CHUNK", 4)
    yield tmp_path
    teacher._training_prompts.cache_clear()


def test_texts_are_the_targets_own_and_hidden_states_are_those_behind_them(workshop):
    teacher.write_passes([0], new_tokens=6, work=workshop, say=lambda line: None)
    target = tiny()
    rows = teacher.read_pass(workshop, 0)
    assert (
        len(rows) == 12 * teacher.SAMPLES[0][0]
        and sum(row["held_back"] for row in rows) == 3 * teacher.SAMPLES[0][0]
    )
    for row in rows:
        assert 1 <= len(row["text"]) <= 6 and 1 not in row["text"][:-1].tolist()
        ids = torch.cat([row["prompt"], row["text"][:-1]])[None]
        states = target.model(ids).last_hidden_state[0, len(row["prompt"]) - 1 :]
        torch.testing.assert_close(row["hidden"].float(), states, rtol=2e-3, atol=2e-3)


def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(workshop):
    for worker in (0, 1):
        teacher.write_passes(range(teacher.PASSES), 6, share=(worker, 2), work=workshop,
                             say=lambda line: None)
    options = {"layers": (0, 3), "batch": 4, "work": workshop, "say": lambda line: None}
    whole = distill.train(40, run="whole", **options)
    for until in (13, 33, 20, None):  # one of them is behind what is done: nothing to do
        halved = distill.train(40, run="halved", until=until, **options)
    assert (whole / "curve.csv").read_text() == (halved / "curve.csv").read_text()
    assert (whole / "draft.safetensors").read_bytes() == (halved / "draft.safetensors").read_bytes()
    facts = json.loads((halved / "draft.json").read_text())
    assert facts["steps"] == 40 and facts["layers"] == [0, 3]


def test_a_draft_can_start_from_layers_of_another(workshop):
    teacher.write_passes(range(teacher.PASSES), new_tokens=6, work=workshop, say=lambda line: None)
    options = {"batch": 4, "work": workshop, "say": lambda line: None}
    large = distill.train(3, layers=(0, 2, 3), run="large", **options)
    distill.publish(large, workshop / "data", proposes=5)
    small = distill.train(1, layers=(0, 3), run="small", start=workshop / "data", rate=1e-9, **options)
    before, after = (load_file(folder / "draft.safetensors") for folder in (large, small))
    same = {"model.norm.weight": "model.norm.weight"} | {
        name: name.replace("layers.1.", "layers.2.") for name in after if ".layers." in name}
    assert after.keys() == same.keys()
    assert all(torch.equal(after[name], before[origin]) for name, origin in same.items())
    with pytest.raises(ValueError, match="has the layers .*, and not 1"):
        distill.train(1, layers=(0, 1), run="none", start=workshop / "data", **options)


def test_what_is_published_is_the_trained_draft_and_the_tokens_its_text_holds(workshop):
    teacher.write_passes(range(teacher.PASSES), new_tokens=6, work=workshop, say=lambda line: None)
    folder = distill.train(3, layers=(0, 3), work=workshop, say=lambda line: None)
    distill.publish(folder, workshop / "data", proposes=5)
    weights = load_file(workshop / "data" / "draft.safetensors")
    passes = [teacher.read_pass(workshop, index) for index in range(teacher.PASSES)]
    times = torch.cat([row["text"] for rows in passes for row in rows]).bincount()
    proposes = weights.pop("proposes")
    assert len(proposes) == 5 and times[proposes].tolist() == times.sort(descending=True).values[:5].tolist()
    trained = load_file(folder / "draft.safetensors")
    assert weights.keys() == trained.keys()
    assert all(torch.equal(weights[name], trained[name]) for name in trained)
    facts = json.loads((workshop / "data" / "draft.json").read_text())
    assert facts["sha256"] == sha256(workshop / "data" / "draft.safetensors") and facts["proposes"] == 5
    assert (workshop / "data" / "curve.csv").read_text() == (folder / "curve.csv").read_text()


def test_training_raises_the_overlap(workshop):
    teacher.write_passes(range(teacher.PASSES), new_tokens=6, work=workshop, say=lambda line: None)
    folder = distill.train(120, layers=(0, 3), batch=8, rate=3e-3, work=workshop, say=lambda line: None)
    rows = [line.split(",") for line in (folder / "curve.csv").read_text().splitlines()[1:]]
    first, last = (sum(float(row[3]) for row in part) / 20 for part in (rows[:20], rows[-20:]))
    assert last > first + 0.05


def test_a_sampled_head_stands_for_the_whole(monkeypatch):
    """Averaged over samples, the summed exp of the logits is that of the whole vocabulary."""
    monkeypatch.setattr(learning, "SAMPLED", 15)
    head = tiny().lm_head.weight.detach()
    frequent = np.array([3, 7, 9, 20, 31])
    state = torch.randn(16)
    total = 0.0
    for i in range(3000):
        (part, same), shift = learning._sample_heads((head, head), frequent, np.random.default_rng((0, i)))
        assert same is part
        assert torch.equal(part[:5], head[frequent]) and len(part) == 20
        total += float((part @ state + shift).exp().sum())
    assert total / 3000 == pytest.approx(float((head @ state).exp().sum()), rel=0.02)
    (whole, _), shift = learning._sample_heads((head, head), np.arange(25), np.random.default_rng(0))
    assert whole is head and shift == 0.0


def test_a_run_becomes_a_folder_that_names_the_frequent_tokens(workshop):
    tiny().save_pretrained(workshop / "target")
    teacher.write_passes(range(teacher.PASSES), new_tokens=6, work=workshop, say=lambda line: None)
    folder = distill.train(2, layers=(0, 3), work=workshop, say=lambda line: None)
    distill.as_folder(folder, workshop / "whole")
    model = LlamaForCausalLM.from_pretrained(workshop / "whole", dtype=torch.float32)
    assert model.config.num_hidden_layers == 2 and not (workshop / "whole" / PROPOSES).exists()
    order = np.load(workshop / "whole" / FREQUENCY)
    times = teacher.token_counts(workshop, 40)
    assert sorted(order.tolist()) == list(range(40)) and (np.diff(times[order]) <= 0).all()
