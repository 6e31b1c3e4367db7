"""Checks of notebook 01: the rule of one round, its law, the end of a text and the caches."""

from fractions import Fraction as F

import numpy as np

from course_lib.course.checks import exercise

_P, _Q = [0.4, 0.3, 0.2, 0.1], [0.5, 0.1, 0.1, 0.3]  # sea, sky, sun, fog
_LAWS = [(_P, _Q), ([0.6, 0.4], [0.8, 0.2]), ([0.2, 0.5, 0.3], [0.1, 0.2, 0.7])]


def _each(function):
    return lambda p, q: [function(a, b) for a, b in zip(p, q, strict=True)]


def _added(function):
    return lambda p, q: sum(function(a, b) for a, b in zip(p, q, strict=True))


def _scaled(values):
    return [value / sum(values) for value in values]


def _floats(got, want):
    # An answer in fractions and one in floats are the same answer.
    return np.allclose(np.array(got, float), np.array(want, float), rtol=0, atol=1e-9)


@exercise(
    "1.1",
    inputs=_LAWS,
    right='"sea" is kept with {got[0]:.2f}, "fog" with {got[3]:.3f}, the others always',
    wrong={
        "upside down": (_each(lambda a, b: min(1, b / a)),
            "that is min(1, q/p): it keeps what the draft proposes too often and refuses what it proposes "
            "too rarely. Divide p by q."),
        "not capped": (_each(lambda a, b: a / b),
            "a chance of {got[1]:.0f} cannot be: where p is above q, the word is simply always kept."),
        "min of both": (_each(min),
            "that is min(p, q): the chance that the word is drafted *and* kept. It has been drafted already, "
            "so divide by q."),
        "p alone": (lambda p, q: p,
            "that is p itself, right only for a draft that proposes one word with certainty (q = 1)."),
    },
    raised={"ZeroDivisionError": "no q here is 0; is it p that you divide by?"},
)
def accept_chance(p, q):
    return [min(1, a / b) for a, b in zip(p, q, strict=True)]


@exercise(
    "1.2",
    inputs=[*_LAWS, ([0.5, 0.5], [0.5, 0.5]), ([1.0, 0.0], [0.0, 1.0])],
    right="{got:.1f} of the drafts are accepted",
    wrong={
        "both draw it": (_added(lambda a, b: a * b),
            "that is Σ p·q ({got:.2f}), the chance that two separate draws agree. The rule keeps far more: "
            "it need not draw the same word, only keep p."),
        "the distance": (lambda p, q: 1 - sum(map(min, p, q)),
            "that is the distance TV(p, q) ({got:.2f}): the chance of a rejection. You want the rest."),
        "twice the distance": (_added(lambda a, b: abs(a - b)),
            "Σ |p − q| is twice the chance of a rejection. Add up min(p, q)."),
        "larger": (_added(max),
            "you added up the larger of the two ({got:.2f}). What both laws share is the smaller."),
        "weighed by p": (_added(lambda a, b: a * min(1, a / b) if b else a),
            "you weighed min(1, p/q) by p. The word comes from the draft: weigh by q."),
        "not weighed": (
            lambda p, q: sum(min(1, a / b) if b else 1 for a, b in zip(p, q, strict=True)) / len(p),
            "you took the plain mean of min(1, p/q) ({got:.3f}). Words are not drafted equally often: "
            "weigh by q."),
    },
    raised={"ZeroDivisionError": "a q may be 0 here. q · min(1, p/q) needs no division: it is min(p, q)."},
)
def overlap(p, q):
    return sum(map(min, p, q))


def _missing(p, q):
    return [max(a - b, 0) for a, b in zip(p, q, strict=True)]


def _is_no_law(residual):
    total = float(sum(residual(_P, _Q)))
    if abs(total - 1) > 1e-6:
        return f"your residual adds up to {total:.2f}, not 1: it is not normalised, so it is no law yet."
    return None


def _forgets_equal(residual):
    same = [float(chance) for chance in residual([0.5, 0.5], [0.5, 0.5])]
    return None if same == [0.5, 0.5] else f"for p = q it gives {same}: nothing is missing there, return p."


