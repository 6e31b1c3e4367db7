"""Is a speculating engine right? Compare its text with that of the same target alone, before believing it.

    greedy     the same text, token for token; where it parts, the reference's own log-probabilities tell a
               near-tie (another width rounds otherwise) from an error
    sampled    the same law: texts whose continuations have few likely beginnings, counted on both sides and
               compared by a chi-square test whose level holds for any counts (permutations)

Counters cannot tell: an engine that corrupts what follows a rejected draft counts drafts as usual.

What it cannot see: prompts it did not send, rare outcomes, and a share of wrong texts below `detects`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import httpx
import numpy as np

from course_lib.engines.client import Answer, ask, ask_all, connect, root
from course_lib.engines.counters import between, snapshot

# Patterns that go on in few ways for several tokens, at temperature 1 and for small models, too. Several: the
# first token of an answer is the prefill's; only later ones are drafted and verified.
SHORT = (
    "one two three four five six seven eight nine ten\n" * 8 + "one two three",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday\n" * 8 + "Monday, Tuesday,",
    "The cat sat on the mat.\n" * 16 + "The cat",
    "".join(f"{n} + {n} = {n + n}\n" for n in range(1, 21)) + "21 +",
    "for i in range(10):\n    print(i)\n\n" * 8 + "for",
    "".join(f"{side}\n" for side in ("left", "right", "right", "left", "left", "right", "left", "right") * 3),
)
SHORT_TOKENS = 8
TIE = 0.1  # nats; what bf16 rounding moves the difference of two logits by, at most
RESAMPLES = 9999
_LEAST_TOKENS = 3  # the prefill's and two of a round: a fault may spare the first draft
_TOP = 5
_POWER = 0.5  # a test that misses the loss of half of all texts passes nothing

Progress = Callable[[str, int, int], None]


def check(base: str, spec: str, model: str, spec_model: str, prompts: Sequence[list[dict]],
          short: Sequence[str] = SHORT, new_tokens: int = 64, temperature: float = 1.0, samples: int = 100,
          level: float = 0.01, tie: float = TIE, concurrency: int = 4, seed: int = 0, timeout: float = 60.0,
          progress: Progress = lambda stage, done, total: None) -> dict:
    """Compare the engine at `spec`, which speculates, with the engine at `base`, which does not.

    prompts: chat messages for the greedy comparison. short: texts to be continued, for the law at
    `temperature`, each sent `samples` times to `spec` and twice as often to `base`; temperature 0 leaves this
    part out, and the result's "sampled". level: chance that a right engine fails the
    sampled test, all prompts together (Bonferroni). tie: the largest margin that counts as rounding, in nats.
    Returns {"verdict": "pass" | "fail" | "undecided", "reasons": sentences, "greedy", "sampled"}, JSON
    throughout. It is undecided where nothing could be compared, or nothing was drafted.
    Raises ValueError for arguments that make no test.
    """
    check_arguments(base, spec, new_tokens, temperature, samples, level, tie, concurrency, seed, timeout)
    with connect(timeout) as client:
        plain, start = snapshot(base, model), snapshot(spec, spec_model)
        parts = {"greedy": _greedy(client, (base, model), (spec, spec_model), prompts, new_tokens, tie,
                                   concurrency, progress)}
        middle = snapshot(spec, spec_model)
        parts["greedy"]["counters"] = between(start, middle)
        if temperature:
            parts["sampled"] = _sampled(client, (base, model), (spec, spec_model), short, temperature,
                                        samples, level, concurrency, seed, progress)
            parts["sampled"]["counters"] = between(middle, snapshot(spec, spec_model))
    base_rounds = between(plain, snapshot(base, model))["rounds"]
    for part in parts.values():
        rounds, but = part["counters"]["rounds"], None
        if rounds is None:
            part["reason"] += " Whether it drafted is not known: its counters cannot be read."
        elif rounds == 0:
            but = f"{spec} drafted nothing meanwhile: this says nothing about speculation"
        if base_rounds:
            but = f"{base} drafted too: it is no reference"
        if but:
            part["verdict"] = "undecided" if part["verdict"] == "pass" else part["verdict"]
            part["reason"] += f" But {but}."
    verdicts = {part["verdict"] for part in parts.values()}
    verdict = next(each for each in ("fail", "undecided", "pass") if each in verdicts)
    reasons = [f"{name}: {part['verdict']}. {part['reason']}" for name, part in parts.items()]
    if not temperature:
        reasons.append("sampled: not tested at temperature 0. Sampled text may be wrong all the same.")
    return {"verdict": verdict, "reasons": reasons, "base": base, "spec": spec, "model": spec_model, **parts}


def check_arguments(base: str, spec: str, new_tokens: int, temperature: float, samples: int, level: float,
                    tie: float, concurrency: int, seed: int, timeout: float) -> None:
    """Raise ValueError for arguments that make no test: now, before an engine is asked anything."""
    if httpx.URL(root(base)) == httpx.URL(root(spec)):
        raise ValueError(f"{base} is given as the engine with speculation and as the one without: give the "
                         "addresses of two.")
    if not 0 < level < 1:
        raise ValueError(f"level is {level:g}: it must be between 0 and 1.")
    for name, value, least in (("new tokens", new_tokens, 1), ("samples", samples, 20),
                               ("concurrency", concurrency, 1), ("temperature", temperature, 0),
                               ("tie", tie, 0), ("seed", seed, 0)):
        if not least <= value < math.inf:
            raise ValueError(f"{name} must be {least} or more, not {value:g}.")
    if not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be above 0 seconds, not {timeout:g}.")


def counted(found: dict) -> list[str]:
    """What the engine counted during a `check`, in sentences."""
    said = []
    for name in ("greedy", "sampled"):
        counters = found.get(name, {}).get("counters")
        if not counters:
            continue
        if counters["rounds"]:
            rates = ", ".join(f"{rate:.3f}" for rate in counters["per_position"] or ())
            said.append(f"counters, {name}: {counters['rounds']:g} rounds, tokens per round "
                        f"{counters['tokens_per_round']:.3f}" + (f", per position {rates}" if rates else ""))
        said += [f"counters, {name}: {warning}" for warning in counters["warnings"]]
    return said


def first_difference(reference: Answer, other: Answer) -> dict | None:
    """Where two greedy answers part, and by how much the reference preferred its own token; None if nowhere.

    Returns at (tokens in common), tokens (reference's and the other's), margin: log-probability of the
    reference's token less that of the other's, by the reference; inf where the other's is not among its
    likeliest, None where it gave no log-probabilities or had ended.
    """
    ours, theirs = ([piece.token for piece in answer.pieces] for answer in (reference, other))
    if not ours or not theirs:
        if reference.text == other.text:
            return None
        at = next((i for i, (a, b) in enumerate(zip(reference.text, other.text, strict=False)) if a != b),
                  min(len(reference.text), len(other.text)))
        return {"at": None, "tokens": [reference.text[at:at + 20], other.text[at:at + 20]], "margin": None}
    if ours == theirs and reference.text == other.text:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
              min(len(ours), len(theirs)))
    tokens = [each[at] if at < len(each) else None for each in (ours, theirs)]
    margin = None
    if None not in tokens:
        piece = reference.pieces[at]
        margin = piece.logprob - piece.top.get(tokens[1], -math.inf)
    return {"at": at, "tokens": tokens, "margin": margin}


def same_law(pilot: Sequence[tuple], base: Sequence[tuple], spec: Sequence[tuple],
             rng: np.random.Generator) -> dict:
    """Test that two samples of answers (tuples of tokens) have one law; the pilot says what to count.

    Counted are the likely beginnings of `pilot`, a sample of the base's own, as long as they are likely, and
    all others together. So the categories do not depend on what is tested, and the level holds.
    Returns usable (are there likely beginnings of several tokens?), length (tokens), outcomes with both
    counts, the last of them all others, and p (chi-square of that table, by permutation of who said what).
    """
    length, likely = _likely(pilot)
    if not likely:
        return {"usable": False, "length": 0, "outcomes": [], "p": None}
    rows = [[Counter(each[:length] for each in sample)[outcome] for outcome in likely]
            for sample in (base, spec)]
    table = np.array([[*row, len(sample) - sum(row)] for row, sample in
                      zip(rows, (base, spec), strict=True)])
    names = [" ".join(repr(token) for token in outcome) for outcome in likely] + ["any other"]
    return {"usable": True, "length": length,
            "outcomes": [{"outcome": name, "base": int(a), "spec": int(b)}
                         for name, a, b in zip(names, *table, strict=True)],
            "p": permutation_p(table, rng)}


def permutation_p(table: np.ndarray, rng: np.random.Generator) -> float:
    """p of the chi-square statistic of a 2 x C table of counts among tables with the same margins."""
    from scipy.stats import random_table

    table = table[:, table.sum(axis=0) > 0]
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    expected = rows[:, None] * columns / table.sum()
    drawn = random_table(rows, columns).rvs(RESAMPLES, random_state=rng)
    chance = ((drawn - expected) ** 2 / expected).sum(axis=(1, 2))
    found = ((table - expected) ** 2 / expected).sum()
    return float((1 + (chance >= found - 1e-9).sum()) / (1 + RESAMPLES))  # the table itself is one of them


def _greedy(client: httpx.Client, base: tuple, spec: tuple, prompts: Sequence[list[dict]], new_tokens: int,
            tie: float, concurrency: int, progress: Progress) -> dict:
    answers = []
    for engine in (base, spec):
        answers.append(_ask(client, engine, prompts, new_tokens, 0.0, concurrency))
        progress("greedy texts", len(answers), 2)
    counts, differences, compared, failures = Counter(), [], 0, _failures(*answers)
    for at, (ours, theirs) in enumerate(zip(*answers, strict=True)):
        if ours.error or theirs.error:
            continue
        found = first_difference(ours, theirs)
        kind = "same" if found is None else \
            "near-tie" if found["margin"] is not None and found["margin"] <= tie else "different"
        counts[kind] += 1
        compared += (ours.tokens or 0) if found is None else found["at"] or 0
        if found:
            margin = None if found["margin"] in (None, math.inf) else found["margin"]
            differences.append({"prompt": at, "kind": kind, **found, "margin": margin})
    total = sum(counts.values())
    reason = (f"{counts['same']} of {total} texts are the same, {counts['near-tie']} part at a near-tie "
              f"(margin at most {tie:g} nats), {counts['different']} differ; {compared} tokens compared.")
    if any(each["margin"] is None and each["at"] is None for each in differences):
        reason += " Without log-probabilities a near-tie cannot be told from an error."
    verdict = "fail" if counts["different"] else "pass" if compared else "undecided"
    return {"verdict": verdict, "reason": reason + _said(failures), "same": counts["same"],
            "near_ties": counts["near-tie"], "different": counts["different"], "tokens": compared,
            "tie": tie, "differences": differences, "failures": failures}


def _sampled(client: httpx.Client, base: tuple, spec: tuple, short: Sequence[str], temperature: float,
             samples: int, level: float, concurrency: int, seed: int, progress: Progress) -> dict:
    rng, found, failures = np.random.default_rng(seed), [], Counter()
    for text in short:
        sets = []
        for engine in (base, base, spec):
            said = _ask(client, engine, [text] * samples, SHORT_TOKENS, temperature, concurrency)
            failures.update(_failures(said))
            sets.append([_outcome(each) for each in said if not each.error])
        # Half of the samples are enough to go on with; what is missing is reported.
        usable = min(map(len, sets)) >= samples / 2
        found.append({"prompt": text, **same_law(*(sets if usable else ([], [], [])), rng)})
        progress("sampled prompts", len(found), len(short))
    tests = [each for each in found if each["usable"]]
    failed = [each for each in tests if each["p"] <= level / len(short)]
    share = detects(tests, level / len(short))
    result = {"verdict": "fail" if failed else "pass" if share <= _POWER else "undecided",
              "temperature": temperature, "samples": samples, "level": level, "detects": share,
              "level_each": level / len(short), "prompts": found, "failures": dict(failures)}
    if not tests:
        reason = ("No prompt had likely beginnings of several tokens: lower the temperature, or take more "
                  "samples.")
    else:
        lowest = min(tests, key=lambda each: each["p"])
        reason = (f"At T={temperature:g}, {len(failed)} of {len(tests)} usable prompts have another law; the "
                  f"smallest p is {lowest['p']:.4f} against {level / len(short):.4f} ({level:g} over "
                  f"{len(short)} prompts). Were {share:.0%} of all texts turned into others, this would "
                  f"show in {samples} a side nine times in ten.")
        reason += " That is too little: take more samples." if share > _POWER and not failed else ""
    return result | {"reason": reason + _said(dict(failures))}


def _ask(client: httpx.Client, engine: tuple, prompts: Sequence[list[dict] | str], tokens: int,
         temperature: float, concurrency: int) -> list[Answer]:
    address, model = engine
    return ask_all(lambda prompt: ask(client, address, model, prompt, tokens, temperature, _TOP), prompts,
                   concurrency)


def _outcome(answer: Answer) -> tuple[str, ...]:
    """The tokens of an answer, or its words where the engine gave none."""
    return tuple(piece.token for piece in answer.pieces) or tuple(re.findall(r"\s*\S+", answer.text))


def _likely(pilot: Sequence[tuple]) -> tuple[int, list[tuple]]:
    """The longest beginnings that are likely (a twentieth of the sample each, three quarters together)."""
    for length in range(max(map(len, pilot), default=0), _LEAST_TOKENS - 1, -1):
        counts = Counter(each[:length] for each in pilot)
        likely = [outcome for outcome, n in counts.most_common() if n >= max(len(pilot) / 20, 5)]
        if sum(counts[outcome] for outcome in likely) >= len(pilot) * 0.75:
            return length, likely
    return 0, []


def detects(tests: Sequence[dict], level: float) -> float:
    """The share of texts which, turned into others on every prompt, fails a test nine times in ten.

    tests: results of `same_law`; 1 where no share does. level: of each test. Counts are taken as large.
    Source: the noncentral distribution of the chi-square statistic.
    """
    from scipy.stats import chi2, ncx2

    def missed(test: dict, share: float) -> float:
        base, spec = (np.array([each[side] for each in test["outcomes"]], float) for side in ("base", "spec"))
        p = (base + 0.5) / (base + 0.5).sum()
        q = (1 - share) * p
        q[-1] += share
        size, degrees = 2 / (1 / base.sum() + 1 / spec.sum()), len(p) - 1
        return float(ncx2.cdf(chi2.ppf(1 - level, degrees), degrees, size * ((p - q) ** 2 / (p + q)).sum()))

    low, high = 0.0, 1.0
    for _ in range(20):
        share = (low + high) / 2
        low, high = (low, share) if math.prod(missed(test, share) for test in tests) < 0.1 else (share, high)
    return high


def _failures(*answers: Sequence[Answer]) -> dict[str, int]:
    return dict(Counter(each.error for sample in answers for each in sample if each.error))


def _said(failures: dict[str, int]) -> str:
    listed = ", ".join(f"{n} {kind}" for kind, n in failures.items())
    return f" Unanswered: {listed}." if listed else ""
