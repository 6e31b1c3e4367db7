"""Checks of notebook 03: what right looks like, and every wrong turn we know by name."""

import numpy as np

from course_lib.course.checks import exercise
from course_lib.theory import alpha_from_prefix_rate, alpha_from_tokens, expected_accepted, expected_tokens

_FLAT = {1: 10.0, 2: 10.1, 3: 10.2, 4: 10.3, 5: 10.4}
_STEEP = {1: 8.47, 2: 13.49, 3: 15.64}
_NARROW = "you took the verify at width {k}. The target reads the text's last token too: width {k} + 1."


def _round(k, t_draft, verify, overhead, width=1, steps=0):
    return (k + steps) * t_draft + verify[k + width] + overhead if k else verify[1]


@exercise(
    "3.1",
    inputs=[(4, 1.0, _FLAT, 0.5), (1, 2.0, _STEEP, 0.3), (2, 0.2, _STEEP, 0.0), (0, 1.0, _FLAT, 0.5)],
    right="a round with k = {k} takes {got:.1f} ms",
    wrong={
        "one too narrow": (lambda *a: _round(*a, width=0), _NARROW),
        "one too narrow, raising": (lambda k, t, verify, o: k * t + verify[k] + (o if k else 0), _NARROW),
        "overhead in plain decoding": (
            lambda k, t_draft, verify, overhead: k * t_draft + verify[k + 1] + overhead,
            "k = 0 is plain decoding: no round, no overhead. You charge it {got:.1f} ms, not {want:.1f}."),
        "no overhead": (lambda k, t_draft, verify, overhead: _round(k, t_draft, verify, 0.0),
            "you forgot the overhead, which every speculative round pays once."),
        "overhead on each draft": (
            lambda k, t_draft, verify, overhead: k * (t_draft + overhead) + verify[k + 1],
            "you charge the overhead once a draft. It comes once a round."),
        "one draft step": (
            lambda k, t_draft, verify, overhead: _round(k, t_draft / max(k, 1), verify, overhead),
            "you charge one draft step for all {k} drafts. The draft writes one token a step."),
        "one draft too many": (lambda *a: _round(*a, steps=1),
            "you charge {k} + 1 draft steps. The last token a round emits is the target's own."),
        "a step for each token": (
            lambda k, t_draft, verify, overhead: k * (t_draft + verify[1]) + overhead if k else verify[1],
            "you let the target read the drafts one by one. Reading them in one step is the whole point."),
        "verify forgotten": (lambda k, t_draft, verify, overhead: k * t_draft + overhead if k else verify[1],
            "{got:.1f} ms is the drafting and the overhead. Who checks the drafts?"),
    },
    raised={"KeyError": "`verify` has the widths 1 to k + 1 and no other."},
)
def round_time(k, t_draft, verify, overhead):
    return _round(k, t_draft, verify, overhead)


@exercise(
    "3.2",
    inputs=[(0.8, 5, 0.1), (0.6, 2, 0.02), (0.3, 4, 0.5), (1.0, 3, 0.2), (0.9, 0, 0.3)],
    right="α = {alpha}, k = {k}, c = {c}: {got:.3f} times as fast",
    wrong={
        "tokens": (lambda alpha, k, c: expected_tokens(alpha, k),
            "{got:.3f} is tokens per round. Divide by what the round costs."),
        "accepted": (lambda alpha, k, c: expected_accepted(alpha, k) / (k * c + 1),
            "you divided the *accepted* drafts by the cost. Every round emits one token more."),
        "free verify": (lambda alpha, k, c: expected_tokens(alpha, k) / (k * c) if k else 1.0,
            "you pay for drafting alone. The round also has its target step: k·c + 1."),
        "free verify, raising": (lambda alpha, k, c: expected_tokens(alpha, k) / (k * c),
            "you pay for drafting alone. The round also has its target step: k·c + 1."),
        "c for all drafts": (lambda alpha, k, c: expected_tokens(alpha, k) / (c + 1),
            "c is the price of *one* draft step; a round has {k} of them."),
        "a draft too many": (lambda alpha, k, c: expected_tokens(alpha, k) / ((k + 1) * c + 1),
            "{k} + 1 draft steps: the last token is the target's own and costs no draft step."),
        "upside down": (lambda alpha, k, c: (k * c + 1) / expected_tokens(alpha, k),
            "{got:.3f} is time per token, in target steps. Turn it over."),
        "difference": (lambda alpha, k, c: expected_tokens(alpha, k) - k * c,
            "you took the cost off. A speedup is a quotient: how often the old time holds the new one."),
    },
    raised={"ZeroDivisionError": "one of the inputs is α = 1; `expected_tokens` knows that limit."},
)
def speedup_iid(alpha, k, c):
    return expected_tokens(alpha, k) / (k * c + 1)


