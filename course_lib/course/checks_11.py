"""Checks of notebook 11: what right looks like, and every wrong turn we know by name."""

import math

from scipy.optimize import brentq

from course_lib.course.checks import exercise
from course_lib.theory import expected_tokens

LAYER, HIDDEN, VOCABULARY, LAYERS = 3_540_096, 576, 49_152, 30  # SmolLM2-135M, as in the notebook
TARGET = LAYERS * LAYER + VOCABULARY * HIDDEN


@exercise(
    "11.1",
    inputs=[(4, 16_384), (2, 4_096), (6, 49_152), (30, 49_152)],
    right="{layers} layers and a head over {proposes:,} tokens read {got:.3f} of what a target step reads",
    wrong={
        "layers alone": (
            lambda layers, proposes: layers / LAYERS,
            "{got:.3f} is the share of the *layers*. Both models read their head in every step, too, and in "
            "a small draft it is the larger part."),
        "no head of the draft": (
            lambda layers, proposes: layers * LAYER / TARGET,
            "the draft has no head in your sum. It reads `proposes` rows of it for every token."),
        "full head": (
            lambda layers, proposes: (layers * LAYER + VOCABULARY * HIDDEN) / TARGET,
            "you gave the draft a head over the whole vocabulary. It reads only the rows of the {proposes:,} "
            "tokens that it proposes."),
        "target's head forgotten": (
            lambda layers, proposes: (layers * LAYER + proposes * HIDDEN) / (LAYERS * LAYER),
            "the target reads a head, too, over the whole vocabulary."),
        "embedding read": (
            lambda layers, proposes: (
                (layers * LAYER + (proposes + VOCABULARY) * HIDDEN) / (TARGET + VOCABULARY * HIDDEN)
            ),
            "you counted the embedding as read. Of the embedding a step takes one row; the head is what it "
            "reads whole."),
        "not divided": (
            lambda layers, proposes: layers * LAYER + proposes * HIDDEN,
            "{got:,} are the weights. Asked is their share of what a step of the target reads."),
    },
)
def read_share(layers, proposes):
    return (layers * LAYER + proposes * HIDDEN) / TARGET


def best_speedup(alpha, c):
    return max(1.0, *(expected_tokens(alpha, k) / (1 + k * c) for k in range(1, 13)))


def _needed(alpha, c, dearer, speed=best_speedup):
    wanted = speed(alpha, c)
    if speed(1.0, dearer) < wanted:
        return math.nan
    return brentq(lambda x: speed(x, dearer) - wanted, alpha, 1.0)


def _at_four(alpha, c):
    return expected_tokens(alpha, 4) / (1 + 4 * c)


@exercise(
    "11.2",
    inputs=[(0.6, 0.1, 0.2), (0.5, 0.05, 0.3), (0.7, 0.2, 0.4), (0.9, 0.02, 0.5)],
    right="a draft with α = {alpha} at c = {c} is matched at c = {dearer} by α = {got:.3f}",
    rtol=1e-3,
    wrong={
        "no price": (
            lambda alpha, c, dearer: alpha,
            "you returned the same α. The dearer draft has the dearer rounds, so it must yield more."),
        "in proportion": (
            lambda alpha, c, dearer: alpha * dearer / c,
            "{got:.2f} has α grow with the price. Twice the price does not take twice the α: "
            "compare speedups."),
        "difference": (
            lambda alpha, c, dearer: alpha + dearer - c,
            "you added the difference of the prices to α. Cost and chance are not in the same units: compare "
            "speedups."),
        "one k for both": (
            lambda alpha, c, dearer: _needed(alpha, c, dearer, _at_four),
            "both drafts have the same k in your sum. Each is used at the k that is best for it: "
            "`best_speedup`."),
        "beyond 1": (
            lambda alpha, c, dearer: 1.0 if math.isnan(found := _needed(alpha, c, dearer)) else found,
            "with α = {alpha} at c = {c} no draft at c = {dearer} can keep up, not even one that is always "
            "right. Return math.nan there, not 1."),
        "None": (
            lambda alpha, c, dearer: None if math.isnan(found := _needed(alpha, c, dearer)) else found,
            "with α = {alpha} at c = {c} no draft at c = {dearer} can keep up. Return the number `math.nan` "
            "there, so that a table of the results stays a table of numbers."),
    },
    raised={"ValueError": "where `brentq` finds no change of sign, α = 1 is too little: return math.nan."},
)
def needed(alpha, c, dearer):
    return _needed(alpha, c, dearer)


def _overlap(p, q):
    return sum(map(min, p, q))


def _kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


_DRAFTS = [
    ([0.6, 0.3, 0.1], [[0.45, 0.35, 0.2], [0.6, 0.399, 0.001], [0.8, 0.15, 0.05]]),
    ([0.3, 0.65, 0.05], [[0.6, 0.15, 0.25], [0.15, 0.75, 0.1], [0.3, 0.55, 0.15]]),
    ([0.15, 0.45, 0.3, 0.1], [[0.35, 0.05, 0.5, 0.1], [0.1, 0.05, 0.65, 0.2], [0.1, 0.15, 0.2, 0.55]]),
    ([0.4, 0.45, 0.05, 0.1], [[0.4, 0.05, 0.3, 0.25], [0.2, 0.2, 0.15, 0.45], [0.1, 0.05, 0.1, 0.75]]),
]


