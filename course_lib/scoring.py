"""What each token of a text was worth to both models: of a text that is there, or that the target now writes.

One forward of a model gives its hidden states at every position; the target has had them when it wrote. The
laws over the vocabulary are made from those a few hundred positions at a time: batch x length x vocabulary
numbers would fill the memory of any machine (16 texts of 2,000 tokens with Llama-3's vocabulary: 16 GB in
float32).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from course_lib.bars import Progress
from course_lib.lookup import LOOKUP, MODEL, NONE, NOTHING, guesses
from course_lib.sampling import GREEDY, Sampling, probabilities, with_guesses
from course_lib.speculate import decode_plain, known_tokens, same_width

CHUNK = 256  # positions whose laws exist at once: 50 MB each at 49,152 tokens in float32
MOST_TOKENS = 8192  # tokens in one forward, padding included, unless a single text is longer


def score_texts(pair, ids: Sequence[list[int]], texts: Sequence[list[int]], sampling: Sampling,
                draft_mode: str = "sample", batch: int = 16, progress: Progress | None = None):
    """Score texts behind prompts; both are token ids, one list a prompt.

    sampling, draft_mode: the laws p and q, as in `speculate.decode`. batch: the most texts in a forward.
    Returns a dict of columns for each text (1-D arrays: logp, logq, match, overlap, accept, entropy,
    drafter; see `traces.Trace`), the number of near-ties (tokens to which the target gives chance 0) and a
    dict of seconds (score_target, score_draft).
    """
    (scores,), near_ties, seconds = score_drafts([pair], ids, texts, sampling, draft_mode, batch, progress)
    return scores, near_ties, seconds


def score_drafts(pairs: Sequence, ids: Sequence[list[int]], texts: Sequence[list[int]], sampling: Sampling,
                 draft_mode: str = "sample", batch: int = 16, progress: Progress | None = None):
    """As `score_texts`, for pairs that share a target, which reads each text once: the first value returned
    is a list, by pair, of what that returns, and the seconds are those of all."""
    groups = batches([len(prompt) + len(text) for prompt, text in zip(ids, texts, strict=True)], batch)
    stage = "both models score" if len(pairs) == 1 else "target and drafts score"
    _, *found = _score(pairs, ids, ((group, [texts[i] for i in group], None) for group in groups), sampling,
                       draft_mode, stage, progress)
    return found


def write_and_score(pairs: Sequence, ids: Sequence[list[int]], new_tokens: int, sampling: Sampling,
                    draft_mode: str = "sample", batch: int = 16,
                    generator: torch.Generator | None = None, progress: Progress | None = None):
    """The target writes `new_tokens` behind each prompt, fewer where it ends the text; the drafts read them.

    Returns the texts (token ids), and what `score_drafts` says of them, with the seconds of writing, too
    (write). The target need not read its text again: its law at each token is that which the token came from.
    """
    writer, seconds = min(pairs, key=lambda pair: pair.context), {"write": 0.0}

    def write() -> Iterator[tuple]:
        for group in batches([len(row) + new_tokens for row in ids], batch):
            written = decode_plain(writer, [ids[i] for i in group], new_tokens, sampling, generator,
                                   keep_states=True)
            seconds["write"] += written.seconds
            yield group, written.tokens, torch.cat(written.states)

    stage = f"the target writes, the draft{'s' * (len(pairs) > 1)} read{'s' * (len(pairs) == 1)}"
    *found, others = _score(pairs, ids, write(), sampling, draft_mode, stage, progress)
    return *found, seconds | others


def _score(pairs, ids, groups: Iterable[tuple], sampling: Sampling, draft_mode: str, stage: str,
           progress: Progress | None):
    """groups: indices of prompts, their texts, and the target's states [all tokens, size] if it had them."""
    draft_sampling = draft_law(sampling, draft_mode)
    texts, scores, near_ties, done = [None] * len(ids), [[{} for _ in ids] for _ in pairs], 0, 0
    seconds = {"score_target": 0.0, "score_draft": 0.0}
    for group, written, states in groups:
        found, missed = _score_batch(pairs, [ids[i] for i in group], written, states, sampling,
                                     draft_sampling, seconds)
        for i, text in zip(group, written, strict=True):
            texts[i] = text
        ends = np.cumsum(list(map(len, written)))[:-1]
        for one, columns in zip(scores, found, strict=True):
            for name, values in columns.items():
                for i, part in zip(group, np.split(values, ends), strict=True):
                    one[i][name] = part
        near_ties, done = near_ties + missed, done + len(group)
        if progress:
            progress(stage, done, len(ids))
    return texts, scores, near_ties, seconds


def draft_law(sampling: Sampling, draft_mode: str) -> Sampling:
    """How the draft's tokens are drawn: "sample" as the target's, "greedy" always the likeliest."""
    if draft_mode not in ("sample", "greedy"):
        raise ValueError(f'draft_mode is "sample" or "greedy", not {draft_mode!r}')
    return sampling if draft_mode == "sample" else GREEDY


