"""Checks of notebook 08: what right looks like, and every wrong turn we know by name."""

import numpy as np
import pandas as pd

from course_lib.course.checks import exercise


def _times(seed, stall):
    """Rounds of several k in random order, seven of each; one of them met a stall."""
    random = np.random.default_rng(seed)
    lines = []
    for k in random.permutation([0, 1, 2, 4, 8] * 7).tolist():
        other = random.normal(1.5, 0.1) * (1 + (k > 0))
        lines.append((k, k * random.normal(6, 0.4), random.normal(30 + 0.8 * k, 1), other))
    times = pd.DataFrame(lines, columns=["k", "draft", "verify", "other"])
    times.loc[times.index[times.k == 4][2], "other"] += stall
    times.loc[times.index[times.k == 0][1], "other"] += stall / 2
    times["seconds"] = times.draft + times.verify + times.other
    times[["draft", "verify", "other", "seconds"]] /= 1000
    return times


def _rounds():
    return [(_times(1, 300.0), 4), (_times(2, 80.0), 1), (_times(3, 200.0), 8), (_times(3, 200.0), 0)]


def _median(times, k, column="seconds"):
    return times[times.k == k][column].median()


_PARTS_ADDED = ("you added the medians of the three parts. A median of sums is not the sum of medians, and "
                "users wait for the round: take the median of `seconds`.")


def _parts(times, k):
    return sum(_median(times, k, part) for part in ("draft", "verify", "other"))


def _mean(times, k):
    return times[times.k == k].seconds.mean()


@exercise(
    "8.1",
    inputs=_rounds,
    right="a round with k = {k} costs {got:.2f} plain steps here",
    wrong={
        "mean": (
            lambda times, k: _mean(times, k) / _mean(times, 0),
            "{got:.2f} is a quotient of means. One round met a stall, and it counts for all the others: take "
            "medians.",
        ),
        "mean of the round": (
            lambda times, k: _mean(times, k) / _median(times, 0),
            "the round is a mean, and one of them met a stall. Take the median on both sides.",
        ),
        "mean of the plain step": (
            lambda times, k: _median(times, k) / _mean(times, 0),
            "the plain step is a mean, and one of them met a stall. Take the median on both sides.",
        ),
        "verify alone": (
            lambda times, k: _median(times, k, "verify") / _median(times, 0, "verify"),
            "{got:.2f} is the price of the verify. The drafts and the rest are part of the round: `seconds`.",
        ),
        "plain step without its rest": (
            lambda times, k: _median(times, k) / _median(times, 0, "verify"),
            "you divided by the forward of a plain step. A plain step, too, draws a token and keeps books: "
            "`seconds`.",
        ),
        "its own verify": (
            lambda times, k: _median(times, k) / _median(times, k, "verify"),
            "you divided by this round's own verify. A plain step is a round with k = 0.",
        ),
        "milliseconds": (
            lambda times, k: 1000 * _median(times, k),
            "those are milliseconds. Divide by the median round with k = 0.",
        ),
        "seconds": (
            lambda times, k: _median(times, k),
            "those are seconds. Divide by the median round with k = 0.",
        ),
        "upside down": (
            lambda times, k: _median(times, 0) / _median(times, k),
            "{got:.2f} is upside down: a round with drafts takes longer than a plain step.",
        ),
        "k = 1 for plain": (
            lambda times, k: _median(times, k) / _median(times, 1),
            "you divided by rounds with k = 1. Those draft. Plain decoding has k = 0.",
        ),
        "parts added": (
            lambda times, k: _parts(times, k) / _parts(times, 0),
            _PARTS_ADDED,
        ),
        "parts added, plain step whole": (
            lambda times, k: _parts(times, k) / _median(times, 0),
            _PARTS_ADDED,
        ),
        "a token each": (
            lambda times, k: _median(times, k) / _median(times, 0) / (k + 1),
            "you divided by k + 1 as well. How many tokens a round emits is its yield; asked was its price.",
        ),
        "all rounds": (
            lambda times, k: _median(times, k) / times.seconds.median(),
            "you divided by the median of all rounds. A plain step is a round with k = 0.",
        ),
    },
    raised={"KeyError": "`groupby` makes k the index: median[k] and median[0]."},
)
def price(times, k):
    median = times.groupby("k").seconds.median()
    return median[k] / median[0]