@exercise(
    "1.3",
    inputs=[*_LAWS, ([0.5, 0.5], [0.5, 0.5])],
    right='after a rejection: "sky" with {got[1]:.3f}, "sun" with {got[2]:.3f}, never "sea" or "fog"',
    wrong={
        "p itself": (lambda p, q: p,
            "you draw from p. Acceptance has delivered min(p, q) already: draw what is missing, max(p − q, "
            "0)."),
        "absolute": (lambda p, q: _scaled([abs(a - b) for a, b in zip(p, q, strict=True)]) if p != q else p,
            '|p − q| also brings back "fog", which the draft proposes too often. Where p is below q '
            'nothing is missing.'),
        "q minus p": (lambda p, q: _scaled(_missing(q, p)) if p != q else p,
            "that is q − p, what the draft proposes too often. Missing is p − q, where it is above 0."),
        "smaller": (lambda p, q: _scaled(list(map(min, p, q))),
            "that is min(p, q), scaled: what acceptance has delivered already."),
    },
    diagnose={
        "not normalised": (_is_no_law, _missing),
        "equal": (_forgets_equal, lambda p, q: _scaled(_missing(p, q)) if p != q else [0.0] * len(p)),
    },
    raised={"ZeroDivisionError": "p equals q there, so nothing is missing: return p."},
)
def residual(p, q):
    return _scaled(_missing(p, q)) if p != q else p


def _emitted(after, accept=lambda a, b: min(1, a / b)):
    """The law by enumeration, with another law after a rejection or another chance to accept."""

    def law(p, q):
        out = [F(0)] * len(p)
        for d, chance in enumerate(q):
            if chance == 0:
                continue
            accepted = accept(p[d], q[d])
            out[d] += chance * accepted
            for x, again in enumerate(after(p, q)):
                out[x] += chance * (1 - accepted) * again
        return out

    return law


def _exact(*laws):
    return [tuple([F(n, sum(parts)) for n in parts] for parts in pair) for pair in laws]


@exercise(
    "1.4",
    inputs=_exact(
        ([4, 3, 2, 1], [5, 1, 1, 3]),
        ([3, 2], [4, 1]),
        ([0, 1, 2], [1, 0, 1]),
        ([1, 1], [1, 1]),
        ([1, 5, 0], [2, 3, 1]),
    ),
    right="{got[0]}, {got[1]}, {got[2]}, {got[3]}: the target's law, exactly",
    wrong={
        "from p": (_emitted(lambda p, q: p),
            "{got[0]}, {got[1]}, …: after a rejection you draw from p, so the words of the draft come too "
            "often. Draw from the residual."),
        "from q": (_emitted(lambda p, q: q),
            "{got[0]}, {got[1]}, …: after a rejection you draw from the draft again. The target draws then."),
        "rejections forgotten": (lambda p, q: list(map(min, p, q)),
            "these add up to the chance of acceptance, not to 1: the ways through a rejection are missing."),
        "all accepted": (lambda p, q: q, "that is q: you accept every draft. Multiply by min(1, p/q)."),
        "not normalised": (_emitted(_missing),
            "your law does not add up to 1: the residual must be normalised before you draw from it."),
    },
    raised={
        "ZeroDivisionError": "skip words with q = 0 (they are never drafted), and p = q (nothing is ever "
                             "rejected)."
    },
    same=_floats,
)
def emitted_law(p, q):
    return _emitted(residual)(p, q)


def _drafted(q):
    return max(range(len(q)), key=lambda x: q[x])


def _without(p, q):
    return [0.0 if x == _drafted(q) else chance for x, chance in enumerate(p)]


@exercise(
    "1.5",
    inputs=[([0.6, 0.4], [0.8, 0.2]), *_LAWS],
    right="accepted with p(d) = {got[0]:.1f}; otherwise any other word, as p has them",
    wrong={
        "softmax q in both": (lambda p, q: (min(1, p[_drafted(q)] / q[_drafted(q)]), residual(p, q)),
            "you used the softmax q in the test and in the residual. The draft did not draw from it: "
            "it proposed one word with certainty, so q(d) = 1 and q is 0 elsewhere."),
        "softmax chance": (lambda p, q: (min(1, p[_drafted(q)] / q[_drafted(q)]), _scaled(_without(p, q))),
            "you divide by the softmax q(d) = {q[0]}. The word was proposed with certainty: divide by 1."),
        "softmax residual": (lambda p, q: (p[_drafted(q)], residual(p, q)),
            "the chance is right. But the residual is for the q that was used: 1 for the drafted word and "
            "0 elsewhere."),
        "overlap": (lambda p, q: (sum(map(min, p, q)), _scaled(_without(p, q))),
            "Σ min(p, q) = {got[0]:.2f} is for a draft that draws from q. A greedy one is accepted with "
            "p(d)."),
        "drawn from p": (lambda p, q: (p[_drafted(q)], p),
            "the chance is right. After the rejection you draw from p, where the rejected word has a "
            "second chance."),
        "not normalised": (lambda p, q: (p[_drafted(q)], _without(p, q)),
            "the chance is right. The law after the rejection is not normalised: it adds up to less than 1."),
        "likeliest of p": (lambda p, q: (max(p), _scaled([0.0 if a == max(p) else a for a in p])),
            "at p = {p} and q = {q} you took the target's likeliest word. The draft proposes its own, by q."),
        "only when agreed": (lambda p, q: (float(p[_drafted(q)] == max(p)), _scaled(_without(p, q))),
            "you accept only if the target's likeliest word is drafted. That is for a greedy target; here "
            "it draws."),
    },
)
def greedy_round(p, q):
    return p[_drafted(q)], _scaled(_without(p, q))


