"""Checks of notebook 09: what right looks like, and every wrong turn we know by name."""

import math

from course_lib.course.checks import exercise

_YIELDS = {1: 1.7, 2: 2.2, 4: 2.8, 8: 3.1}
_PRICES = {
    1: {1: 1.15, 2: 1.3, 4: 1.6, 8: 2.2},  # best 4
    8: {1: 1.2, 2: 1.6, 4: 2.4, 8: 4.0},  # best 1, though 2 has the larger difference
    32: {1: 1.9, 2: 2.6, 4: 4.1, 8: 7.0},  # off
}
_CHEAP = {1: {1: 1.01, 2: 1.02, 4: 1.04, 8: 1.08}, 4: {1: 1.2, 2: 1.9, 4: 3.5, 8: 6.0}}  # best 8, then 1


def _best(score, yields, prices, floor=1.0):
    chosen = {}
    for batch, price in prices.items():
        best = max(yields, key=lambda k: score(yields[k], price[k]))
        chosen[batch] = best if floor is None or yields[best] / price[best] > floor else 0
    return chosen


@exercise(
    "9.1",
    inputs=[(_YIELDS, _PRICES), (_YIELDS, _CHEAP)],
    right="k by batch: {got}. The yields never changed, only the prices.",
    wrong={
        "never off": (
            lambda yields, prices: _best(lambda y, p: y / p, yields, prices, None),
            "at batch 32 every k gives a speedup below 1: {yields} tokens for {prices[32]} steps. There the "
            "answer is 0, off.",
        ),
        "most tokens": (
            lambda yields, prices: _best(lambda y, p: y, yields, prices),
            "you took the k with the most tokens. It also costs the most: divide by the price.",
        ),
        "most tokens, never off": (
            lambda yields, prices: _best(lambda y, p: y, yields, prices, None),
            "you took the k with the most tokens. It also costs the most: divide by the price.",
        ),
        "difference": (
            lambda yields, prices: _best(lambda y, p: y - p, yields, prices),
            "you compared tokens − price. Speedup is the quotient, and the two choose different k.",
        ),
        "difference, never off": (
            lambda yields, prices: _best(lambda y, p: y - p, yields, prices, None),
            "you compared tokens − price. Speedup is the quotient, and the two choose different k.",
        ),
        "one k for all": (
            lambda yields, prices: dict.fromkeys(prices, _best(lambda y, p: y / p, yields, prices)[1]),
            "you chose at batch 1 and kept it. At batch 32 that k is a loss: choose again for each batch.",
        ),
        "accepted": (
            lambda yields, prices: _best(
                lambda y, p: y / p, {k: y - 1 for k, y in yields.items()}, prices
            ),
            "you took one token off each yield. Tokens per round hold the target's own token, and it counts.",
        ),
        "speedups": (
            lambda yields, prices: {b: max(yields[k] / p[k] for k in yields) for b, p in prices.items()},
            "those are the best speedups. Which k has them?",
        ),
        "pairs": (
            lambda yields, prices: {
                b: (k, yields[k] / prices[b][k] if k else 1.0)
                for b, k in _best(lambda y, p: y / p, yields, prices).items()
            },
            "return the k alone for each batch, not k and its speedup.",
        ),
    },
)
def k_by_batch(yields, prices):
    return _best(lambda y, p: y / p, yields, prices)


_H100, _SMALL = (8e9, 131_072, 3.35e12, 989e12), (1e8, 50_000, 1.4e10, 4.5e10)


def _step(weight_bytes, flop, cache_bytes, bandwidth, flops, how=max):
    return how(weight_bytes / bandwidth, flop / flops) + cache_bytes / bandwidth