_VERIFY = {1: 0.030, 2: 0.031, 3: 0.031, 5: 0.034, 9: 0.045}
_ROUNDS = [(0.068, 0.006, _VERIFY, 4), (0.105, 0.006, _VERIFY, 8), (0.040, 0.005, _VERIFY, 1),
           (0.036, 0.005, _VERIFY, 1), (0.0315, 0.006, _VERIFY, 0)]


def _at(verify, width):
    return float(np.interp(width, list(verify), list(verify.values())))


@exercise(
    "8.2",
    inputs=_ROUNDS,
    right="{got:.0%} of a round with k = {k} is in no forward that was timed alone",
    wrong={
        "width k": (
            lambda inside, draft, verify, k: 1 - (k * draft + _at(verify, max(k, 1))) / inside,
            "you took a verify of width {k}. It reads the {k} drafts and the token before them: width k + 1.",
        ),
        "width 1": (
            lambda inside, draft, verify, k: 1 - (k * draft + verify[1]) / inside,
            "you took a plain step for the verify. It has width k + 1 = {k} + 1.",
        ),
        "a draft too many": (
            lambda inside, draft, verify, k: 1 - ((k + 1) * draft + verify[k + 1]) / inside,
            "the draft runs {k} times, not {k} + 1. Only the target reads k + 1 tokens.",
        ),
        "one draft": (
            lambda inside, draft, verify, k: 1 - (draft + verify[k + 1]) / inside,
            "you counted one draft step. A round with k = {k} has {k}.",
        ),
        "no draft": (
            lambda inside, draft, verify, k: 1 - verify[k + 1] / inside,
            "the draft steps are forwards, too: k of them.",
        ),
        "share of the forwards": (
            lambda inside, draft, verify, k: inside / (k * draft + verify[k + 1]) - 1,
            "that is a share of the forwards. Asked was a share of the round: divide by `inside`.",
        ),
        "what is seen": (
            lambda inside, draft, verify, k: (k * draft + verify[k + 1]) / inside,
            "{got:.0%} is the share that the forwards explain. Asked was what is left.",
        ),
        "seconds": (
            lambda inside, draft, verify, k: inside - k * draft - verify[k + 1],
            "those are seconds. A share: divide by `inside`.",
        ),
    },
    raised={"KeyError": "`verify` goes by width, and the verify of k drafts has width k + 1."},
)
def unseen(inside, draft, verify, k):
    return 1 - (k * draft + verify[k + 1]) / inside


_COST = [30.0, 37.0, 44.0, 51.0, 58.0, 66.0, 74.0, 83.0, 92.0]
_COINS = [True, True, False, True, True, True, True, False, False, True, True, True]
_TEXTS = [(_COINS, 4, _COST), ([True] * 7, 3, _COST), ([True] * 8, 3, _COST), ([False] * 5, 2, _COST),
          ([True, True, True], 8, _COST), (_COINS, 0, _COST), ([True], 5, _COST), ([], 4, _COST)]


def _walk(coins, k, cost, reserve=1, extra=1, charge=None, keep_all=False):
    """Rounds along a text. reserve: tokens at the end that are never drafted; charge: what a round costs."""
    t, seconds = 0, 0.0
    while t < len(coins):
        drafts = max(min(k, len(coins) - reserve - t), 0)
        kept = drafts if keep_all else 0
        while kept < drafts and coins[t + kept]:
            kept += 1
        seconds += cost[drafts] if charge is None else charge(k, drafts, kept)
        t += max(kept + extra, 1)
    return seconds


