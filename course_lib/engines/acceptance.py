"""One engine's acceptance, in every definition at once, with what is wrong with it.

    tokens per round   (accepted + rounds) / rounds; engines say "acceptance length"
    prefix rate        accepted / drafted; engines say "acceptance rate"
    per position       rounds that accepted position i / all rounds: unconditional
    conditional        rounds that accepted position i / rounds that accepted position i - 1
    alpha              the one chance that, the same for every draft, would give this prefix rate
    tokens per step    tokens of the whole service / its target steps, those without a draft included

An engine reports two or three of these, under names that fit several. `reported` says which.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from course_lib.engines.reading import LONGEST_DRAFT, Reading, count, difference, draft_length, pool
from course_lib.theory import Counts, conditional_from_unconditional, counts_from_v0, expected_accepted

_SURPRISE = 1e-4  # how unlikely a zero must be, were acceptance as before it, to be called a cliff
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Acceptance:
    """Every definition of acceptance that follows from what an engine counted; None where it does not.

    engine, model: who, and for which model. k: drafts of a full round. rounds, drafted, accepted: counts.
    emitted: tokens the rounds put into the text, as the engine counts them. per_position: unconditional
    rates of positions 1 ... k. conditional: per position, None where no round arrived. tokens_per_round,
    prefix_rate, alpha, tokens_per_step: see the module. reported: definition -> the engine's own name.
    notes: what the numbers mean. warnings: why one of them should not be believed as it stands.
    """

    engine: str
    source: str
    model: str | None
    k: int | None
    rounds: float | None
    drafted: float | None
    accepted: float | None
    emitted: float | None
    per_position: tuple[float, ...] | None
    conditional: tuple[float | None, ...] | None
    tokens_per_round: float | None
    prefix_rate: float | None
    alpha: float | None
    tokens_per_step: float | None
    reported: dict[str, str]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    reading: Reading = field(repr=False)

    def since(self, earlier: "Acceptance") -> "Acceptance":
        """What happened between an earlier scrape and this one; see `reading.difference`."""
        return interpret(difference(self.reading, earlier.reading))

    def as_dict(self) -> dict:
        """For JSON: the fields above, lists for tuples, null for what is unknown."""
        found = {name: value for name, value in asdict(replace(self, reading=None)).items()
                 if name != "reading"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def pooled(parts: Sequence[Acceptance]) -> Acceptance:
    """Several as one, by counts; see `reading.pool`. Raises ValueError for an empty list too."""
    if not parts:
        raise ValueError("there is nothing to pool.")
    return interpret(pool([part.reading for part in parts]))


def interpret(reading: Reading) -> Acceptance:
    """Every definition from what was read.

    Raises ValueError for counts that cannot be (more accepted than drafted, rates that rise with the
    position, more drafts than rounds of k hold); what can be but misleads becomes a warning.
    """
    original, warnings = reading, list(reading.warnings)
    if reading.judged is not None and reading.accepted is None:
        reading = _from_v0(reading, warnings)
    rounds, drafted, accepted = reading.rounds, reading.drafted, reading.accepted
    k = draft_length(reading.k)
    if rounds is None and drafted and k:
        rounds = float(math.ceil(drafted / k))
        warnings.append(f"rounds are not in this text: taken as drafted / k = {rounds:g}, as if every round "
                        f"had drafted k={k}. Shorter rounds would mean more of them, and fewer tokens each.")
    if drafted is None and rounds is not None and k:
        drafted = rounds * k
    if accepted is not None and drafted is not None:
        Counts(rounds or 1.0, drafted, accepted)  # refuses more accepted than drafted, and says why
    for name in ("rounds", "drafted", "accepted", "judged", "emitted"):
        value = getattr(reading, name)
        if value is not None and abs(value - round(value)) > 1e-6:
            warnings.append(f"{name} is {value:g}, not a whole number: this is a rate or an average, not the "
                            "counter itself. Ratios of such numbers hold, sums do not.")
            break
    mean_k, k = _draft_length(rounds, drafted, k, warnings)
    idle = rounds == 0 or drafted == 0
    if idle:
        warnings.append("no traffic: nothing was drafted, so there is no acceptance to read.")
    tokens = prefix = alpha = None
    if idle:
        pass
    elif rounds and accepted is not None:
        tokens = 1.0 + accepted / rounds
    else:
        tokens = reading.tokens_per_round
    if not idle:
        prefix = accepted / drafted if drafted and accepted is not None else reading.prefix_rate
        tokens, prefix = _complete(tokens, prefix, mean_k or k)
        if tokens is not None and (mean_k or k):
            alpha = implied_alpha(tokens - 1.0, mean_k or k)
    per_position, conditional = _positions(reading, rounds, warnings)
    per_step = _per_step(reading, warnings)
    return Acceptance(
        engine=reading.engine, source=reading.source, model=reading.model, k=k, rounds=rounds,
        drafted=drafted, accepted=accepted, emitted=reading.emitted, per_position=per_position,
        conditional=conditional, tokens_per_round=tokens, prefix_rate=prefix, alpha=alpha,
        tokens_per_step=per_step, reported=dict(reading.reported), notes=reading.notes,
        warnings=tuple(dict.fromkeys(warnings)), reading=original)


def implied_alpha(accepted_per_round: float, mean_k: float) -> float:
    """The alpha that accepts this many of mean_k drafts a round, if all are accepted alike.

    mean_k need not be whole: rounds then draft the two whole numbers around it. For a whole one this is
    `theory.alpha_from_tokens`. Raises ValueError where accepted_per_round is not in [0, mean_k].
    """
    if not 0 <= accepted_per_round <= mean_k * (1 + _ROUNDING):
        raise ValueError(f"{accepted_per_round:g} accepted a round, of {mean_k:g} drafted: accepted exceeds "
                         "drafted: the bonus token is being counted as accepted. Subtract one a round.")
    short, share = int(mean_k), mean_k - int(mean_k)
    low, high = 0.0, 1.0
    for _ in range(60):  # halving is enough here, and spares a check of metrics the start of scipy
        middle = (low + high) / 2
        found = (1 - share) * expected_accepted(middle, short)
        found += share * expected_accepted(middle, short + 1) if share else 0.0
        low, high = (middle, high) if found < accepted_per_round else (low, middle)
    return (low + high) / 2 if accepted_per_round > 0 else 0.0


def _from_v0(reading: Reading, warnings: list[str]) -> Reading:
    """vLLM V0: emitted gives the accepted prefix, which its own `accepted` is not."""
    if not reading.k:
        warnings.append("k is not in this text, and this engine's accepted count needs it: pass it (--k).")
        return reading
    if not reading.drafted:
        return replace(reading, rounds=0.0, accepted=0.0)
    drafted, judged, emitted = (int(n) if n == int(n) else n
                                for n in (reading.drafted, reading.judged, reading.emitted))
    counts, flag = counts_from_v0(reading.k, drafted, judged, emitted)
    if flag:
        warnings.append(f"{flag}. Accepted is therefore taken as emitted - rounds.")
    return replace(reading, rounds=float(counts.rounds), accepted=float(counts.accepted))


def _draft_length(rounds: float | None, drafted: float | None, k: int | None,
                  warnings: list[str]) -> tuple[float | None, int | None]:
    """Mean drafts a round, and k."""
    if not rounds or not drafted:
        return None, k
    mean = drafted / rounds
    if not mean <= LONGEST_DRAFT:
        raise ValueError(f"{drafted:g} drafted in {rounds:g} rounds: no draft is that long. "
                         "Are these two counters of one engine?")
    if k is not None and mean > k * 1.01:
        raise ValueError(f"{drafted:g} drafted in {rounds:g} rounds is {mean:.2f} a round, more than k={k}: "
                         "k is wrong, or the draft is a tree, whose side branches count as drafted.")
    full = k if k is not None else max(math.ceil(mean - _ROUNDING), 1)
    if mean < full * (1 - _ROUNDING):
        warnings.append(
            f"k varies: {drafted:g} drafted is below k x rounds = {full} x {rounds:g}, {mean:.3f} a round. "
            "What a round did not draft is unobserved, not rejected: conditional rates are lower bounds, "
            "and alpha is for rounds of that mean length.")
    return min(mean, float(full)), full


def _complete(tokens: float | None, prefix: float | None, k: float | None) -> tuple:
    """Each of the two from the other, where there are rates only."""
    if prefix is not None and prefix > 1 + 1e-6:
        raise ValueError(f"the acceptance rate is {prefix:g}, above 1: accepted exceeds drafted: the bonus "
                         "token is being counted as accepted.")
    if tokens is not None and tokens < 1:
        raise ValueError(f"tokens per round is {tokens:g}, but a round emits at least 1: this counts "
                         "accepted drafts only. Add one.")
    if k and tokens is None and prefix is not None:
        tokens = 1.0 + k * min(prefix, 1.0)
    elif k and prefix is None and tokens is not None:
        prefix = (tokens - 1.0) / k
        if prefix > 1 + 1e-6:
            raise ValueError(f"tokens per round is {tokens:g}, but k={k:g} emits at most {k + 1:g}: k is "
                             "wrong, or the bonus token was added twice.")
    return tokens, prefix


def _positions(reading: Reading, rounds: float | None, warnings: list[str]) -> tuple:
    """Unconditional and conditional rates by position."""
    counts = reading.positions
    if not counts or not rounds:
        return None, None
    rates = tuple(count(number / rounds, "the rate at a position") for number in counts)
    conditional = tuple(None if math.isnan(rate) else float(rate)
                        for rate in conditional_from_unconditional(rates))  # refuses rates that rise
    total = math.fsum(counts)
    if reading.accepted is not None and abs(total - reading.accepted) > 0.01 * max(reading.accepted, 100):
        warnings.append(f"the positions add up to {total:g} accepted, the total says {reading.accepted:g}: "
                        "they were counted at different times, or one counts what the other does not.")
    for i in range(1, len(rates)):
        before = conditional[i - 1]
        if rates[i] > 0 or not before:
            continue
        # Were drafts accepted here as at the position before, how likely is it that none was?
        chance = -math.inf if before == 1 else counts[i - 1] * math.log1p(-before)
        if counts[i - 1] >= 5 and chance < math.log(_SURPRISE):
            warnings.append(
                f"a cliff to zero: position {i} is accepted {rates[i - 1]:.1%} of the time, position {i + 1} "
                "never. No draft model does that. Either rounds never draft so far, or the engine rejects "
                "(or corrupts) what follows the first token: compare its text with and without speculation.")
        break
    return rates, conditional


def _per_step(reading: Reading, warnings: list[str]) -> float | None:
    """Tokens of the whole service per target step, where all generated tokens are counted."""
    generated, accepted = reading.generated, reading.accepted
    if not generated or accepted is None:
        return None
    emitted = accepted + (reading.rounds or 0.0)
    if emitted > generated * (1 + _ROUNDING) or accepted >= generated:
        warnings.append(f"accepted + rounds = {emitted:g}, but only {generated:g} tokens were generated: the "
                        "counters hold tokens that never reached the text, such as those past its end.")
        return None
    # Every step that is not a speculative round emits exactly one token, the first of a text included.
    return generated / (generated - accepted)