def _top(values):
    return max(range(len(values)), key=values.__getitem__)


@exercise(
    "11.3",
    inputs=_DRAFTS,
    right="of three drafts for p = {p}, number {got} is accepted most often",
    wrong={
        "KL": (
            lambda p, drafts: _top([-_kl(p, q) for q in drafts]),
            "you took the smallest KL(p‖q). It fears the tokens that q thinks nearly impossible, however "
            "rare they are. The accept test does not."),
        "two draws": (
            lambda p, drafts: _top([sum(a * b for a, b in zip(p, q, strict=True)) for q in drafts]),
            "Σ p·q is the chance that one draw from each is the same token. The accept test is kinder: it "
            "keeps a draft with min(1, p/q)."),
        "sure of the favourite": (
            lambda p, drafts: _top([q[_top(p)] for q in drafts]),
            "you took the draft that is surest of the target's favourite. Where q is above p, the surplus is "
            "rejected."),
        "farthest": (
            lambda p, drafts: _top([-_overlap(p, q) for q in drafts]),
            "that one is accepted least often. TV is a distance, and α = 1 − TV."),
        "value": (
            lambda p, drafts: max(_overlap(p, q) for q in drafts),
            "{got:.3f} is its chance. Return its number, counted from 0."),
    },
)
def faster(p, drafts):
    return _top([_overlap(p, q) for q in drafts])


_CUTS = [
    ([0.5, 0.3, 0.15, 0.05], [0.2, 0.4, 0.2, 0.2], [0, 1]),
    ([0.25, 0.25, 0.3, 0.2], [0.1, 0.5, 0.2, 0.2], [0, 2, 3]),
    ([0.7, 0.1, 0.1, 0.1], [0.3, 0.3, 0.2, 0.2], [0, 1, 2]),
]


def _part(law, keep):
    return sum(law[i] for i in keep)


@exercise(
    "11.4",
    inputs=_CUTS,
    right="α is {got:.3f} when only the tokens {keep} are proposed",
    wrong={
        "not renormalised": (
            lambda p, q, keep: sum(min(p[i], q[i]) for i in keep),
            "{got:.3f}: your q adds up to less than 1. The draft *must* propose something, so the kept "
            "tokens share all of it. That helps."),
        "whole vocabulary": (
            lambda p, q, keep: _overlap(p, q),
            "{got:.3f} is α before the cut. Outside `keep` the draft's chance is 0."),
        "ceiling": (
            lambda p, q, keep: _part(p, keep),
            "{got:.3f} is the ceiling: no draft that proposes only these can do better. This one has its "
            "own q."),
        "both cut": (
            lambda p, q, keep: sum(min(p[i] / _part(p, keep), q[i] / _part(q, keep)) for i in keep),
            "you cut p as well. The target keeps its law: what it wants outside `keep` is exactly what "
            "is lost."),
    },
)
def reduced_alpha(p, q, keep):
    return sum(min(p[i], q[i] / _part(q, keep)) for i in keep)


def _residual(p, q, normalised=True):
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    total = sum(left) if normalised else 1
    return [value / total for value in left]


_LAWS = [
    ([0.6, 0.3, 0.1], [0.3, 0.5, 0.2]),
    ([0.4, 0.3, 0.2, 0.1], [0.5, 0.1, 0.1, 0.3]),
    ([0.5, 0.4, 0.1], [0.3, 0.6, 0.1]),
]


@exercise(
    "11.5",
    inputs=_LAWS,
    right="one of two draws from q is accepted with chance {got:.3f}",
    wrong={
        "independent": (
            lambda p, q: 1 - (1 - _overlap(p, q)) ** 2,
            "{got:.3f} = 1 − (1 − α)²: that is two independent tries. But the second is judged against what "
            "the first left over, and there q is small."),
        "sum": (
            lambda p, q: min(1.0, 2 * _overlap(p, q)),
            "you added two chances of being accepted. The second draft counts only if the first is "
            "rejected."),
        "one": (
            _overlap,
            "{got:.3f} is the chance of one draft alone."),
        "weight forgotten": (
            lambda p, q: min(1.0, _overlap(p, q) + _overlap(_residual(p, q), q)),
            "the second draft is judged only after a rejection: its chance needs the weight 1 − α."),
        "not normalised": (
            lambda p, q: _overlap(p, q) + (1 - _overlap(p, q)) * _overlap(_residual(p, q, False), q),
            "your residual adds up to 1 − α, not to 1. After a rejection it is the law that is left: "
            "normalise."),
        "bound": (
            lambda p, q: _overlap(p, [1 - (1 - each) ** 2 for each in q]),
            "{got:.3f} is what no rule could exceed: x is among the two with chance 1 − (1 − q)². This rule "
            "judges one after the other."),
        "second alone": (
            lambda p, q: (1 - _overlap(p, q)) * _overlap(_residual(p, q), q),
            "{got:.3f} is the second draft's part. Add the first one's α."),
    },
)
def one_of_two(p, q):
    first = _overlap(p, q)
    return first + (1 - first) * _overlap(_residual(p, q), q)