@exercise(
    "8.3",
    inputs=_TEXTS,
    right="twelve tokens, k = {k}: {got:.0f} ms",
    wrong={
        "full price to the end": (
            lambda coins, k, cost: _walk(coins, k, cost, charge=lambda k, drafts, kept: cost[k]),
            "every round costs cost[{k}] in your count ({got:.0f}). Near the end there is room for fewer "
            "drafts, and that round costs less.",
        ),
        "last token drafted": (
            lambda coins, k, cost: _walk(coins, k, cost, reserve=0),
            "your last round drafts the very last token, too. That one always comes from the target: at most "
            "len(coins) − 1 − t drafts.",
        ),
        "no extra token": (
            lambda coins, k, cost: _walk(coins, k, cost, extra=0),
            "your next round starts right after the kept drafts. Each round emits one token more.",
        ),
        "all kept": (
            lambda coins, k, cost: _walk(coins, k, cost, keep_all=True),
            "you kept every draft. A round keeps them up to the first coin that shows tails.",
        ),
        "kept drafts alone are paid": (
            lambda coins, k, cost: _walk(coins, k, cost, charge=lambda k, drafts, kept: cost[kept]),
            "you charged a round for the drafts it *kept*. Rejected drafts have cost their time as well.",
        ),
        "rounds": (
            lambda coins, k, cost: _walk(coins, k, cost, charge=lambda *_: 1.0),
            "{got:.0f} is the number of rounds. Asked was their time: add up cost[drafts].",
        ),
        "plain": (
            lambda coins, k, cost: len(coins) * cost[0],
            "that is plain decoding, a step for each token.",
        ),
        "mean length": (
            lambda coins, k, cost: sum(cost[k] for _ in range(-(-len(coins) // (k + 1)))),
            "you let every round emit k + 1 tokens. A rejection ends it earlier.",
        ),
    },
    raised={"IndexError": "look no further than the last token: a round at t has room for len(coins) − 1 − t "
                          "drafts."},
)
def decoding_time(coins, k, cost):
    return _walk(coins, k, cost)


def _plans(ks, prompts, settings=None, turn=lambda i: i):
    settings = [0, *ks] if settings is None else settings
    return [settings[turn(i) % len(settings):] + settings[:turn(i) % len(settings)] for i in range(prompts)]


def _past_the_end(ks, prompts):
    settings = [0, *ks]
    return [settings[i:] + settings[:i] for i in range(prompts)]


def _shuffled(plan):
    ks = [1, 2, 4, 8]
    got = [list(order) for order in plan(list(ks), 7)]
    if len(got) == 7 and all(sorted(order) == [0, *ks] for order in got):
        return ("every prompt runs each setting once, as it should. But the order is to move on by one from "
                "prompt to prompt, starting with 0, then `ks`. Not shuffled: each setting is to come first "
                "equally often.")
    return None


@exercise(
    "8.4",
    inputs=[([1, 2, 4], 6), ([1, 2, 3, 4, 5, 8], 3), ([4], 5), ([8, 2], 1)],
    right="the first three prompts: {got[0]}, {got[1]}, {got[2]}",
    wrong={
        "no baseline": (
            lambda ks, prompts: _plans(ks, prompts, list(ks)),
            "plain decoding is missing. Measured at another time, it would have met another machine: put 0 "
            "among the settings.",
        ),
        "never turned": (
            lambda ks, prompts: _plans(ks, prompts, turn=lambda i: 0),
            "every prompt has the same order. Then plain decoding always runs first, in the coolest moment: "
            "move on by one from prompt to prompt.",
        ),
        "baseline always first": (
            lambda ks, prompts: [[0, *order] for order in _plans(ks, prompts, list(ks))],
            "the k take turns, but plain decoding always comes first. It is one of the settings: let it "
            "move, too.",
        ),
        "first prompt turned": (
            lambda ks, prompts: _plans(ks, prompts, [*ks, 0]),
            "your first prompt is turned already. It should run 0 first, then `ks` in their order.",
        ),
        "turned the other way": (
            lambda ks, prompts: _plans(ks, prompts, turn=lambda i: -i),
            "you moved the last setting to the front. What came first goes to the end.",
        ),
        "one k after the other": (
            lambda ks, prompts: [[k] * prompts for k in [0, *ks]],
            "that is one setting after the other, all prompts each. Give every *prompt* an entry that holds "
            "all settings once.",
        ),
        "every other": (
            lambda ks, prompts: [[each for k in ks for each in (0, k)] for _ in range(prompts)],
            "that runs plain decoding before every k. Fair, but it takes twice the time; here each setting "
            "runs once a prompt, and the order turns.",
        ),
        "flat": (
            lambda ks, prompts: [(i, k) for i, order in enumerate(_plans(ks, prompts)) for k in order],
            "the order is right, but as one long list. Return a list of lists, one for each prompt.",
        ),
        "past the end": (
            _past_the_end,
            "with more prompts than settings a slice from i begins behind the last one, and the order stops "
            "turning: turn by `i % len(settings)`.",
        ),
        "one list for all": (
            lambda ks, prompts: [_plans(ks, prompts + 1)[-1]] * prompts,
            "all your entries are one and the same list, which you went on turning. Append a copy: "
            "`list(settings)`.",
        ),
        "reversed": (
            lambda ks, prompts: [[0, *ks] if i % 2 == 0 else [0, *ks][::-1] for i in range(prompts)],
            "you turned every other prompt's order round. That cancels a steady drift; asked was to move on "
            "by one.",
        ),
    },
    diagnose={"shuffled": (_shuffled, lambda ks, prompts: [
        np.random.default_rng(i).permutation([0, *ks]).tolist() for i in range(prompts)])},
)
def plan(ks, prompts):
    return _plans(ks, prompts)


_REQUESTS = [(0.4, 0.08, 96, 0.03, 1.5), (2.0, 0.4, 32, 0.03, 1.8), (0.05, 0.01, 400, 0.02, 0.9),
             (0.3, 0.0, 50, 0.03, 1.0)]


def _request(plain, speculative):
    return plain / speculative


@exercise(
    "8.5",
    inputs=_REQUESTS,
    right="decoding {speedup} times, the whole request {got:.2f} times as fast",
    wrong={
        "decoding alone": (
            lambda prefill, draft_prefill, tokens, step, speedup: speedup,
            "{got} is the speedup of the decoding. The prefill takes its time as before.",
        ),
        "prefill sped up": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + tokens * step)
            / ((prefill + draft_prefill + tokens * step) / speedup),
            "you divided the prefill by the speedup as well. Only the steps become faster.",
        ),
        "target's prefill sped up": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + tokens * step)
            / (draft_prefill + (prefill + tokens * step) / speedup),
            "you divided the target's prefill by the speedup as well. Only the steps become faster.",
        ),
        "prefills alone sped up": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + tokens * step)
            / (prefill / speedup + draft_prefill + tokens * step),
            "you divided the prefill by the speedup. It is the steps that become faster, and only they.",
        ),
        "draft's prefill forgotten": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + tokens * step)
            / (prefill + tokens * step / speedup),
            "the draft has to read the prompt, too: its prefill is added to the speculative side.",
        ),
        "both prefills on both sides": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + draft_prefill + tokens * step)
            / (prefill + draft_prefill + tokens * step / speedup),
            "plain decoding has no draft, so it does not wait for the draft's prefill.",
        ),
        "draft's instead": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + tokens * step)
            / (draft_prefill + tokens * step / speedup),
            "you replaced the target's prefill by the draft's. The target still has to read the prompt.",
        ),
        "steps multiplied": (
            lambda prefill, draft_prefill, tokens, step, speedup: (prefill + tokens * step)
            / (prefill + draft_prefill + tokens * step * speedup),
            "{speedup} times as fast means tokens · step *divided* by {speedup}.",
        ),
        "upside down": (
            lambda prefill, draft_prefill, tokens, step, speedup: (
                prefill + draft_prefill + tokens * step / speedup
            )
            / (prefill + tokens * step),
            "{got:.2f} is upside down: plain time ÷ speculative time.",
        ),
        "seconds": (
            lambda prefill, draft_prefill, tokens, step, speedup: prefill
            + draft_prefill
            + tokens * step / speedup,
            "that is the time of the speculative request. Divide the plain one's by it.",
        ),
    },
)
def whole_request(prefill, draft_prefill, tokens, step, speedup):
    return _request(prefill + tokens * step, prefill + draft_prefill + tokens * step / speedup)


