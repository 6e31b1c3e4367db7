"""Both models read a text that is already there, and say what each of its tokens was worth to them.

One forward of each model gives its hidden states at every position. The laws over the vocabulary are
made from those a few hundred positions at a time: batch x length x vocabulary numbers would fill the
memory of any machine (16 texts of 2,000 tokens with Llama-3's vocabulary: 16 GB in float32).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from course_lib.bars import Progress
from course_lib.lookup import LOOKUP, MODEL, NONE, NOTHING, guesses
from course_lib.sampling import GREEDY, Sampling, probabilities, with_guesses
from course_lib.speculate import _known, _same_width

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
    draft_sampling = draft_law(sampling, draft_mode)
    scores, near_ties, done = [{} for _ in texts], 0, 0
    seconds = {"score_target": 0.0, "score_draft": 0.0}
    for group in batches([len(prompt) + len(text) for prompt, text in zip(ids, texts, strict=True)], batch):
        columns, missed = _score_batch(pair, [ids[i] for i in group], [texts[i] for i in group], sampling,
                                       draft_sampling, seconds)
        ends = np.cumsum([len(texts[i]) for i in group])[:-1]
        for name, values in columns.items():
            for i, part in zip(group, np.split(values, ends), strict=True):
                scores[i][name] = part
        near_ties, done = near_ties + missed, done + len(group)
        if progress:
            progress("both models score", done, len(texts))
    return scores, near_ties, seconds


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
def _score_batch(pair, ids, texts, sampling, draft_sampling, seconds) -> tuple[dict[str, np.ndarray], int]:
    """Columns for all tokens of the batch, text after text, and the number of near-ties."""

    def lap(stage: str, since: float) -> float:
        if pair.device.type == "cuda":
            torch.cuda.synchronize(pair.device)
        now = time.perf_counter()
        seconds[stage] += now - since
        return now

    clock = time.perf_counter()
    target_states = _states(pair.target, ids, texts, pair.device)
    clock = lap("score_target", clock)
    draft_states = target_states[:0] if pair.draft is None else _states(pair.draft, ids, texts, pair.device)
    tokens = torch.tensor([token for text in texts for token in text], device=pair.device)
    guess = torch.full_like(tokens, NONE)
    if pair.lookup:
        found = [guesses(pair.lookup, prompt, text) for prompt, text in zip(ids, texts, strict=True)]
        guess = torch.from_numpy(np.concatenate(found)).to(pair.device)
    clock = lap("score_draft", clock)
    parts, missed = [], 0
    for at in range(0, len(tokens), CHUNK):
        here = slice(at, at + CHUNK)
        p = probabilities(pair.target.lm_head(target_states[here]).to(pair.device), sampling)
        clock = lap("score_target", clock)
        q, best = torch.zeros_like(p), torch.full_like(guess[here], NONE)
        drafter = torch.full_like(best, NOTHING)
        if pair.draft is not None:
            logits = _same_width(pair.draft.lm_head(draft_states[here]).to(pair.device), p.shape[-1])
            q, best = probabilities(logits, draft_sampling), logits.argmax(-1)
            drafter = torch.full_like(drafter, MODEL)
        if pair.lookup:
            sure = guess[here] != NONE
            q = with_guesses(q, guess[here])
            best, drafter = torch.where(sure, guess[here], best), drafter.masked_fill(sure, LOOKUP)
        clock = lap("score_draft", clock)
        missed += int((p.gather(-1, tokens[here, None]) == 0).sum())
        if sampling.temperature == 0:  # the text says which of two near-equal logits won
            p = torch.zeros_like(p).scatter_(-1, tokens[here, None], 1.0)
        parts.append(_columns(p, q, best, tokens[here]) | {"drafter": drafter.to(torch.int8)})
    return {name: torch.cat([part[name] for part in parts]).cpu().numpy() for name in parts[0]}, missed


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


def _states(model, ids, texts, device) -> torch.Tensor:
    """Last hidden states that predict each token of the texts [all their tokens, size], in one forward."""
    rows = [[*prompt, *text[:-1]] for prompt, text in zip(ids, texts, strict=True)]
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for i, row in enumerate(rows):
        padded[i, :len(row)] = torch.tensor(row)
    # Padding is on the right, where causal attention never looks, so it needs no mask.
    states = model.model(input_ids=_known(model, padded.to(device)), use_cache=False).last_hidden_state
    where = [(i, len(prompt) - 1 + t) for i, (prompt, text) in enumerate(zip(ids, texts, strict=True))
             for t in range(len(text))]
    row, column = torch.tensor(where, device=states.device).T
    return states[row, column]