def _chain(alpha, n):
    return sum(alpha**i for i in range(n))


@exercise(
    "11.6",
    inputs=[([0.5, 0.2], 0.6, 2), ([0.6], 0.6, 4), ([0.4, 0.2, 0.1], 0.5, 3), ([0.5, 0.3], 0.7, 1)],
    right="candidates {hits}, chains of {depth}: {got:.3f} tokens per round",
    wrong={
        "no bonus": (
            lambda hits, alpha, depth: sum(hits) * _chain(alpha, depth),
            "{got:.3f} are the accepted drafts. Every round emits one token of the target as well."),
        "first candidate": (
            lambda hits, alpha, depth: 1 + hits[0] * _chain(alpha, depth),
            "that is the chain behind the first candidate alone. The others have their turn, too."),
        "independent": (
            lambda hits, alpha, depth: 1 + (1 - math.prod(1 - hit for hit in hits)) * _chain(alpha, depth),
            "you took the candidates for independent. They exclude each other (there is one right token), so "
            "their chances add up."),
        "one too deep": (
            lambda hits, alpha, depth: 1 + sum(hits) * _chain(alpha, depth + 1),
            "your chains are one token too long: the candidate itself is the first of `depth`."),
        "all verified": (
            lambda hits, alpha, depth: 1 + len(hits) * depth,
            "{got} is how many tokens are *verified*. Only one path of the tree can be accepted."),
        "no chance behind": (
            lambda hits, alpha, depth: 1 + sum(hits) * depth,
            "behind an accepted candidate you count every draft as accepted. Each has the chance α."),
    },
)
def tree_tokens(hits, alpha, depth):
    return 1 + sum(hits) * _chain(alpha, depth)


_SPEEDS = [
    ({"A": {"chat": 1.1, "copy": 3.0}, "B": {"chat": 1.4, "copy": 1.4}}, {"chat": 0.7, "copy": 0.3}),
    ({"A": {"chat": 0.4, "copy": 4.0}, "B": {"chat": 0.9, "copy": 1.05}}, {"chat": 0.5, "copy": 0.5}),
    ({"A": {"chat": 1.3, "copy": 1.3}, "B": {"chat": 1.0, "copy": 2.5}}, {"chat": 0.2, "copy": 0.8}),
    ({"A": {"chat": 1.5, "copy": 1.0}, "B": {"chat": 1.2, "copy": 1.2}}, {"chat": 0.5, "copy": 0.5}),
    ({"A": {"chat": 1.3, "copy": 1.8}, "B": {"chat": 1.2, "copy": 4.0}}, {"chat": 0.8, "copy": 0.2}),
    ({"A": {"chat": 1.6, "copy": 1.6}, "B": {"chat": 1.0, "copy": 1.9}}, {"chat": 0.8, "copy": 0.2}),
    ({"A": {"chat": 1.1, "copy": 2.0}, "B": {"chat": 1.3, "copy": 1.6}}, {"chat": 0.3, "copy": 0.7}),
]


def _harmonic(of, shares):
    return 1 / sum(share / of[route] for route, share in shares.items())


def _arithmetic(of, shares):
    return sum(share * of[route] for route, share in shares.items())


def _pick(speedups, shares, mean, off=True):
    values = {name: mean(of, shares) for name, of in speedups.items()}
    best = max(values, key=values.get)
    return best if values[best] > 1 or not off else "off"


@exercise(
    "11.7",
    inputs=_SPEEDS,
    right="for the first mix: {got}",
    wrong={
        "arithmetic": (
            lambda speedups, shares: _pick(speedups, shares, _arithmetic),
            "you averaged speedups ({got}). Times add up, speedups do not: a token of a route takes 1 ÷ its "
            "speedup."),
        "unweighted": (
            lambda speedups, shares: _pick(
                speedups, shares, lambda of, shares: _harmonic(of, dict.fromkeys(shares, 1 / len(shares)))
            ),
            "your routes all weigh the same. `shares` says how the tokens are split."),
        "peak": (
            lambda speedups, shares: _pick(speedups, shares, lambda of, shares: max(of.values())),
            "you took the draft with the highest speedup of any one route. The others must live with it."),
        "never off": (
            lambda speedups, shares: _pick(speedups, shares, _harmonic, off=False),
            "here even the best draft makes the mix slower than plain decoding. Return 'off'."),
        "by route": (
            lambda speedups, shares: {
                route: max(speedups, key=lambda name: speedups[name][route]) for route in shares
            },
            "that is the best draft of each route, right where each has its own engine. One engine holds one "
            "draft."),
    },
)
def for_the_mix(speedups, shares):
    return _pick(speedups, shares, _harmonic)