_PLATEAU = {1: (1.20, 1.15, 1.25), 2: (1.33, 1.25, 1.41), 3: (1.395, 1.29, 1.50), 4: (1.40, 1.28, 1.52),
            5: (1.40, 1.26, 1.54), 8: (1.31, 1.15, 1.47)}
_UNSURE = {1: (1.04, 1.01, 1.07), 2: (1.08, 0.99, 1.17), 4: (1.05, 0.93, 1.17)}  # the best k is not sure
_HOPE = {1: (0.99, 0.91, 1.07), 2: (0.97, 0.85, 1.09), 4: (0.9, 0.75, 1.05)}
_LOSS = {1: (0.95, 0.92, 0.98), 2: (0.9, 0.85, 0.95), 4: (0.8, 0.7, 0.9)}
_MIXED = {1: (1.11, 0.98, 1.24), 2: (1.115, 1.02, 1.21), 4: (1.12, 1.03, 1.21)}  # k = 1 is near, but not sure
_TURNED = {8: (1.52, 1.4, 1.6), 4: (1.5, 1.4, 1.6), 2: (1.48, 1.38, 1.58), 1: (1.2, 1.1, 1.3)}


def _settle(speeds, tolerance, gate=1, near=True, own=True, choose=min):
    best = max(speeds, key=lambda k: speeds[k][0])
    if gate is not None and speeds[best][gate] <= 1:
        return 0
    mean = speeds[best][0]
    good = [k for k, (each, low, _) in speeds.items()
            if (each >= (1 - tolerance) * mean or not near) and (low > 1 or not own)]
    return choose(good) if good else 0


