"""Protects loading: any two Llama-shaped models become a pair, and every way to fail names its remedy."""

import json
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
import transformers.utils.hub
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from tiny import greedy_text
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from course_lib import pairs
from course_lib.fetch import PROPOSES
from course_lib.pairs import (
    REGISTRY,
    PairError,
    check_vocabularies,
    load_encoder,
    load_pair,
    with_draft,
    with_untrained_draft,
)
from course_lib.sampling import Sampling
from course_lib.speculate import decode

CASES = {case["id"]: case for case in
         json.loads((Path(__file__).parent / "acceptance_cases.json").read_text())["cases"]}
BEGIN, END_OF_TEXT, HEAD, HEAD_END, EOM, EOT = 128000, 128001, 128006, 128007, 128008, 128009
NAMED = {BEGIN: "<|begin_of_text|>", END_OF_TEXT: "<|end_of_text|>", HEAD: "<|start_header_id|>",
         HEAD_END: "<|end_header_id|>", EOM: "<|eom_id|>", EOT: "<|eot_id|>"}
TEMPLATE = ("{{ bos_token }}{% for message in messages %}"
            "<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
            "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
            "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}]


def save_tokenizer(folder, ordinary=128_000):
    """Llama-3's 128,256 tokens in its layout: bytes first, special tokens from 128,000 on."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(letters + [f"word{i}" for i in range(ordinary - 256)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [NAMED.get(i, f"<|reserved_special_token_{i}|>") for i in range(128_000, 128_256)]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=NAMED[BEGIN], eos_token=NAMED[EOT],
                            chat_template=TEMPLATE).save_pretrained(folder)


def save_llama(folder, layers, tied, vocabulary=128_256):
    """The shape of Llama-3.1-8B (untied) or Llama-3.2-1B (tied), 1/256 as wide."""
    torch.manual_seed(layers)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=16, intermediate_size=56, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=2, head_dim=2, max_position_embeddings=131_072,
        rms_norm_eps=1e-5, tie_word_embeddings=tied, initializer_range=0.4, bos_token_id=BEGIN,
        eos_token_id=[END_OF_TEXT, EOM, EOT],
        rope_parameters={"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 32.0 if tied else 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192})
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=BEGIN, eos_token_id=[END_OF_TEXT, EOM, EOT],
                                               do_sample=True, temperature=0.6, top_p=0.9)
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The h100 pair in small: target and draft as folders."""
    home = tmp_path_factory.mktemp("h100")
    for name, layers, tied in (("Llama-3.1-8B", 3, False), ("Llama-3.2-1B", 1, True)):
        save_llama(home / name, layers, tied)
        save_tokenizer(home / name)
    return home / "Llama-3.1-8B", home / "Llama-3.2-1B"


@pytest.fixture(scope="module")
def pair(folders):
    return load_pair(*map(str, folders), device="cpu", dtype="float64")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with a model of few tokens, quick to load."""
    folder = tmp_path_factory.mktemp("sound")
    save_llama(folder, 1, True, vocabulary=600)
    save_tokenizer(folder, ordinary=344)
    return folder


@pytest.fixture
def copy(sound, tmp_path):
    """A copy of it to damage."""
    for file in sound.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


# The h100 pair


def test_the_h100_pair_is_read_as_it_was_saved(pair):
    assert pair.name == "Llama-3.1-8B + Llama-3.2-1B"
    assert pair.eos == {END_OF_TEXT, EOM, EOT}
    assert pair.context == 131_072
    assert (pair.device, pair.dtype) == (torch.device("cpu"), torch.float64)
    for model, layers in ((pair.target, 3), (pair.draft, 1)):
        assert len(model.model.layers) == layers and model.lm_head.out_features == 128_256
        assert model.model.layers[0].self_attn.num_key_value_groups == 4
        assert model.config.rope_parameters["rope_type"] == "llama3"
        assert model.dtype == torch.float64 and not model.training


def test_chat_roles_are_encoded_for_the_assistant_to_answer(pair):
    tokens = pair.encode(MESSAGES)
    assert all(isinstance(token, int) for token in tokens)
    assert pair.tokenizer.decode(tokens) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy is the sky blue?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n")
    assert [token for token in tokens if token >= 128_000] == [
        BEGIN, HEAD, HEAD_END, EOT, HEAD, HEAD_END, EOT, HEAD, HEAD_END]


def test_a_base_model_without_a_template_reads_the_text_itself(pair, monkeypatch):
    monkeypatch.setattr(pair.tokenizer, "chat_template", None)
    assert pair.tokenizer.decode(pair.encode(MESSAGES)) == "Be brief.\nWhy is the sky blue?"


def test_the_h100_pair_decodes_what_its_target_writes(pair):
    prompts = [pair.encode(MESSAGES), pair.encode(MESSAGES[1:])]
    wanted = [greedy_text(pair.target, prompt, 6, pair.eos) for prompt in prompts]
    assert decode(pair, prompts, 3, 6).tokens == wanted
    generator = torch.Generator().manual_seed(0)
    sampled = decode(pair, prompts, 3, 6, Sampling(0.6, top_p=0.9), "greedy", generator)
    assert sampled.rounds.emitted.sum() == sum(map(len, sampled.tokens))


@pytest.mark.parametrize("end", [END_OF_TEXT, EOM, EOT])
def test_each_of_the_three_ends_stops_the_text(pair, monkeypatch, end):
    head = pair.target.lm_head.weight
    prompt = pair.encode(MESSAGES)
    with torch.no_grad():
        written = greedy_text(pair.target, prompt, 1, [])[0]
        kept, ended = head[written].clone(), head[end].clone()
        try:
            head[end], head[written] = kept, ended  # now the target says the end first
            assert decode(pair, [prompt], 2, 4).tokens == [[end]]
        finally:
            head[end], head[written] = ended, kept


# Registry, device, dtype


def test_the_registry_names_real_models():
    assert set(REGISTRY) == {"smol", "laptop", "h100", "h100-70b"}
    assert REGISTRY["h100"] == ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct")
    assert REGISTRY["h100-70b"][0] == "meta-llama/Llama-3.1-70B-Instruct"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PairError, match="no pair 'h200': choose from smol, laptop, h100, h100-70b, or give"):
        load_pair("h200")


def test_dtypes(folders):
    with pytest.raises(PairError, match="no dtype 'int8': choose from float32, bfloat16, float16, float64"):
        load_pair(*map(str, folders), dtype="int8")
    assert pairs._dtype("bfloat16", torch.device("cpu")) == torch.bfloat16
    assert pairs._dtype(None, torch.device("cpu")) in (torch.float32, torch.bfloat16)
    assert pairs._dtype(None, torch.device("cuda")) == torch.bfloat16


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_devices_without_a_gpu(folders):
    for device in ("cuda", "cuda:1", "gpu"):
        with pytest.raises(PairError, match=f"device '{device}' cannot be used here .*: use --device cpu"):
            load_pair(*map(str, folders), device=device)
    with pytest.raises(PairError, match="device auto spreads the target over GPUs, and there is none"):
        load_pair(*map(str, folders), device="auto")
    assert pairs.device_of(None, "h100-70b") == (torch.device("cpu"), False)


def test_the_70b_target_is_spread_where_there_are_several_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: torch.ones(1))  # no GPU need be there
    assert pairs.device_of(None, "h100-70b") == (torch.device("cuda"), True)
    assert pairs.device_of("auto", "h100") == (torch.device("cuda"), True)
    assert pairs.device_of(None, "h100") == (torch.device("cuda"), False)
    assert pairs.device_of("cuda:1", "h100-70b") == (torch.device("cuda:1"), False)


def test_a_device_that_holds_no_numbers_is_refused():
    with pytest.raises(PairError, match="device 'meta' cannot be used here.*--device cpu"):
        pairs.device_of("meta", "smol")


def test_a_sliding_window_ends_the_context():
    assert pairs.context_of(LlamaConfig(max_position_embeddings=900)) == 900
    narrow = LlamaConfig(max_position_embeddings=900)
    narrow.sliding_window = 64
    assert pairs.context_of(narrow) == 64


# Vocabularies


def words(count, start=0):
    return {f"w{i}": i - start for i in range(start, start + count)}


def test_vocab():
    """Case vocab: padding is no difference, another meaning of an id is."""
    padded, foreign = CASES["vocab"]["input"]
    same = words(padded["draft"])
    check_vocabularies(same | {f"<pad{i}>": i for i in range(padded["draft"], padded["target"])}, same)
    check_vocabularies(same, same | {f"<pad{i}>": i for i in range(padded["draft"], padded["target"])})
    with pytest.raises(PairError) as refused:
        check_vocabularies(words(foreign["target"]), words(foreign["draft"], start=7))
    assert str(refused.value) == (
        "target and draft have different vocabularies (256000 and 49152 tokens; id 0 is 'w0' for the target "
        "and 'w7' for the draft): speculative decoding needs a draft with the target's tokenizer")


@pytest.mark.parametrize("change, accepted", [
    ({}, True),
    ({"<|python_tag|>": 3, "<|reserved_special_token_2|>": None}, True),  # a reserved slot that got a name
    ({"other": 1, "w1": None}, False),
    ({"w1": 2, "w2": 1}, False),
])
def test_only_content_counts(change, accepted):
    target = words(3) | {"<|reserved_special_token_2|>": 3}
    draft = {token: i for token, i in (target | change).items() if i is not None}
    for first, second in ((target, draft), (draft, target)):
        if accepted:
            check_vocabularies(first, second)
        else:
            with pytest.raises(PairError, match="different vocabularies"):
                check_vocabularies(first, second)


def test_an_untrained_draft_has_the_draft_s_shape_and_proposes_the_same_tokens(sound, copy):
    np.save(copy / PROPOSES, np.arange(9, 300))
    pair = load_pair(str(sound), str(copy), device="cpu", dtype="float32")
    knows_nothing = with_untrained_draft(pair)
    assert knows_nothing.target is pair.target and knows_nothing.name == pair.name
    # The same modules, packed ones included: a step of the one takes as long as a step of the other.
    shapes = [[(name, type(module)) for name, module in draft.named_modules()]
              for draft in (pair.draft, knows_nothing.draft)]
    assert shapes[0] == shapes[1]
    assert knows_nothing.draft.lm_head.tokens.tolist() == list(range(9, 300))
    assert hasattr(knows_nothing.draft, "lean") and not knows_nothing.draft.training
    tables = [draft.model.embed_tokens.weight for draft in (pair.draft, knows_nothing.draft)]
    assert tables[0].shape == tables[1].shape and not torch.equal(*tables)
    written = [decode(one, [[5, 6, 7]], k=3, max_new_tokens=8).tokens for one in (pair, knows_nothing)]
    assert written[0] == written[1]


def test_a_draft_with_another_vocabulary_is_refused_before_weights_are_read(sound, copy, monkeypatch):
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["word1"], vocabulary["word2"] = vocabulary["word2"], vocabulary["word1"]
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    monkeypatch.setattr(pairs, "load_model", lambda *_: pytest.fail("the weights were read"))
    with pytest.raises(PairError, match="id 257 is 'word1' for the target and 'word2' for the draft"):
        load_pair(str(sound), str(copy), device="cpu")


def test_files_beside_the_same_tokenizer_make_it_another_vocabulary(sound, copy, tmp_path_factory):
    """transformers adds the tokens that tokenizer_config.json names."""
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(sound, other, dirs_exist_ok=True)
    for folder, tokens in ((copy, ["<a>", "<b>"]), (other, ["<b>", "<a>"])):
        config = json.loads((sound / "tokenizer_config.json").read_text()) | {"extra_special_tokens": tokens}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert (other / "tokenizer.json").read_bytes() == (copy / "tokenizer.json").read_bytes()
    with pytest.raises(PairError, match="different vocabularies"):
        load_pair(str(other), str(copy), device="cpu")
    with pytest.raises(PairError, match="different vocabularies"):
        with_draft(load_pair(str(other), lookup="only", device="cpu"), str(copy))


def test_an_encoder_without_models_encodes_as_the_pair_does(folders, pair, monkeypatch):
    monkeypatch.setattr(pairs, "load_model", lambda *_: pytest.fail("the weights were read"))
    monkeypatch.setitem(REGISTRY, "small", tuple(map(str, folders)))
    for name in ("small", str(folders[0])):
        assert load_encoder(name)(MESSAGES) == pair.encode(MESSAGES)
    with pytest.raises(PairError, match="there is no model in"):
        load_encoder(str(folders[0] / "none"))


# Weights that are not there, or damaged


def test_a_folder_that_is_no_model_is_not_called_damaged(tmp_path, monkeypatch):
    """Who believed that would delete it."""
    (tmp_path / "a" / "docs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "a/docs"):
        with pytest.raises(PairError, match=f"there is no model in {folder} .no config.*check the path"):
            load_pair(folder, folder)


def test_a_folder_that_is_not_there(sound, tmp_path):
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(PairError, match="there is no model in .*no config.json.*: check the path"):
            load_pair(str(sound), str(missing), device="cpu")


def test_the_embedded_pair_is_fetched_by_its_command(monkeypatch, tmp_path):
    monkeypatch.setitem(REGISTRY, "smol", (str(tmp_path / "target"), str(tmp_path / "draft")))
    with pytest.raises(PairError, match="run python -m course_lib fetch"):
        load_pair("smol", device="cpu")


def test_folders_may_be_relative_or_start_at_home(sound, monkeypatch):
    monkeypatch.chdir(sound.parent.parent)
    monkeypatch.setenv("HOME", str(sound.parent))
    monkeypatch.setenv("USERPROFILE", str(sound.parent))
    pair = load_pair(f"{sound.parent.name}/{sound.name}", f"~/{sound.name}", device="cpu")
    assert pair.target.lm_head.out_features == pair.draft.lm_head.out_features == 600


def truncate(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def empty(folder):
    (folder / "model.safetensors").write_bytes(b"")


def remove(folder):
    (folder / "model.safetensors").unlink()


def lose_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def break_the_config(folder):
    (folder / "config.json").write_text('{"model_type": "lla')


def lose_the_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


@pytest.mark.parametrize("damage, words", [
    (truncate, "missing or damaged"), (empty, "missing or damaged"), (remove, "missing or damaged"),
    (break_the_config, "missing or damaged"), (lose_the_tokenizer, "missing or damaged"),
    (lose_a_tensor, "incomplete: 1 tensors are missing, model.layers.0.mlp.up_proj.weight among them"),
])
def test_damaged_weights_are_refused_with_the_remedy(sound, copy, damage, words):
    damage(copy)
    with pytest.raises(PairError) as refused:
        load_pair(str(sound), str(copy), device="cpu")
    assert str(copy) in str(refused.value) and words in str(refused.value)
    assert "fetch it again" in str(refused.value)


def test_a_model_of_another_architecture_is_refused(sound, copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"logits_scaling": 8.0}))
    with pytest.raises(PairError, match="is a LlamaForCausalLM: this decoder reads models of the Llama"):
        load_pair(str(sound), str(copy), device="cpu")


def answer(kind, status):
    request = httpx.Request("GET", "https://hub.example/org/model/resolve/main/config.json")
    return kind(f"{status} Client Error. (Request ID: Root=1-401-403-404)",
                response=httpx.Response(status, request=request))


@pytest.mark.parametrize("error, words", [
    # The hub answers 401 for a name that does not exist: only the kind of error tells the two apart.
    (answer(GatedRepoError, 401), "target is gated: accept its licence .* then log in with `hf auth login`"),
    (answer(GatedRepoError, 403), "org/target is gated"),
    (answer(RepositoryNotFoundError, 401), "no model .org.target. on the .* hub .*: check the name"),
    (answer(RepositoryNotFoundError, 404), "no model .org.target. on the .* hub .*: check the name"),
    (LocalEntryNotFoundError("no connection"), "target is not on this machine and could not be downloaded: "),
    (httpx.ConnectError("no route"), "target is not on this machine and could not be downloaded: "),
    (ConnectionResetError("reset"), "target is not on this machine and could not be downloaded: "),
    (MemoryError(), "org/target does not fit into memory here: choose a smaller pair"),
])
def test_what_the_hub_says_becomes_a_remedy(monkeypatch, error, words):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("hf_hub_download", "snapshot_download"):  # below everything that transformers wraps
        monkeypatch.setattr(transformers.utils.hub, name, refuse)
    with pytest.raises(PairError, match=words):
        load_pair("org/target", "org/draft", device="cpu")


def test_offline_is_named_as_the_cause(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(PairError, match="downloaded .HF_HUB_OFFLINE is set.: connect once, or give"):
        load_pair("org/target", "org/draft", device="cpu")