def batches(lengths: Sequence[int], most_rows: int) -> Iterator[list[int]]:
    """Indices in groups of similar length, so that little is padding; none wider than MOST_TOKENS.

    Raises ValueError where most_rows is below 1.
    """
    if most_rows < 1:
        raise ValueError(f"batch must be 1 or more texts at a time, not {most_rows}")
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) == most_rows or (len(group) + 1) * lengths[i] > MOST_TOKENS):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


@torch.inference_mode()
def _score_batch(pairs, ids, texts, target_states, sampling, draft_sampling, seconds):
    """By pair the columns for all tokens of the batch, text after text (a dict); the number of near-ties."""
    target, device = pairs[0].target, pairs[0].device

    def lap(stage: str, since: float) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.perf_counter()
        seconds[stage] += now - since
        return now

    clock = time.perf_counter()
    if target_states is None:
        target_states = hidden_states(target, ids, texts, device)
    clock = lap("score_target", clock)
    tokens = torch.tensor([token for text in texts for token in text], device=device)
    drafts = []
    for pair in pairs:
        states, guess = target_states[:0], torch.full_like(tokens, NONE)
        if pair.draft is not None:
            states = hidden_states(pair.draft, ids, texts, device)
        if pair.lookup:
            found = [guesses(pair.lookup, prompt, text) for prompt, text in zip(ids, texts, strict=True)]
            guess = torch.from_numpy(np.concatenate(found)).to(device)
        drafts.append((pair, states, guess))
    clock = lap("score_draft", clock)
    parts, missed = [[] for _ in pairs], 0
    for at in range(0, len(tokens), CHUNK):
        here = slice(at, at + CHUNK)
        p = probabilities(target.lm_head(target_states[here]).to(device), sampling)
        clock = lap("score_target", clock)
        missed += int((p.gather(-1, tokens[here, None]) == 0).sum())
        if sampling.temperature == 0:  # the text says which of two near-equal logits won
            p = torch.zeros_like(p).scatter_(-1, tokens[here, None], 1.0)
        for columns, (pair, states, guess) in zip(parts, drafts, strict=True):
            q, best, drafter = _draft_law(pair, states[here], guess[here], p, draft_sampling)
            columns.append(_columns(p, q, best, tokens[here]) | {"drafter": drafter.to(torch.int8)})
        clock = lap("score_draft", clock)
    return [{name: torch.cat([part[name] for part in columns]).cpu().numpy() for name in columns[0]}
            for columns in parts], missed


def _draft_law(pair, states, guess, p, sampling):
    """q where these states predict [positions, vocabulary], as wide as p; its likeliest token, and what
    drafts there."""
    q, best = torch.zeros_like(p), torch.full_like(guess, NONE)
    drafter = torch.full_like(best, NOTHING)
    if pair.draft is not None:
        logits = same_width(pair.draft.lm_head(states).to(pair.device), p.shape[-1])
        q, best = probabilities(logits, sampling), logits.argmax(-1)
        drafter = torch.full_like(drafter, MODEL)
    if pair.lookup:
        sure = guess != NONE
        q = with_guesses(q, guess)
        best, drafter = torch.where(sure, guess, best), drafter.masked_fill(sure, LOOKUP)
    return q, best, drafter


def _columns(p, q, guess, token) -> dict[str, torch.Tensor]:
    """The numbers kept of laws p and q [positions, vocabulary] at each token of the text [positions]."""
    p_token, q_token = p.gather(-1, token[:, None])[:, 0], q.gather(-1, token[:, None])[:, 0]
    return {
        # Sums of a whole law may end a rounding above 1: the clamps take that back.
        "logp": p_token.log().clamp(max=0), "logq": q_token.log().clamp(max=0), "match": guess == token,
        "overlap": torch.minimum(p, q).sum(-1).clamp(max=1),
        # Not min(1, p/q), the chance of a token that the draft drew: this one was drawn from p.
        "accept": (q_token / p_token.clamp(min=torch.finfo(p.dtype).tiny)).clamp(max=1),
        "entropy": torch.special.entr(p).sum(-1).clamp(min=0),
    }


def hidden_states(model, ids, texts, device) -> torch.Tensor:
    """Last hidden states that predict each token of the texts [all their tokens, size], in one forward."""
    rows = [[*prompt, *text[:-1]] for prompt, text in zip(ids, texts, strict=True)]
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for i, row in enumerate(rows):
        padded[i, :len(row)] = torch.tensor(row)
    # Padding is on the right, where causal attention never looks, so it needs no mask.
    states = model.model(input_ids=known_tokens(model, padded.to(device)), use_cache=False).last_hidden_state
    where = [(i, len(prompt) - 1 + t) for i, (prompt, text) in enumerate(zip(ids, texts, strict=True))
             for t in range(len(text))]
    row, column = torch.tensor(where, device=states.device).T
    return states[row, column]