@exercise(
    "9.2",
    inputs=[
        (32, 4, 1000, *_H100),  # reading decides
        (256, 4, 1000, *_H100),  # arithmetic decides
        (1, 1, 0, *_H100),
        (8, 2, 500, *_SMALL),
    ],
    right="batch {batch}, width {width}, context {context}: at least {got:.5f} seconds",
    wrong={
        "sum": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b * w, b * c * m, bw, fl, lambda x, y: x + y),
            "you added reading and multiplying. They overlap: while one weight is multiplied the next is "
            "read. The larger of the two counts.",
        ),
        "one maximum": (
            lambda b, w, c, n, m, bw, fl: max((2 * n + b * c * m) / bw, 2 * n * b * w / fl),
            "one maximum over everything lets the cache be read while the matrices are multiplied. In each "
            "layer one waits for the other: the cache's time comes on top.",
        ),
        "weights for each row": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n * b, 2 * n * b * w, b * c * m, bw, fl),
            "you read the weights once for each row. One reading serves all {batch} rows: that is what a "
            "batch is for.",
        ),
        "cache for each token": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b * w, b * w * c * m, bw, fl),
            "you read a row's cache once for each of its {width} new tokens. It is read once for all of "
            "them: that is why long contexts like speculation.",
        ),
        "one cache": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b * w, c * m, bw, fl),
            "you read one cache. Each of the {batch} rows has its own text, and its own cache.",
        ),
        "width forgotten": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b, b * c * m, bw, fl),
            "the arithmetic is paid for each *token*: batch × width = {batch} × {width} of them.",
        ),
        "one FLOP": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, n * b * w, b * c * m, bw, fl),
            "a weight is multiplied *and* added: two FLOP for each token.",
        ),
        "one byte": (
            lambda b, w, c, n, m, bw, fl: _step(n, 2 * n * b * w, b * c * m, bw, fl),
            "`weights` is a count. Each weight is 2 bytes to read.",
        ),
        "cache doubled": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b * w, 2 * b * c * m, bw, fl),
            "`cache` is in bytes already: no further factor 2.",
        ),
        "no cache": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b * w, 0, bw, fl),
            "{got:.5f} is the matrices alone. Attention also reads {batch} rows × {context} tokens of cache.",
        ),
        "minimum": (
            lambda b, w, c, n, m, bw, fl: _step(2 * n, 2 * n * b * w, b * c * m, bw, fl, min),
            "you took the faster of the two. The step has to wait for the slower one.",
        ),
    },
)
def least_step(batch, width, context, weights, cache, bandwidth, flops):
    return _step(2 * weights, 2 * weights * batch * width, batch * context * cache, bandwidth, flops)


def _ranges(best, merge=True, start_at=None, keep_off=True, overlap=0, smaller=False):
    found, start = [], 1
    items = sorted(best.items())
    for index, (batch, k) in enumerate(items):
        if smaller:  # a batch between two takes the k of the smaller one
            start = batch if index else 1
            end = items[index + 1][0] - 1 if index + 1 < len(items) else batch
        else:
            end = batch
        if start_at == "measured":
            start = batch
        if merge and found and found[-1][2] == k:
            found[-1][1] = end
        else:
            found.append([start, end, k])
        start = end + 1 - overlap
    return [each for each in found if keep_off or each[2]]


def _by_batch(ranges):
    """k at each batch by a learner's ranges for _MEASURED."""
    return {batch: k for low, high, k in ranges(dict(_MEASURED)) for batch in range(low, high + 1)}


def _bold(ranges):
    k = _by_batch(ranges)
    if all(k.get(batch) == 4 for batch in range(3, 8)) and all(k.get(batch) == 2 for batch in range(9, 32)):
        return ("you gave a batch in between the k of the *smaller* measured one. That is the bold side: at "
                "31 rows it may be a loss already. Take the larger one's.")
    return None


def _late(ranges):
    first = ranges({8: 2})[0][0]
    return (f"your first range begins at {first}: the smaller batches have no k, and the engine refuses "
            "such a list. The first range begins at 1.") if first == 8 else None


def _first_measured(best):
    found = _ranges(best)
    return [[min(best), *found[0][1:]], *found[1:]]


_MEASURED = {1: 4, 2: 4, 8: 2, 32: 0}