@exercise(
    "8.6",
    inputs=[(_PLATEAU, 0.01), (_UNSURE, 0.04), (_LOSS, 0.02), (_MIXED, 0.02), (_TURNED, 0.03),
            (_PLATEAU, 0.0), (_HOPE, 0.01)],
    right="k = {got}: within {tolerance:.0%} of the best, and above 1 for sure",
    wrong={
        "best mean": (
            lambda speeds, tolerance: _settle(speeds, 0.0),
            "k = {got} has the best mean. A smaller one is within {tolerance:.0%} of it: take that one.",
        ),
        "largest": (
            lambda speeds, tolerance: _settle(speeds, tolerance, choose=max),
            "you took the *largest* k on the plateau. Equal speed with fewer drafts is the better deal.",
        ),
        "never off": (
            lambda speeds, tolerance: _settle(speeds, tolerance, gate=None, own=False),
            "one of the inputs has no k that is above 1 for sure, and you still speculate there. Off is 0.",
        ),
        "the mean decides": (
            lambda speeds, tolerance: _settle(speeds, tolerance, gate=0, own=False),
            "you asked whether the *mean* is above 1. With a low of 0.99 it may be a loss: ask the low.",
        ),
        "the high end decides": (
            lambda speeds, tolerance: _settle(speeds, tolerance, gate=2, own=False),
            "you asked whether the *high* end is above 1. That is hope. Ask the low end.",
        ),
        "best low ignored": (
            lambda speeds, tolerance: _settle(speeds, tolerance, gate=None),
            "the k with the best mean has a low of 1 or less in one input. Then the answer is 0, before any "
            "other k is looked at.",
        ),
        "own low ignored": (
            lambda speeds, tolerance: _settle(speeds, tolerance, own=False),
            "k = {got} is near the best one, but its own low is not above 1. Both conditions must hold.",
        ),
        "first above 1": (
            lambda speeds, tolerance: _settle(speeds, tolerance, near=False),
            "k = {got} is the smallest that pays at all. It must also be within {tolerance:.0%} of the best.",
        ),
        "points for per cent": (
            lambda speeds, tolerance: _settle_by_difference(speeds, tolerance),
            "you subtracted {tolerance} from the best mean. A share of it was asked: (1 − tolerance) × best.",
        ),
        "inside the best one's interval": (
            lambda speeds, tolerance: _settle_by_interval(speeds, own=True),
            "k = {got} lies inside the best one's interval. Asked was something narrower: a mean of at least "
            "(1 − tolerance) of the best mean.",
        ),
        "inside the best one's interval, own low ignored": (
            lambda speeds, tolerance: _settle_by_interval(speeds, own=False),
            "k = {got} lies inside the best one's interval. Asked was a mean of at least (1 − tolerance) of "
            "the best mean, and a low of its own above 1.",
        ),
        "safest": (
            lambda speeds, tolerance: _safest(speeds),
            "you took the k with the best *low*. A fair rule, but another one: start from the best mean.",
        ),
        "speed": (
            lambda speeds, tolerance: _speed(speeds, tolerance),
            "return the k, not its speedup.",
        ),
    },
    raised={"ValueError": "is there an input in which nothing is above 1? Return 0 there, before `min`."},
)
def settle(speeds, tolerance):
    return _settle(speeds, tolerance)


def _settle_by_difference(speeds, tolerance):
    best = max(speeds, key=lambda k: speeds[k][0])
    if speeds[best][1] <= 1:
        return 0
    return min(k for k, (mean, low, _) in speeds.items() if mean >= speeds[best][0] - tolerance and low > 1)


def _settle_by_interval(speeds, own):
    best = max(speeds, key=lambda k: speeds[k][0])
    if speeds[best][1] <= 1:
        return 0
    return min(k for k, (mean, low, _) in speeds.items() if mean >= speeds[best][1] and (low > 1 or not own))


def _safest(speeds):
    best = max(speeds, key=lambda k: speeds[k][1])
    return best if speeds[best][1] > 1 else 0


def _speed(speeds, tolerance):
    k = _settle(speeds, tolerance)
    return speeds[k][0] if k else 1.0
