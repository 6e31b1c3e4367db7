"""The decoder: rounds of draft and verify, for a batch of prompts, and plain decoding beside it.

Every row holds its text in `sequence` and its length in `length`. The target has always read all of
a row but its last token; the draft all but its last one or two. From there a round is four steps:
draft k tokens, verify them in one forward of the target, accept a prefix, add one token of the
target's own. Sources: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023
(arXiv 2302.01318), algorithm 2.
"""

from __future__ import annotations

import operator
import time
from dataclasses import dataclass
from numbers import Integral

import pandas as pd
import torch

from course_lib.cache import KVCache, forward_hidden
from course_lib.clock import Clock
from course_lib.lookup import NONE, Memory
from course_lib.sampling import (
    GREEDY,
    Sampling,
    accept_chance,
    draw,
    flip,
    probabilities,
    residual,
    with_guesses,
)

ROUND_COLUMNS = ("row", "round", "start", "drafted", "accepted", "emitted", "proposed")


@dataclass
class Decoded:
    """New text and the rounds that made it.

    tokens: for each prompt its new tokens; an end-of-text token is kept, as the last.
    rounds: one line a row and round: row, round, start (index of the round's first token in the row's
    new text), drafted, accepted, emitted (counts of tokens; emitted is accepted + 1 unless the text
    ended inside the accepted drafts) and proposed (the drafted token ids).
    seconds: wall clock, of which prefill_seconds reading the prompts.
    times: where each round's time went, see `clock.Clock.times`.
    states: where they were asked for, the target's last hidden states behind the new tokens, [tokens, size]
    for each prompt: its head makes of them the laws that the tokens were drawn or verified by.
    """

    tokens: list[list[int]]
    rounds: pd.DataFrame
    seconds: float
    prefill_seconds: float
    times: pd.DataFrame
    states: list[torch.Tensor] | None = None

    def tokens_per_round(self) -> float:
        """Emitted tokens per round and row, over the whole batch (engines: mean acceptance length)."""
        return float(self.rounds.emitted.sum() / len(self.rounds))


def decode(pair, prompts: list[list[int]], k: int, max_new_tokens: int, sampling: Sampling = GREEDY,
           draft_mode: str = "sample", generator: torch.Generator | None = None,
           keep_states: bool = False) -> Decoded:
    """Decode speculatively: k drafts a round. The text follows the target's law whatever the draft.

    pair: `pairs.Pair`, both models on one vocabulary. prompts: token ids, one list a row, not empty.
    k: drafts a round, 0 or more (fewer in a row's last round: max_new_tokens is never overshot; and where
    the pair drafts by lookup alone, only while it has a guess).
    draft_mode: "sample" draws drafts from the draft's law under the same `sampling`; "greedy" takes
    its likeliest token, so q is a point mass (the default of vLLM, SGLang and llama.cpp). A guess by
    `lookup` is a point mass in any mode. keep_states: return the target's states, too (`Decoded.states`).
    Raises ValueError for bad arguments or a text that would not fit the models' context.
    """
    if draft_mode not in ("sample", "greedy"):
        raise ValueError(f'draft_mode is "sample" or "greedy", not {draft_mode!r}')
    try:
        prompts = [[operator.index(token) for token in ids] for ids in prompts]
    except TypeError:
        raise ValueError("prompts are lists of token ids, one list a row: encode text with "
                         "pair.encode") from None
    if not prompts or not all(prompts):
        raise ValueError("every prompt needs at least one token: leave empty prompts out")
    vocabulary = pair.target.lm_head.out_features
    if not all(0 <= token < vocabulary for ids in prompts for token in ids):
        raise ValueError(f"prompts hold token ids that are not in 0 ... {vocabulary - 1}: encode them with "
                         "this pair's tokenizer")
    for name, value, least in (("k", k, 0), ("max_new_tokens", max_new_tokens, 1)):
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    longest = max(map(len, prompts)) + max_new_tokens
    if longest > pair.context:
        raise ValueError(f"the longest prompt and {max_new_tokens} new tokens make {longest}, and the "
                         f"models' context is {pair.context}: shorten the prompt or ask for fewer tokens")
    return decode_schedule(pair, prompts, (k,), max_new_tokens, sampling,
                           sampling if draft_mode == "sample" else GREEDY, generator, keep_states)


def decode_plain(pair, prompts: list[list[int]], max_new_tokens: int, sampling: Sampling = GREEDY,
                 generator: torch.Generator | None = None, keep_states: bool = False) -> Decoded:
    """The target alone, one token a round: the same loop with no draft, for an honest comparison."""
    return decode(pair, prompts, 0, max_new_tokens, sampling, "sample", generator, keep_states)