@exercise(
    "3.3",
    right="{got:.2f} times: 3.3616 tokens for the price of 1.3 target steps.",
    wrong={
        "three tokens": (lambda: 3 / 1.3,
            "{got:.2f} is what rounding down to 3 tokens gives. A round emits 3.3616."),
        "three tokens, rounded": (lambda: 2.3,
            "{got} is what rounding down to 3 tokens gives. A round emits 3.3616."),
        "accepted": (lambda: 2.3616 / 1.3, "2.3616 is the accepted drafts. A round emits one token more."),
        "each draft": (lambda: 3.3616 / 2.2,
            "you charge 30 % for each draft. Here the four of them cost 30 % together."),
        "tokens": (lambda: 3.3616, "that is tokens per round, for the price of 1.3 target steps."),
        "free verify": (lambda: 3.3616 / 0.3, "you forgot the target step: the round costs 1 + 0.3."),
    },
    rtol=3e-3,
)
def napkin():
    return expected_tokens(0.8, 4) / 1.3


@exercise(
    "3.4",
    inputs=[(0.65, 1.3), (0.4275, 1.25), (0.4275, 1.5), (2.0, 3.0), (2.36, 1.3), (0.2, 1.3), (1.6, 1.3)],
    right="{accepted} accepted drafts for {cost} target steps: {got}",
    wrong={
        "accepted": (lambda accepted, cost: accepted > cost,
            "that asks more than {cost} *accepted* drafts. A round emits one token more, {accepted} + 1, "
            "and the cost holds the target step already."),
        "verify twice, accepted": (lambda accepted, cost: accepted > cost + 1,
            "two slips: a round emits accepted + 1, and the cost holds the target step already."),
        "a draw pays": (lambda accepted, cost: accepted + 1 >= cost,
            "{accepted} + 1 tokens for {cost} steps is exactly what plain decoding does: nothing is gained."),
        "always": (lambda accepted, cost: True, "{accepted} + 1 tokens for {cost} steps is a loss."),
        "turned round": (lambda accepted, cost: accepted + 1 < cost, "you have the two the wrong way round."),
    },
)
def pays(accepted, cost):
    return accepted + 1 > cost


def _net(alpha, K, draft, plain, verify):
    return expected_tokens(alpha, K) * plain / (draft + verify)


@exercise(
    "3.5",
    inputs=[(0.8, 4, 1, 8, 2), (0.6, 2, 0, 5, 1), (0.7, 1, 0.5, 0, 3), (0.9, 0, 1, 8, 2)],
    right="{got:.3f} times at α = {alpha}, K = {K}; one token was missing from every verify",
    wrong={
        "as printed": (lambda alpha, K, t, base, per: _net(alpha, K, K * t, base + per, base + K * per),
            "that is still {got:.3f}, as printed. How many tokens does a verify of K = {K} drafts read?"),
        "baseline without its token": (
            lambda alpha, K, t, base, per: _net(alpha, K, K * t, base, base + K * per),
            "that makes K = 0 right, but a plain step reads a token too: base + per_token. "
            "It is the verify that is short."),
        "too short both": (lambda alpha, K, t, base, per: _net(alpha, K, K * t, base, base + (K + 1) * per),
            "the verify is right now; the plain step still reads one token, base + per_token."),
        "a draft too many": (
            lambda alpha, K, t, base, per: _net(alpha, K, (K + 1) * t, base + per, base + (K + 1) * per),
            "the verify is right, but the draft runs K times, not K + 1."),
        "two too many": (
            lambda alpha, K, t, base, per: _net(alpha, K, K * t, base + per, base + (K + 2) * per),
            "one token too many: a verify reads the K drafts and the one token before them."),
    },
    raised={"ZeroDivisionError": "is something divided by K, or by t_draft? Both may be 0."},
)
def net_speedup_right(alpha, K, t_draft, base, per_token):
    return _net(alpha, K, K * t_draft, base + per_token, base + (K + 1) * per_token)


