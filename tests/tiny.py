"""Tiny random Llamas on the fly: real attention, real caches, milliseconds a forward."""

import copy
import itertools

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.generation import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from course_lib.lookup import Lookup
from course_lib.pairs import Pair
from course_lib.sampling import Sampling


def tiny_llama(vocabulary=24, seed=0, context=256, dtype=torch.float64, **config):
    """Two layers with grouped-query attention, and weights wide enough for laws that are far from flat."""
    torch.manual_seed(seed)
    config = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "initializer_range": 0.35, **config}
    config |= {"vocab_size": vocabulary, "max_position_embeddings": context, "pad_token_id": 0,
               "bos_token_id": None, "eos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(**config)).to(dtype).eval()


def save_tiny(folder, layers=4, seed=0, dtype=torch.float32, vocabulary=257, **config):
    """A tiny Llama as a folder, with a tokenizer: one token a byte, and 256 ends a text. Its weights are
    ones that 16 bits hold."""
    model = tiny_llama(vocabulary, seed, dtype=torch.float32, num_hidden_layers=layers,
                       **{"tie_word_embeddings": True, "initializer_range": 0.2, **config})
    model.config.eos_token_id = model.generation_config.eos_token_id = 256
    model.to(torch.bfloat16).to(dtype).save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*letters, "<end>"])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    return folder


def with_noise(model, size, seed=0):
    """A copy whose weights are off by `size` of their own spread: a draft that is often right."""
    noisy = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in noisy.parameters():
            if weight.dim() > 1:
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight += size * weight.std() * noise.to(weight.dtype)
    return noisy


def with_lookup(pair, lookup):
    """The pair with drafts from the text itself: "first", "only", or not at all (None)."""
    pair = copy.copy(pair)
    if lookup is not None:
        pair.lookup = Lookup(1, 2)
    if lookup == "only":
        pair.draft = None
    return pair


def tiny_pair(target, draft, eos=(), context=256):
    return Pair("tiny", target, draft, None, frozenset(eos), context, torch.device("cpu"), target.dtype)


def letter_pair():
    """A tiny pair that encodes the last message letter by letter, 40 at most; its text may end (token 20)."""
    target = tiny_llama(seed=3)
    pair = tiny_pair(target, with_noise(target, 0.3), eos=(20,))
    pair.encode = lambda messages: [1 + ord(letter) % 19 for letter in messages[-1]["content"]][-40:]
    return pair


@torch.inference_mode()
def next_logits(model, tokens):
    """The logits after `tokens`, from one forward without any cache."""
    return model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0, -1]


def warped(logits, sampling: Sampling):
    """What transformers' own warpers make of logits [rows, vocabulary], in generate's order."""
    if sampling.temperature != 1:
        logits = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k:
        logits = TopKLogitsWarper(sampling.top_k)(None, logits)
    if sampling.top_p < 1:
        logits = TopPLogitsWarper(sampling.top_p)(None, logits)
    return logits.softmax(-1)


def target_law(model, prompt, new_tokens, sampling, eos):
    """The chance of every text the target alone can write, as {tokens: chance}."""
    law, open_texts = {}, {(): 1.0}
    for _ in range(new_tokens):
        longer = {}
        for text, chance in open_texts.items():
            law_of_next = warped(next_logits(model, [*prompt, *text])[None], sampling)[0]
            for token, share in enumerate(law_of_next.tolist()):
                if share:
                    (law if token in eos else longer)[(*text, token)] = chance * share
        open_texts = longer
    return law | open_texts


def greedy_text(model, prompt, new_tokens, eos):
    """What `model.generate` writes without sampling, the end of text included."""
    tokens = torch.tensor([prompt])
    output = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                            max_new_tokens=new_tokens, eos_token_id=sorted(eos) or None, pad_token_id=0)
    return output[0, len(prompt):].tolist()


class Branches:
    """Stands in for `draw` and `flip` of course_lib.speculate and walks every branch of chance.

    Every row of a batch follows a path of choices of its own, so a batch walks many at once. What cannot
    matter is not branched on but chosen spitefully: coins after a row's first tails are heads, and drafts
    past a row's limit are any token at all.
    """

    def __init__(self, monkeypatch):
        import course_lib.speculate as room

        self.room = room
        self._round, self._draft = room._round, room._draft
        monkeypatch.setattr(room, "_round", self.round)
        monkeypatch.setattr(room, "_draft", self.draft)
        monkeypatch.setattr(room, "draw", self.draw)
        monkeypatch.setattr(room, "flip", self.flip)

    def law(self, pair, prompt, k, new_tokens, sampling, draft_mode, rows=256, beside=None):
        """The chance of every text `decode` can emit. beside: a prompt decoded in the same batches."""
        pending, law = [()], {}
        while pending:
            self.paths, pending = pending[:rows], pending[rows:]
            self.taken = [[] for _ in self.paths]
            self.chance = [1.0] * len(self.paths)
            self.found = []
            prompts = [prompt] * len(self.paths) + [beside] * (beside is not None)
            done = self.room.decode(pair, prompts, k, new_tokens, sampling, draft_mode)
            for text, chance in zip(done.tokens, self.chance, strict=False):
                law[tuple(text)] = law.get(tuple(text), 0.0) + chance
            pending += self.found
        return law

    def round(self, pair, state, limit, *rest):
        self.rows, self.limit = state.rows, limit
        return self._round(pair, state, limit, *rest)

    def draft(self, *arguments):
        self.step, self.limit = 0, self.limit.tolist()
        drafts, q, drafted = self._draft(*arguments)
        self.step, self.limit = None, drafted.minimum(torch.tensor(self.limit)).tolist()
        return drafts, q, drafted

    def draw(self, probs, generator):
        step, chosen = self.step, []
        self.step = None if step is None else step + 1
        for row, limit, law in zip(self.rows, self.limit, probs.tolist(), strict=True):
            beyond = step is not None and (step >= limit or not any(law))
            if row >= len(self.paths) or beyond:
                chosen.append(next((token for token, chance in enumerate(law) if chance), 0))
            else:
                chosen.append(self.choose(row, law))
        return torch.tensor(chosen)

    def flip(self, chances, generator):
        coins = torch.ones(chances.shape, dtype=torch.bool)
        for i, (row, limit) in enumerate(zip(self.rows, self.limit, strict=True)):
            for j in range(limit if row < len(self.paths) else 0):
                heads = float(chances[i, j])
                coins[i, j] = self.choose(row, [1 - heads, heads]) == 1
                if not coins[i, j]:
                    break
        return coins

    def choose(self, row, law):
        """The row's next choice among what has a chance; the first time here, note the other branches."""
        open_choices = [i for i, chance in enumerate(law) if chance > 0]
        taken, path = self.taken[row], self.paths[row]
        if len(taken) < len(path):
            choice = path[len(taken)]
        else:
            choice = open_choices[0]
            self.found += [(*taken, other) for other in open_choices[1:]]
        taken.append(choice)
        self.chance[row] *= law[choice]
        return choice


def distance(law, other):
    """The largest difference between two laws over texts."""
    return max(abs(law.get(text, 0.0) - other.get(text, 0.0)) for text in itertools.chain(law, other))