@torch.inference_mode()
def decode_schedule(pair, prompts, ks, max_new_tokens, sampling, draft_sampling, generator,
                    keep_states: bool = False) -> Decoded:
    """`decode`, with the k of each round in turn (a tuple), and what the draft samples with apart: for
    `timing`, which compares one round with the next. Checks nothing."""
    started = time.perf_counter()
    state = _State(pair, prompts, min(max(ks), max_new_tokens - 1), max_new_tokens)
    clock = state.clock = Clock(pair.device)
    if pair.device.type != "cpu":  # a GPU still works after the call returns
        torch.accelerator.synchronize(pair.device)
    prefill_seconds = time.perf_counter() - started
    texts, states, records = [[] for _ in prompts], [[] for _ in prompts], []
    while len(state.rows):
        left = torch.tensor([max_new_tokens - len(texts[row]) for row in state.rows], device=pair.device)
        # The last token of a row always comes from the target, so drafting it would be waste.
        limit = (left - 1).clamp(max=ks[state.round % len(ks)])
        clock.start(len(state.rows))
        drafts, limit, kept, extra, seen = _round(pair, state, limit, sampling, draft_sampling, generator)
        going = []
        for i, row in enumerate(state.rows):
            new = drafts[i][:kept[i]] + [extra[i]]
            end = next((n + 1 for n, token in enumerate(new) if token in pair.eos), None)
            new = new[:end]  # what lies behind an end of text was never said
            records.append((row, state.round, len(texts[row]), limit[i], min(kept[i], len(new)), len(new),
                            tuple(drafts[i][:limit[i]])))
            texts[row] += new
            if keep_states:
                states[row].append(seen[i, :len(new)])
            if end is None and len(texts[row]) < max_new_tokens:
                going.append(i)
        state.round += 1
        state.keep(going)
    clock.mark()
    return Decoded(texts, pd.DataFrame(records, columns=ROUND_COLUMNS),
                   time.perf_counter() - started, prefill_seconds, clock.times(),
                   [torch.cat(row) for row in states] if keep_states else None)


def _round(pair, state, limit, sampling, draft_sampling, generator):
    """One round for every row; returns lists: drafts, how many of them count, were kept, the extra token;
    and the target's states that predict them [rows, k + 1, size].

    limit: LongTensor [rows], the most drafts each row may keep.
    """
    every = torch.arange(len(limit), device=limit.device)

    # 1. Draft, each token behind the ones before it.
    drafts, q, drafted = _draft(pair, state, int(limit.max()), draft_sampling, generator)
    limit, k = limit.minimum(drafted), drafts.shape[1]
    state.clock.drafted(k)

    # 2. Verify. One forward over the last token and the k drafts gives k + 1 laws: p[:, j] is the
    #    law of draft j, and p[:, k] that of the bonus token.
    states = forward_hidden(pair.target, torch.cat([state.last(), drafts], 1), state.target_cache)
    logits = pair.target.lm_head(states).to(pair.device)
    state.clock.mark()
    p = probabilities(logits, sampling)
    q = torch.stack([*q, torch.zeros_like(p[:, 0])], 1)  # no draft stands behind the bonus token

    # 3. Accept each draft with chance min(1, p/q), up to the first that fails: the rest was drafted
    #    behind a token that is not in the text.
    accepted = flip(accept_chance(p[:, :k], q[:, :k], drafts), generator)
    kept = accepted.long().cumprod(1).sum(1).minimum(limit)

    # 4. One more token. After a rejection from the residual, for p's remaining mass; after `limit`
    #    kept drafts from p itself, for nothing was rejected.
    q_rejected = torch.where((kept < limit)[:, None], q[every, kept], 0.0)
    extra = draw(residual(p[every, kept], q_rejected), generator)

    # Roll back: each cache ends where the row's last token, which no model has read, begins.
    state.extend(kept, extra)
    drafts, kept, extra = drafts.tolist(), kept.tolist(), extra.tolist()
    state.remember(drafts, kept, extra)
    return drafts, limit.tolist(), kept, extra, states


def _draft(pair, state, k, sampling, generator):
    """k drafts of every row [rows, k], the laws they were drawn from (k tensors [rows, vocabulary]), and how
    many of a row's drafts count [rows]: where there is only a lookup, those before its first silence."""
    drafts, q, drafted = [], [], torch.full_like(state.length, k)
    vocabulary = pair.target.lm_head.out_features
    for j in range(k):
        guess = state.guess()  # None: this pair has no lookup
        if pair.draft is None:
            drafted = torch.where(guess == NONE, drafted.clamp(max=j), drafted)
            if (drafted <= j).all():
                break
        if pair.draft is not None and (guess is None or (guess == NONE).any()):
            logits = pair.draft.lm_head(state.catch_up(j, width=1 if j and guess is None else None))
            q.append(probabilities(same_width(logits, vocabulary), sampling))
        else:
            q.append(torch.zeros(len(drafted), vocabulary, device=drafted.device,
                                 dtype=torch.promote_types(pair.dtype, torch.float32)))
        if guess is not None:  # a guess stands for the model's law, whatever the sampling
            q[-1] = with_guesses(q[-1], guess)
        drafts.append(draw(q[-1], generator).clamp(max=vocabulary - 1))  # from no law nothing can be drawn
        state.append(j, drafts[-1])
    return torch.stack(drafts, 1) if drafts else drafted.new_zeros(len(drafted), 0), q, drafted