@exercise(
    "9.3",
    inputs=[
        (_MEASURED,),
        ({1: 5, 4: 3, 16: 3, 64: 1},),
        ({32: 0, 1: 4, 16: 1, 8: 3},),
        ({8: 2},),
    ],
    right="{got}",
    wrong={
        "not merged": (
            lambda best: _ranges(best, merge=False),
            "right, but batches 1 and 2 have the same k: make them one range, [1, 2, 4].",
        ),
        "gaps": (
            lambda best: _ranges(best, start_at="measured"),
            "your ranges leave gaps: which k has batch 5? A range begins just after the batch before it.",
        ),
        "gaps, not merged": (
            lambda best: _ranges(best, merge=False, start_at="measured"),
            "your ranges hold the measured batches alone: which k has batch 5? A range begins just after the "
            "batch before it.",
        ),
        "off left out": (
            lambda best: _ranges(best, keep_off=False),
            "the range with k = 0 is missing. What is not in the list is not off: say it, [9, 32, 0].",
        ),
        "overlap": (
            lambda best: _ranges(best, overlap=1),
            "your ranges overlap: a batch that ends one range begins the next, and has two k.",
        ),
        "smaller": (
            lambda best: _ranges(best, smaller=True),
            "you gave a batch in between the k of the *smaller* measured one. That is the bold side: at 31 "
            "rows it may be a loss already. Take the larger one's.",
        ),
        "tuples swapped": (
            lambda best: [[k, low, high] for low, high, k in _ranges(best)],
            "the order is from, to, k.",
        ),
    },
    diagnose={
        "smaller, not merged": (_bold, lambda best: _ranges(best, merge=False, smaller=True)),
        "begins late": (_late, _first_measured),
    },
    raised={"KeyError": "does it look up a batch that was not measured?"},
)
def ranges(best):
    return _ranges(best)


@exercise(
    "9.4",
    inputs=[(100, 0.03, 2.67, 250), (1, 0.0045, 1.0, 100), (64, 0.012, 2.1, 500)],
    right="{rows} rows finish {got:.1f} requests a second",
    wrong={
        "one token a round": (
            lambda rows, round_seconds, tokens, length: rows / round_seconds / length,
            "a round emits {tokens} tokens in each row, not one.",
        ),
        "tokens a second": (
            lambda rows, round_seconds, tokens, length: rows * tokens / round_seconds,
            "{got:,.0f} are tokens a second. A request wants {length} of them.",
        ),
        "whole rounds": (
            lambda rows, round_seconds, tokens, length: rows / (math.ceil(length / tokens) * round_seconds),
            "you rounded a request up to whole rounds. Asked was the mean: {length} ÷ {tokens} rounds, not "
            "rounded.",
        ),
        "one row": (
            lambda rows, round_seconds, tokens, length: tokens / round_seconds / length,
            "that is one row. {rows} of them run at once.",
        ),
        "upside down": (
            lambda rows, round_seconds, tokens, length: length * round_seconds / tokens / rows,
            "{got:.4f} is seconds for each request. Turn it over.",
        ),
        "divided by tokens": (
            lambda rows, round_seconds, tokens, length: rows / round_seconds / tokens / length,
            "more tokens a round must finish *more* requests: multiply by them.",
        ),
        "latency": (
            lambda rows, round_seconds, tokens, length: tokens / (round_seconds * length * rows),
            "rows run side by side: {rows} rows finish {rows} times as many requests, not a part of them.",
        ),
    },
)
def requests_per_second(rows, round_seconds, tokens, length):
    return rows * tokens / round_seconds / length