def _argmax(score, max_k, first=0):
    return max(range(first, max_k + 1), key=lambda k: (score(k), -k))


def _flat(alpha, c):
    return lambda k: expected_tokens(alpha, k) / (k * c + 1)


@exercise(
    "3.6",
    inputs=[(0.8, 0.1, 12), (0.3, 0.4, 12), (0.9, 0.02, 6), (0.5, 0.3, 8), (0.0, 0.0, 5), (0.7, 0.02, 20)],
    right="draft {got} at α = {alpha} and c = {c}",
    wrong={
        "never off": (lambda alpha, c, max_k: _argmax(_flat(alpha, c), max_k, 1),
            "you start at k = 1. At α = {alpha} and c = {c} every k ≥ 1 loses or gains nothing: off is 0."),
        "one step short": (lambda alpha, c, max_k: _argmax(_flat(alpha, c), max_k - 1),
            "`range` stops before its end: you never tried k = {max_k}."),
        "most tokens": (lambda alpha, c, max_k: _argmax(lambda k: expected_tokens(alpha, k), max_k),
            "k = {got} emits the most tokens, but it also costs the most. Compare speedups."),
        "difference": (lambda alpha, c, max_k: _argmax(lambda k: expected_tokens(alpha, k) - k * c, max_k),
            "k = {got} has the largest *difference* of tokens and cost, which is to draft while α^k > c. "
            "Speedup is the quotient."),
        "index off by one": (lambda alpha, c, max_k: max(_argmax(_flat(alpha, c), max_k, 1) - 1, 0),
            "that is a position in a list which starts at k = 1. The k there is one more."),
        "pair": (lambda alpha, c, max_k: (lambda k: (k, _flat(alpha, c)(k)))(_argmax(_flat(alpha, c), max_k)),
            "return k alone, not k and its speedup."),
        "speedup": (lambda alpha, c, max_k: _flat(alpha, c)(_argmax(_flat(alpha, c), max_k)),
            "{got:.3f} is the best speedup. Which k has it?"),
    },
)
def pick_k(alpha, c, max_k):
    return _argmax(_flat(alpha, c), max_k)


_CASES = [(1.3, 1), (1.5927, 1), (1.8465, 2), (2.4404, 4), (3.5, 2), (1.25, 5)]


def _capped(solve):
    return lambda cost, k: None if cost > k + 1 else solve(cost, k)


_PREFIX = (
    "{got:.3f} is the prefix rate, (cost − 1) / k. A draft counts only if those before it were accepted, so "
    "α must be higher."
)


@exercise(
    "3.7",
    inputs=_CASES,
    right="{k} draft at the price of {cost} target steps pays above α = {got:.3f}",
    wrong={
        "no ceiling": (lambda cost, k: alpha_from_tokens(min(cost, k + 1), k),
            "k = {k} and {cost} steps: {k} drafts can emit {k} + 1 tokens at most. No α pays; return None."),
        "no ceiling, raising": (alpha_from_tokens,
            "k = {k} and {cost} steps: {k} drafts can emit {k} + 1 tokens at most. No α pays; return None."),
        "prefix rate": (_capped(lambda cost, k: (cost - 1) / k), _PREFIX),
        "prefix rate, no ceiling": (lambda cost, k: (cost - 1) / k, _PREFIX),
        "as if k were one": (lambda cost, k: cost - 1,
            "cost − 1 is right for k = 1 only. With k = {k} more drafts may be accepted."),
        "plain geometric": (_capped(lambda cost, k: 1 - 1 / cost),
            "you inverted 1 / (1 − α), a round that never runs out of drafts. This one stops at k = {k}."),
        "accepted": (_capped(lambda cost, k: alpha_from_prefix_rate(min(1.0, cost / k), k)),
            "you asked the accepted drafts to pay. The target's own token pays one step by itself."),
    },
    raised={"ValueError": "is that a cost above k + 1, which no α pays? Return None there."},
    rtol=1e-4,
)
def least_alpha(cost, k):
    return None if cost > k + 1 else alpha_from_tokens(cost, k)


