"""What a round costs, and what that leaves of its tokens: speedup, break-even, the best k.

A round with k drafts runs the draft k times and the target once, over k + 1 tokens (the *width*): the
last token of the text, whose successor is not known yet, and the k drafts.

    round(k) = k * t_draft + t_verify[k + 1] + overhead        round(0) = t_verify[1], plain decoding
    speedup  = tokens per round * round(0) / round(k)

Both sides run at the same batch, so a `RoundCosts` belongs to one batch size and a `CostTable` holds
several. In target steps, with t_verify flat and no overhead, this is the speedup of Leviathan et al. 2023
(arXiv 2211.17192, theorem 3.8): tokens per round / (k c + 1), c = t_draft / t_verify[1].

Two traps. Tokens per round is not speedup before it is divided by a cost. And costs of draft and target
timed apart miss what lies between them in a round (sampling, cache rollback, synchronisation): measure
inside rounds, and put what is not a forward pass into `overhead`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_lib.files import write_text
from course_lib.replay import adaptive_cost, fixed_cost
from course_lib.theory import alpha_from_tokens, expected_tokens
from course_lib.whole import whole

FORMAT = "course_lib costs 1"
PROVENANCE = ("machine", "date", "command")


class Linear(NamedTuple):
    """Verify time as the first source article has it; see `RoundCosts.linear`."""

    base: float
    per_token: float


@dataclass(frozen=True)
class RoundCosts:
    """Seconds (or any one unit) of the parts of a round, at one batch size.

    t_draft: one step of the draft, 0 or more.
    t_verify: {width: seconds of one target step over `width` tokens a row}, width 1 included; or `Linear`.
        Between measured widths the time is interpolated along straight lines; beyond the largest it is
        refused, since nobody knows there when the step stops being nearly free.
    overhead: what else a speculative round adds, 0 or more. Plain decoding does not pay it.
    Raises ValueError for other values.
    """

    t_draft: float
    t_verify: Mapping[int, float] | Linear
    overhead: float = 0.0

    def __post_init__(self) -> None:
        _number("t_draft", self.t_draft)
        _number("overhead", self.overhead)
        if not isinstance(self.t_verify, Mapping):
            try:
                linear = Linear(*self.t_verify)
            except TypeError:
                raise ValueError("t_verify must be {width: seconds} or the pair (base, per_token).") from None
            _number("base", linear.base)
            _number("per_token", linear.per_token)
            if not sum(linear) > 0:
                raise ValueError("base and per_token are both 0: a target step takes time.")
            object.__setattr__(self, "t_verify", linear)
            return
        table = {whole("a width in t_verify", width, 1): seconds for width, seconds in self.t_verify.items()}
        for width, seconds in table.items():
            if not _number(f"t_verify at width {width}", seconds) > 0:
                raise ValueError(f"t_verify at width {width} is 0: a target step takes time.")
        if 1 not in table:
            raise ValueError("t_verify lacks width 1: without the plain decoding step there is no speedup.")
        object.__setattr__(self, "t_verify", dict(sorted(table.items())))

    @classmethod
    def linear(cls, t_draft: float, base: float, per_token: float, overhead: float = 0.0) -> RoundCosts:
        """Costs from the parameters of the first source article's `net_speedup`, and equal to it for K >= 1.

        The article takes base + K per_token for a verify of K drafts and base + per_token for a plain step.
        A plain step reads one token, so a verify, which reads K + 1, should cost base + (K + 1) per_token:
        the article is one per_token short, and its width 2 costs what width 1 costs. So it does here. At
        K = 0 the article's function, taken literally, finds a speedup of (base + per_token) / base in not
        speculating; here k = 0 is plain decoding, and its speedup 1.
        For a step that pays for every token, give a table: {w: base + w * per_token}.
        """
        return cls(t_draft, Linear(base, per_token), overhead)

    def verify_seconds(self, width: int) -> float:
        """One target step over `width` tokens a row; width 1 is plain decoding."""
        width = whole("width", width, 1)
        if isinstance(self.t_verify, Linear):
            return self.t_verify.base + max(width - 1, 1) * self.t_verify.per_token
        largest = max(self.t_verify)
        if width > largest:
            raise ValueError(
                f"width {width} (k={width - 1}) was not measured: the largest width is {largest} "
                f"(k={largest - 1}). Measure wider, or ask for a smaller k."
            )
        return float(np.interp(width, list(self.t_verify), list(self.t_verify.values())))

    def round_seconds(self, k: int) -> float:
        """One round with k drafts; k = 0 is one step of plain decoding."""
        k = whole("k", k, 0)
        return self.verify_seconds(k + 1) + (k * self.t_draft + self.overhead if k else 0.0)

    def round_cost(self, max_k: int) -> np.ndarray:
        """Rounds with k = 0 ... max_k in target steps, as `replay` takes them; the first is 1."""
        rounds = [self.round_seconds(k) for k in range(whole("max_k", max_k, 0) + 1)]
        return np.array(rounds) / rounds[0]

    def speedup(self, tokens_per_round, k: int):
        """Times as fast as the same target decoding alone at the same batch; below 1 is a loss.

        tokens_per_round: emitted per row and round, the target's own token included; a number or an array,
        so that the ends of an interval can be passed. Raises ValueError where it is 0 or less.
        """
        tokens = np.asarray(tokens_per_round, float)
        if (tokens <= 0).any():
            raise ValueError("tokens per round must be above 0: every round emits at least one token.")
        found = tokens / self.break_even_tokens(k)
        return found if found.ndim else float(found)

    def break_even_tokens(self, k: int) -> float:
        """Tokens a round must emit to be worth its time: its cost in target steps.

        Compare with *emitted* tokens, not with accepted drafts, which are one fewer.
        """
        return self.round_seconds(k) / self.round_seconds(0)

    def break_even_alpha(self, k: int) -> float:
        """The acceptance rate above which k drafts a round pay, if it is the same for every draft.

        nan where no rate does: the round costs more than k + 1 target steps, which is all it can emit.
        k: an integer >= 1.
        """
        tokens = self.break_even_tokens(whole("k", k, 1))
        return alpha_from_tokens(max(tokens, 1.0), k) if tokens <= k + 1 else math.nan

    def best_k(self, alpha: float, max_k: int) -> tuple[int, float]:
        """The k from 0 to max_k with the highest speedup, and that speedup, for independent drafts.

        (0, 1.0) means off: no k beats plain decoding. Of equals the smallest k wins.
        """
        ks = range(1, whole("max_k", max_k, 0) + 1)
        return self.best_measured_k({k: expected_tokens(alpha, k) for k in ks})

    def best_measured_k(self, tokens: Mapping[int, float]) -> tuple[int, float]:
        """As `best_k`, from tokens per round by k: a dict, or a pandas Series with k as its index."""
        best = (0, 1.0)
        for k, emitted in sorted(tokens.items()):
            if (speedup := self.speedup(emitted, k)) > best[1]:
                best = (int(k), speedup)
        return best

    def adaptive_gain(self, accepts: Sequence[np.ndarray], max_k: int) -> float:
        """How much faster than the best fixed k a choice of k at each round could be, at most (>= 1).

        The chooser of `replay.adaptive_cost` knows every chance of the text; a real one gains less.
        accepts: one 1-D array of chances for each text. The fixed k, from 0 to max_k, is one for all texts.
        """
        cost = self.round_cost(max_k)
        least = adaptive_cost(accepts, cost).sum()
        if not least > 0:
            raise ValueError("the texts hold no tokens: there is nothing to gain from.")
        return float(fixed_cost(accepts, range(len(cost)), cost).sum(axis=0).min() / least)


@dataclass(frozen=True)
class CostTable:
    """The costs of one pair on one machine by batch size, and where they come from.

    batches: {batch size: RoundCosts}. meta: at least machine, date and command; also pair, dtype, context.
    """

    batches: Mapping[int, RoundCosts]
    meta: Mapping = field(default_factory=dict)

    def at(self, batch: int) -> RoundCosts:
        """The costs at one batch size. Raises ValueError where it was not measured: load is not a line."""
        if batch not in self.batches:
            known = ", ".join(map(str, sorted(self.batches)))
            raise ValueError(f"batch {batch} was not measured: this table has {known}.")
        return self.batches[batch]

    def document(self) -> dict:
        """What `save` writes, as JSON: format, meta and batches, each with t_draft, t_verify and overhead."""
        batches = {str(batch): _as_json(costs) for batch, costs in sorted(self.batches.items())}
        return {"format": FORMAT, "meta": dict(self.meta), "batches": batches}

    def save(self, path: str | Path) -> None:
        """Write JSON that `load` reads back. Raises ValueError where meta does not say where it is from."""
        if missing := [name for name in PROVENANCE if not self.meta.get(name)]:
            raise ValueError(f"these costs lack their {', '.join(missing)}: a number needs to say whence.")
        if not self.batches:
            raise ValueError("there are no costs to save.")
        write_text(path, json.dumps(self.document(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> CostTable:
        """Read what `save` wrote. Raises ValueError, with the reason, for any other file."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError as error:  # not UTF-8 or not JSON
            raise ValueError(f"{path} is damaged or no file of costs: {error}.") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"{path} is no file of costs of this version: its format is not {FORMAT!r}.")
        try:
            batches = {int(batch): _from_json(parts) for batch, parts in document["batches"].items()}
            meta = dict(document["meta"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        if not batches or not all(meta.get(name) for name in PROVENANCE) or min(batches) < 1:
            raise ValueError(f"{path} is damaged: it lacks costs, or {', '.join(PROVENANCE)}.")
        return cls(batches, meta)


def _as_json(costs: RoundCosts) -> dict:
    verify = costs.t_verify if isinstance(costs.t_verify, Linear) else dict(costs.t_verify)
    return {"t_draft": costs.t_draft, "t_verify": verify, "overhead": costs.overhead}


def _from_json(parts: dict) -> RoundCosts:
    verify = parts["t_verify"]
    if isinstance(verify, dict):  # whose keys JSON made text
        verify = {int(width) if width.isdecimal() else width: seconds for width, seconds in verify.items()}
    return RoundCosts(**{**parts, "t_verify": verify})


def _number(name: str, value: float) -> float:
    try:
        if 0 <= value < math.inf:
            return float(value)
    except TypeError:
        pass
    raise ValueError(f"{name} is {value!r}: it must be a finite number, 0 or more.")