def _end(new, eos):
    return next((place for place, token in enumerate(new) if token in eos), None)


def _last_end(new, eos):
    places = [place for place, token in enumerate(new) if token in eos]
    return new[: places[-1] + 1] if places else new


@exercise(
    "1.6",
    inputs=[
        (["d1", "d2", "EOS", "d4", "d5", "own"], {"EOS"}),
        (["d1", "d2", "own"], {"EOS"}),
        (["EOS", "d2", "EOT", "own"], {"EOS", "EOT", "EOM"}),
        (["d1", "EOT"], {"EOS", "EOT"}),
        (["d1", "EOT", "EOS"], {"EOS", "EOT"}),
    ],
    right="{got}: 3 tokens, not 6",
    wrong={
        "not cut": (lambda new, eos: new,
            "{got}: you kept tokens behind the end of the text. They were accepted, but never said."),
        "end dropped": (lambda new, eos: new[: _end(new, eos)],
            "{got}: the ending token itself is emitted too. It is how the reader knows that the text is "
            "over."),
        "last end": (_last_end,
            "{new} gives {got}: you cut at the last ending token. The text is over at the first."),
        "one end only": (lambda new, eos: new[: new.index("EOS") + 1] if "EOS" in new else new,
            "{new} gives {got}, with the ends {eos}: you look for one ending token, and there may be "
            "several."),
        "one too many": (lambda new, eos: new if _end(new, eos) is None else new[: _end(new, eos) + 2],
            "{got}: one token too many; new[:n] has n tokens."),
        "end last only": (
            lambda new, eos: new if _end(new, eos) is None else [*new[: _end(new, eos)], new[-1]],
            "{got}: nothing comes behind the end, not even the target's own token."),
    },
)
def cut_at_end(new, eos):
    end = _end(new, eos)
    return new if end is None else new[: end + 1]


@exercise(
    "1.7",
    inputs=[(10, 4, 2), (10, 4, 4), (10, 4, 0), (10, 4, 3), (7, 1, 1)],
    right="{accepted} of {k} accepted: both keep {got[0]}; after full acceptance the draft is one behind",
    wrong={
        "not rolled back": (lambda n, k, accepted: (n + k, n + k - 1),
            "{got}: that is all that was read. {accepted} of {k} drafts are in the text; the others "
            "must go."),
        "draft read all": (lambda n, k, accepted: (n + accepted, n + accepted),
            "with n={n}, k={k}, accepted={accepted} the draft keeps {got[1]}? It proposed its last guess "
            "but never read it: it has read {want[1]} at most."),
        "own kept in both": (lambda n, k, accepted: (n + accepted + 1, n + accepted + 1),
            "{got} is the length of the text. Its last token, the target's own, has been read by "
            "nobody yet."),
        "own kept": (lambda n, k, accepted: (n + accepted + 1, min(n + k - 1, n + accepted + 1)),
            "{got} counts the target's own token. It was written, but no model has read it yet."),
        "started at n": (lambda n, k, accepted: (n - 1 + accepted, min(n + k - 2, n - 1 + accepted)),
            "{got} forgets a token: in the round both also read the last token of the text, which they had "
            "not."),
        "too careful": (lambda n, k, accepted: (n + accepted, n + accepted - 1),
            "with n={n}, k={k}, accepted={accepted} the draft can keep {want[1]}: it lacks its last guess "
            "only, and that matters only if all {k} are accepted."),
        "swapped": (lambda n, k, accepted: (min(n + k - 1, n + accepted), n + accepted),
            "with n={n}, k={k}, accepted={accepted}: it is the draft that is one behind, not the target."),
    },
)
def caches_after(n, k, accepted):
    return n + accepted, min(n + k - 1, n + accepted)