@exercise(
    "3.8",
    inputs=[(32, 295), (1, 295), (64, 153), (295, 295), (400, 295), (10, 206)],
    right="{got} drafts a row are nearly free at batch {batch}",
    wrong={
        "k as width": (lambda batch, ridge: max(int(ridge // batch), 0),
            "{got} tokens a row fit, but one of them is the text's last token: {got} − 1 drafts."),
        "negative": (lambda batch, ridge: int(ridge // batch) - 1,
            "batch {batch} is past the ridge already. {got} drafts cannot be; 0 can."),
        "rounded up": (lambda batch, ridge: max(-int(-ridge // batch) - 1, 0),
            "{got} drafts would make {batch} × ({got} + 1) tokens, more than {ridge}. Round down."),
        "fraction": (lambda batch, ridge: max(ridge / batch - 1, 0),
            "drafts come whole: round {got:.2f} down."),
        "batch ignored": (lambda batch, ridge: int(ridge) - 1,
            "all rows pass through the same weights: the tokens of all {batch} of them count."),
    },
)
def free_drafts(batch, ridge):
    return max(int(ridge // batch) - 1, 0)


_PUBLISHED = ([3, 5, 7], [0.547, 0.440, 0.363], [1.30, 1.21, 1.09])


def _line(ks, costs):
    return [float(x) for x in np.polyfit(ks, costs, 1)[::-1]]


def _emitted(ks, rates):
    return 1 + np.array(ks) * np.array(rates)


@exercise(
    "3.9",
    inputs=[_PUBLISHED, ([1, 2, 4], [0.7, 0.6, 0.45], [1.3, 1.35, 1.2])],
    right="a round cost {got[0]:.2f} + {got[1]:.2f} k target steps",
    wrong={
        "accepted": (lambda ks, rates, speedups: _line(ks, (_emitted(ks, rates) - 1) / np.array(speedups)),
            "k × rate is the accepted drafts. A round emits one token more."),
        "rate as alpha": (
            lambda ks, rates, speedups: _line(
                ks, [expected_tokens(a, k) / s for a, k, s in zip(rates, ks, speedups, strict=True)]
            ),
            "you put the prefix rate into the formula as α. The counts say it directly: 1 + k × rate."),
        "upside down": (lambda ks, rates, speedups: _line(ks, np.array(speedups) / _emitted(ks, rates)),
            "speedup = tokens ÷ cost, so cost = tokens ÷ speedup. You have it upside down."),
        "swapped": (lambda ks, rates, speedups: cost_line(ks, rates, speedups)[::-1],
            "the two numbers are right, the order is not: the constant first, then the price of a draft."),
        "speedups": (lambda ks, rates, speedups: _line(ks, np.array(speedups)),
            "that is a line through the speedups. Turn each into a cost first."),
        "tokens": (lambda ks, rates, speedups: _line(ks, _emitted(ks, rates)),
            "that is a line through tokens per round. Divide each by its speedup to get the cost."),
        "through one": (
            lambda ks, rates, speedups: [
                1.0,
                float(np.dot(ks, _emitted(ks, rates) / np.array(speedups) - 1) / np.dot(ks, ks)),
            ],
            "you made the line start at exactly 1. Let it choose: the overhead sits there."),
    },
    rtol=1e-3,
)
def cost_line(ks, rates, speedups):
    return _line(ks, _emitted(ks, rates) / np.array(speedups))