@exercise(
    "9.5",
    inputs=[
        (0.08, 0.0045, 0.0067, 2.67),
        (0.005, 0.0045, 0.006, 1.9),
        (0.01, 0.0045, 0.0095, 2.0),  # never
        (0.01, 0.004, 0.008, 2.0),  # a draw: never
        (0.0, 0.0045, 0.0067, 2.67),
    ],
    right="pays from {got:.0f} new tokens on: {draft_prefill} s of reading, won back token by token",
    wrong={
        "no None": (
            lambda prefill, step, time, tokens: prefill / (step - time / tokens),
            "a round of {round_time} s for {tokens} tokens is slower than {step} s a token: nothing is ever "
            "won back. Return None.",
        ),
        "negative": (
            lambda prefill, step, time, tokens: (
                prefill / (step - time / tokens) if step != time / tokens else None
            ),
            "a round of {round_time} s for {tokens} tokens is slower than {step} s a token: nothing is ever "
            "won back. Return None.",
        ),
        "infinity": (
            lambda prefill, step, time, tokens: (
                prefill / (step - time / tokens) if step > time / tokens else float("inf")
            ),
            "where it never pays, return None (not infinity).",
        ),
        "rounds": (
            lambda prefill, step, time, tokens: (
                prefill / (step * tokens - time) if step > time / tokens else None
            ),
            "{got:.1f} is the number of *rounds*. Each of them emits {tokens} tokens.",
        ),
        "a round against a step": (
            lambda prefill, step, time, tokens: prefill / (step - time) if step > time else None,
            "you compared a whole round with a step, so it never pays. A round emits {tokens} tokens: a "
            "token takes round_time ÷ tokens.",
        ),
        "rounded": (
            lambda prefill, step, time, tokens: (
                math.ceil(prefill / (step - time / tokens)) if step > time / tokens else None
            ),
            "{got} is rounded up. Right for whole tokens; asked was the number itself, on average.",
        ),
        "a round for a token": (
            lambda prefill, step, time, tokens: prefill / (step - time),
            "a round takes longer than a step, always. It emits {tokens} tokens: divide.",
        ),
        "accepted": (
            lambda prefill, step, time, tokens: (
                prefill / (step - time / (tokens - 1)) if step > time / (tokens - 1) else None
            ),
            "you divided by the accepted drafts. A round emits one token more, and `tokens` has it already.",
        ),
        "no saving": (
            lambda prefill, step, time, tokens: prefill * tokens / time if step > time / tokens else None,
            "{got:.1f} tokens are written in the time of the draft's reading. They must be won back by what "
            "each *saves*: step − round_time ÷ tokens.",
        ),
        "plain tokens": (
            lambda prefill, step, time, tokens: prefill / step if step > time / tokens else None,
            "{got:.1f} plain tokens are written in the time of the draft's reading. What does speculating "
            "*save* with each token?",
        ),
    },
    raised={"ZeroDivisionError": "nothing is saved there: that is a case of never. Return None."},
)
def least_length(draft_prefill, step, round_time, tokens):
    saved = step - round_time / tokens
    return draft_prefill / saved if saved > 0 else None


_TARGET, _DRAFT = (16.06e9, 131_072), (2.47e9, 32_768)


def _rows(memory, weights, cache, context, whole=int):
    return max(0, whole((memory - weights) // (cache * context)))


@exercise(
    "9.6",
    inputs=[
        (21.6e9, [_TARGET, _DRAFT], 2000),
        (21.6e9, [_TARGET], 2000),
        (16e9, [_TARGET, _DRAFT], 500),
        (72e9, [_TARGET, _DRAFT], 8000),
    ],
    right="{got} rows of {context} tokens fit beside target and draft; without the draft it would be 21",
    wrong={
        "draft forgotten": (
            lambda memory, models, context: _rows(memory, models[0][0], models[0][1], context),
            "{got} rows is for the target alone. The draft takes room as well.",
        ),
        "draft's weights alone": (
            lambda memory, models, context: _rows(memory, sum(w for w, _ in models), models[0][1], context),
            "you have the draft's weights but not its cache: each row keeps one in both models.",
        ),
        "draft's cache alone": (
            lambda memory, models, context: _rows(memory, models[0][0], sum(c for _, c in models), context),
            "you have the draft's cache but not its weights: they lie in the same memory.",
        ),
        "weights forgotten": (
            lambda memory, models, context: _rows(memory, 0, sum(c for _, c in models), context),
            "the weights take room first: {models[0][0]:.3g} bytes of the target alone.",
        ),
        "one token": (
            lambda memory, models, context: rows_in_memory(memory, models, 1),
            "that is how many *tokens* fit. A row has {context}.",
        ),
        "negative": (
            lambda memory, models, context: int(
                (memory - sum(w for w, _ in models)) // (context * sum(c for _, c in models))
            ),
            "the weights do not fit into {memory:.3g} bytes: 0 rows, not {got}.",
        ),
        "rounded": (
            lambda memory, models, context: max(
                0, round((memory - sum(w for w, _ in models)) / (context * sum(c for _, c in models)))
            ),
            "{got} is rounded up: the last row fits only in part. Round down.",
        ),
        "fraction": (
            lambda memory, models, context: max(
                0.0, (memory - sum(w for w, _ in models)) / (context * sum(c for _, c in models))
            ),
            "rows come whole: round {got:.2f} down.",
        ),
        "weights in each row": (
            lambda memory, models, context: int(memory // sum(w + context * c for w, c in models)),
            "you gave every row weights of its own. They lie in memory once.",
        ),
    },
    raised={"ZeroDivisionError": "a row needs room for its context, in every model."},
)
def rows_in_memory(memory, models, context):
    return _rows(memory, sum(w for w, _ in models), sum(c for _, c in models), context)