class _State:
    """The rows still being written: their tokens, their lengths, both models' caches, what lookup knows."""

    def __init__(self, pair, prompts, k, max_new_tokens):
        self.pair, self.round, self.rows = pair, 0, list(range(len(prompts)))
        self.length = torch.tensor([len(ids) for ids in prompts], device=pair.device)
        # A round writes all its drafts before it knows which stay: room for one text and one round.
        capacity = int(self.length.max()) + max_new_tokens + k
        if pair.lookup and pair.draft is not None:  # one row may miss a whole text, others nothing
            capacity += max_new_tokens + k
        self.sequence = torch.zeros(len(prompts), capacity, dtype=torch.long, device=pair.device)
        for row, ids in enumerate(prompts):
            self.sequence[row, :len(ids)] = torch.tensor(ids)
        self.target_cache = KVCache(len(prompts), capacity, pair.device)
        self.draft_cache = KVCache(len(prompts), capacity, pair.device)
        self._prefill(pair.target, self.target_cache)
        if k and pair.draft is not None:
            self._prefill(pair.draft, self.draft_cache)
        self.memories = [Memory(pair.lookup, ids) for ids in prompts] if k and pair.lookup else []

    def _prefill(self, model, cache):
        width = int(self.length.max()) - 1
        if width:
            forward_hidden(model, known_tokens(model, self.sequence[:, :width]), cache)
            cache.lengths = self.length - 1

    def last(self) -> torch.Tensor:
        """The last token of every row [rows, 1]; the target has read all before it."""
        return self.sequence.gather(1, self.length[:, None] - 1)

    def guess(self) -> torch.Tensor | None:
        """What lookup proposes for each row [rows], NONE where nothing; without a lookup None."""
        if not self.memories:
            return None
        return torch.tensor([memory.guess() for memory in self.memories], device=self.length.device)

    def catch_up(self, drafted: int = 0, width: int | None = None) -> torch.Tensor:
        """Let the draft read every row to the end of its first `drafted` drafts; return its last hidden state
        of each [rows, size].

        At first that is the last token, and, when the last round kept all k, also the k-th draft, which the
        draft proposed but never read; behind guesses by lookup it is more. width: the most tokens a row
        misses, where that is known: asking the device would wait for it.
        """
        missing = self.length + drafted - self.draft_cache.lengths
        columns = torch.arange(int(missing.max()) if width is None else width, device=missing.device)
        tokens = self.sequence.gather(1, self.draft_cache.lengths[:, None] + columns)
        states = forward_hidden(self.pair.draft, known_tokens(self.pair.draft, tokens), self.draft_cache)
        self.draft_cache.lengths = self.length + drafted  # rows that missed less read padding: take it back
        return states[torch.arange(len(missing), device=missing.device), missing - 1]

    def append(self, drafted: int, token: torch.Tensor):
        """One more draft of every row, behind `drafted` others. It is written where its text would be."""
        self.sequence.scatter_(1, (self.length + drafted)[:, None], token[:, None])
        for memory, each in zip(self.memories, token.tolist() if self.memories else (), strict=True):
            memory.push(each)

    def extend(self, kept, extra):
        """The text goes on with the kept drafts, which are there already, and the extra token."""
        self.sequence.scatter_(1, (self.length + kept)[:, None], extra[:, None])
        self.length = self.length + kept + 1
        self.target_cache.lengths = self.length - 1
        self.draft_cache.lengths = self.draft_cache.lengths.minimum(self.length - 1)

    def remember(self, drafts, kept, extra):
        """As `extend`, for lookup: the drafts are taken back, and what stays of them is part of the text."""
        for row, memory in enumerate(self.memories):
            for _ in drafts[row]:
                memory.pop()
            for token in (*drafts[row][:kept[row]], extra[row]):
                memory.push(token)

    def keep(self, going: list[int]):
        """Go on with these rows (indices into the present ones) alone."""
        if len(going) == len(self.rows):
            return
        index = torch.tensor(going, dtype=torch.long, device=self.length.device)
        self.rows = [self.rows[i] for i in going]
        self.length, self.sequence = self.length[index], self.sequence[index]
        self.target_cache.keep_rows(index)
        self.draft_cache.keep_rows(index)
        self.memories = [self.memories[i] for i in going] if self.memories else []


def known_tokens(model, tokens: torch.Tensor) -> torch.Tensor:
    """Tokens as the model can read them: one that a smaller vocabulary lacks becomes its last. For a
    draft that costs a guess, never exactness."""
    return tokens.clamp(max=model.model.embed_tokens.num_embeddings - 1)


def same_width(logits: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Draft logits over the target's vocabulary: padding is cut off, and what the draft lacks it
    never proposes."""
    if logits.shape[-1] >= vocabulary:
        return logits[..., :vocabulary]
    return torch.nn.functional.pad(logits, (0, vocabulary - logits.shape[-1]), value=-torch.inf)
