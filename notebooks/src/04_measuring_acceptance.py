# %% [markdown]
# # 04 · Measuring acceptance
#
# - **You will do:** measure α on a real pair in three ways, then take one real run and count it under
#   every definition of "acceptance rate" that is in use.
# - **You will learn:** which of the three ways answers which question, why two of them must agree, how to
#   get from one definition to another, and how wide an honest interval is.
# - **You need:** notebook 02 (α, k, tokens per round). No GPU.
# - **Minutes:** 60

# %% [markdown]
# In notebook 02 α was a number we chose. From here on it is measured.
#
# It is measured badly all the time. "Acceptance rate" has at least five meanings, and on one and the same
# run they can differ by a factor of two. So we first measure α where the models speak, token by token.
# Then we take a run apart and name every rate in it.

# %%
import os
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from course_lib.course import notebook
from course_lib.intervals import Interval, mean_interval, ratio_interval
from course_lib.pairs import load_pair
from course_lib.plots import banner, show, style
from course_lib.prompts import ROUTES, load_prompts
from course_lib.sampling import Sampling, probabilities
from course_lib.scoring import hidden_states
from course_lib.speculate import decode, decode_plain
from course_lib.theory import (
    alpha_from_prefix_rate,
    alpha_from_tokens,
    conditional_from_unconditional,
    counts_from_histogram,
    counts_from_v0,
    expected_tokens,
    tokens_from_unconditional,
)
from course_lib.traces import measure_trace, score_trace

check, quiz = notebook("04")
style()

# %% [markdown]
# ## The pair and its prompts
#
# Prompts come from three routes, kinds of traffic: chat, code and JSON. They are *held out*: the draft was
# not trained on them. On its own training prompts a draft looks better than it is.

# %% tags=["nbval-ignore-output"]
pair = load_pair(os.environ.get("COURSE_PAIR", "smol"))
prompts = load_prompts(limit=4)
banner("live", pair=pair.name, device=pair.device, dtype=str(pair.dtype).removeprefix("torch."),
       prompts=f"{len(prompts)} held out", tokens="up to 40 each")

# %% [markdown]
# ## One text, place by place
#
# The target answers a JSON prompt by itself: no draft, temperature 1.

# %% tags=["nbval-ignore-output"]
prompt = next(prompt for prompt in prompts if prompt.route == "json")
ids = pair.encode(prompt.messages)
plain = decode_plain(pair, [ids], max_new_tokens=12, sampling=Sampling(1.0),
                     generator=torch.Generator(pair.device).manual_seed(4))
text = plain.tokens[0]
print("asked:  ", prompt.messages[-1]["content"][:200])
print("answer: ", pair.tokenizer.decode(text))

# %% [markdown]
# Now both models read prompt and answer, once. At each place of the answer that gives two laws: **p**, what
# the target would write next, and **q**, what the draft would.
#
# What a model says at one place is about the *next* one. So we begin one place before the answer and leave
# the last one out. Being off by one here is the commonest way to measure nonsense.

# %% tags=["nbval-ignore-output"]
with torch.inference_mode():
    both = torch.tensor([ids + text], device=pair.device)
    p, q = (probabilities(model(both).logits[0, len(ids) - 1:-1], Sampling(1.0))
            for model in (pair.target, pair.draft))

# %% tags=["nbval-ignore-output"]
tokens = torch.tensor(text, device=pair.device)[:, None]
p_token, q_token = p.gather(1, tokens)[:, 0], q.gather(1, tokens)[:, 0]
places = pd.DataFrame({
    "token": [repr(pair.tokenizer.decode([token])) for token in text],
    "p(token)": p_token.tolist(),
    "q(token)": q_token.tolist(),
    "draft's favourite": [repr(pair.tokenizer.decode([token])) for token in q.argmax(1).tolist()],
    "match": (q.argmax(1) == tokens[:, 0]).tolist(),
    "Σ min(p, q)": torch.minimum(p, q).sum(1).tolist(),
    "min(1, q/p)": (q_token / p_token).clamp(max=1).tolist(),
})
places.round(3)

# %% [markdown]
# The last three columns are three ways to measure acceptance, one number a place.
#
# - **match**: is the draft's favourite this very token?
# - **Σ min(p, q)**, the *overlap*: the chance that a draft drawn from q would be accepted here. It is known
#   *before* the token is.
# - **min(1, q/p)**: the chance that this token came from the draft and not from a correction. It is known
#   *after* the token is.
#
# Row by row the last two differ. The claim will be that their averages do not.

# %% [markdown]
# **Exercise 4.1** · easy · 4 minutes. Once more, as in exercise 1.2, since all that follows rests on it: the overlap of
# two laws, two lists with one chance for each token.

# %% tags=["exercise"]
def overlap(p, q):
    # solution
    return sum(min(a, b) for a, b in zip(p, q, strict=True))
    # end


check(overlap)

# %% [markdown] tags=["hints"]
# - A draft x is proposed with chance q(x) and then kept with chance min(1, p(x)/q(x)). Multiply the two.
# - q(x) · min(1, p(x)/q(x)) = min(q(x), p(x)). Add that up over all tokens.

# %% [markdown]
# **Exercise 4.2** · easy · 4 minutes. Now after the fact. At each place the target wrote some token; given
# are p and q *of that token*, as two arrays. Return the third column.

# %% tags=["exercise"]
def accepted_given_text(p_token, q_token):
    # solution
    return np.minimum(1, q_token / p_token)
    # end


check(accepted_given_text)

# %% [markdown] tags=["hints"]
# - A token that the target likes more than the draft does (p > q) often has to come from a correction.
# - Of all the times this token is written here, a mass of p(x), the draft supplies min(p(x), q(x)). Which
#   share is that?

# %% [markdown]
# ## Why the last two agree
#
# Let the target write the token: x comes with chance p(x). The average of min(1, q/p) is then
#
# $$\sum_x p(x)\,\min\!\Big(1, \frac{q(x)}{p(x)}\Big) \;=\; \sum_x \min\big(p(x), q(x)\big),$$
#
# and that is the overlap. Two lines on paper; here with four tokens, in exact fractions.

# %%
banner("simulated", laws="four tokens, exact fractions")
p_toy = [Fraction(n, 10) for n in (5, 3, 2, 0)]
q_toy = [Fraction(n, 10) for n in (2, 4, 3, 1)]
laws = list(zip(p_toy, q_toy, strict=True))

before = sum(min(p_x, q_x) for p_x, q_x in laws)
after = sum(p_x * min(Fraction(1), q_x / p_x) for p_x, q_x in laws if p_x)
print("before the token is known:", before)
print("after, averaged over p:   ", after)

# %% [markdown]
# 7/10 both times, exactly. Averaged over many places, both are **α**: the overlap averaged over prefixes is
# how Leviathan and others define it (2023, definition 3.1 and theorem 3.5).
#
# There is a mirror image. The decoder looks at a token that the *draft* wrote and tests min(1, p/q).

# %%
mirror = sum(q_x * min(Fraction(1), p_x / q_x) for p_x, q_x in laws if q_x)
mixed_up = sum(p_x * min(Fraction(1), p_x / q_x) for p_x, q_x in laws if q_x)
print("tokens from q, min(1, p/q):", mirror)
print("tokens from p, min(1, p/q):", mixed_up, "=", round(float(mixed_up), 3))

# %% [markdown]
# With the draft's own tokens, 7/10 again. On the *target's* text the same test gives 0.858: too good, and it
# looks plausible. **On the target's text the ratio is q/p.**

# %% [markdown]
# ## What the favourite says
#
# And the first column? It depends on how tokens are chosen.

# %%
favourite_p, favourite_q = p_toy.index(max(p_toy)), q_toy.index(max(q_toy))
print("temperature 0, both greedy:          ", int(favourite_p == favourite_q))
print("temperature 1, only the draft greedy:", p_toy[favourite_q])
print("temperature 1, both sample:          ", before)

# %% [markdown]
# Three settings, three rates: 0, 3/10, 7/10. At temperature 0 the target always writes its favourite, and a
# draft is accepted exactly if it is that token. A *greedy draft* at temperature 1, the default of vLLM,
# SGLang and llama.cpp, is kept with chance p(its favourite).
#
# So greedy agreement is not a rough version of α at temperature 1. It is α at temperature 0.

# %% [markdown]
# ## The claim, on the pair
#
# **Claim.** Along the target's own text, Σ min(p, q) and min(1, q/p) have the same mean.
#
# `measure_trace` lets the target answer every prompt, lets the draft read the answers, and keeps a row a token, with
# what both models make of it: a *trace*. We take one at temperature 1 and one at temperature 0.

# %% tags=["nbval-ignore-output"]
sampled = measure_trace(pair, prompts, Sampling(1.0), new_tokens=40, seed=0)
greedy = measure_trace(pair, prompts, Sampling(0.0), new_tokens=40, seed=0)
banner("live", pair=pair.name, prompts=len(prompts), tokens=f"{len(sampled.rows)} at T=1, {len(greedy.rows)} at T=0")
sampled.rows[["route", "prompt", "t", "token", "match", "overlap", "accept"]].head(4)

# %% [markdown]
# A rate here is a sum over tokens divided by their number, and its interval treats the *prompt* as the unit
# that was drawn. Why the prompt, and not the token, is the next section. `ratio_interval(sums, numbers)` takes two
# lists with one entry a prompt, and gives sum of the one ÷ sum of the other with its interval.

# %% tags=["nbval-ignore-output"]
def rate(rows, values):
    """Mean of one value a token, with a 95 % interval over prompts."""
    groups = rows.assign(value=values).groupby(["route", "prompt"]).value.agg(["sum", "count"])
    return ratio_interval(groups["sum"], groups["count"])


rates = {}
for route in ROUTES:
    at_zero, at_one = (trace.rows[trace.rows.route == route] for trace in (greedy, sampled))
    rates[route] = {
        "greedy agreement, T=0": rate(at_zero, at_zero.match),
        "Σ min(p, q), T=1": rate(at_one, at_one.overlap),
        "min(1, q/p), T=1": rate(at_one, at_one.accept),
        "greedy draft, T=1": rate(at_one, at_one.match),
    }
table = pd.DataFrame(rates).T
table.map("{:.3f}".format)

# %% tags=["nbval-ignore-output"]
figure, axes = plt.subplots()
columns = ["Σ min(p, q), T=1", "min(1, q/p), T=1", "greedy agreement, T=0"]
for shift, column, marker, colour in zip((-0.15, 0, 0.15), columns, "os^", ("C0", "C1", "black"), strict=True):
    intervals = table[column].tolist()
    axes.errorbar(np.arange(len(intervals)) + shift, [i.mean for i in intervals], [i.half_width for i in intervals],
                  linestyle="none", marker=marker, color=colour, capsize=4, label=column)
axes.set(xticks=range(len(table)), xticklabels=table.index, ylabel="acceptance rate", ylim=(0, 1))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, fontsize=10, handletextpad=0.2)
show(figure, "Acceptance rate by route, three ways, with 95 % intervals over prompts. " + " ".join(
    f"{route}: " + ", ".join(f"{column} {table.loc[route, column]:.2f}" for column in columns) + "."
    for route in table.index))

# %% [markdown]
# Circles and squares are measured on the same tokens and should lie close together. Triangles are measured
# on another text, at temperature 0, and may lie anywhere.
#
# "Close" is not a test. The difference is: at each token subtract one from the other, and ask whether zero
# lies in the interval of the mean. But one text is one draw, and a 95 % interval is made so that it misses in one
# draw of twenty, however true the claim. So we draw again: every place of the text has its law p, and the target
# writes the token there once more, twenty times over. Of a true claim about 19 of the 20 intervals hold zero.
#
# **It could have failed.** Two other columns take the same test: the mixed-up min(1, p/q) on the target's text, and
# the favourite.

# %% tags=["nbval-ignore-output"]
DRAWS = 20
with torch.inference_mode():
    asked, written = [pair.encode(prompt.messages) for prompt in prompts], [text.tolist() for text in sampled.column("token")]
    p, q = (probabilities(model.lm_head(hidden_states(model, asked, written, pair.device)), Sampling(1.0)).cpu()
            for model in (pair.target, pair.draft))
again = torch.multinomial(p, DRAWS, replacement=True, generator=torch.Generator().manual_seed(1))
tokens = torch.cat([torch.tensor(sampled.rows.token.to_numpy()).long()[:, None], again], dim=1)  # column 0 is the text itself
print(f"{len(tokens)} places, and {DRAWS} draws at each")

# %% tags=["nbval-ignore-output"]
ratio = q.gather(1, tokens) / p.gather(1, tokens)
rows = {}
for name, values in {"min(1, q/p)": ratio.clamp(max=1), "mixed up: min(1, p/q)": (1 / ratio).clamp(max=1),
                     "favourite: match": (tokens == q.argmax(1, keepdim=True)).float()}.items():
    text, *draws = (rate(sampled.rows, value.numpy() - sampled.rows.overlap) for value in values.T)
    held = sum(gap.low <= 0 <= gap.high for gap in draws)
    rows[name] = {"the text": f"{text:+.3f}", "mean of the draws": f"{np.mean([gap.mean for gap in draws]):+.3f}",
                  "intervals with 0": f"{held} of {DRAWS}", "verdict": "no difference seen" if held >= 17 else "differs"}
print("minus Σ min(p, q), on average over the places")
pd.DataFrame(rows).T

# %% [markdown]
# Do not judge by the first column: it is one draw, and one in twenty misses by chance. The count is the test. A true
# claim reaches 17 of 20 or more in 59 cases of 60, and that is the verdict.
#
# min(1, p/q) is wrong for every pair. The favourite is a right number for a different question, the greedy draft at
# temperature 1; for some pairs it lies near α, for others not.
#
# Which of the two good ones to use? If only α is wanted, the overlap is quieter: it averages over all tokens
# that could have come, not only the one that did.

# %% tags=["nbval-ignore-output"]
spread = sampled.rows[["overlap", "accept"]].std()
print(f"spread from token to token: overlap {spread.overlap:.3f}   min(1, q/p) {spread.accept:.3f}")

# %% [markdown]
# But min(1, q/p) belongs to the token that was really written, and only such numbers may be multiplied along
# a text. Notebook 05 lives on that.

# %% [markdown]
# ## How sure are we?
#
# Somebody measured tokens per round on five prompts ([tokenspeed #1132](https://github.com/lightseekorg/tokenspeed/issues/1132)). Each was repeated many times.

# %%
five = [4.704, 3.432, 2.702, 3.735, 4.233]
print(f"over prompts, n = 5:                  {mean_interval(five):.2f}")
print(f"each repeated 20 times, 'n = 100':    {mean_interval(five * 20):.2f}")

# %% [markdown]
# 3.76 ± 0.95, or 3.76 ± 0.14? Repeating a prompt tells more about that prompt and nothing about the next
# one. Five prompts are five observations. The narrow interval says where the average *of these five* is; the
# wide one, where the average of your traffic is.
#
# Tokens are repeats in disguise. We check it where the truth is known: every prompt gets an α of its own
# around 0.6, its 60 coins follow it, and 8 prompts make an experiment. A 95 % interval must cover 0.6 in 95 %
# of the experiments.

# %%
banner("simulated", seed=0, experiments=1_000, prompts=8, tokens=60)
random = np.random.default_rng(0)
covered = {"over prompts": 0, "over tokens": 0}
for _ in range(1_000):
    own_alpha = random.beta(6, 4, size=8)  # mean 0.6, spread 0.15
    coins = random.random((8, 60)) < own_alpha[:, None]
    intervals = {"over prompts": ratio_interval(coins.sum(axis=1), np.full(8, 60)),
                 "over tokens": mean_interval(coins.ravel())}
    for name, interval in intervals.items():
        covered[name] += interval.low <= 0.6 <= interval.high
for name, count in covered.items():
    print(f"{name:13} covers the truth in {count / 10:.0f} % of the experiments")

# %% [markdown]
# The interval over prompts keeps its promise. The one over tokens claims 95 % and delivers 56 %.
#
# On the real trace we do not know the truth, but we can split the data. Take the interval over the tokens of
# *one* prompt, and see how many other prompts of its route have their own mean inside.

# %% tags=["nbval-ignore-output"]
inside = total = 0
for _, rows in sampled.rows.groupby("route"):
    texts = [group.overlap.to_numpy() for _, group in rows.groupby("prompt")]
    for i, tokens_of_one in enumerate(texts):
        low, high = mean_interval(tokens_of_one)[1:]
        means = [text.mean() for j, text in enumerate(texts) if j != i]
        inside, total = inside + sum(low <= mean <= high for mean in means), total + len(means)
print(f"{inside} of {total} other prompts lie inside the interval of one prompt's tokens")

# %% [markdown]
# If tokens were independent, most of them would be inside. The other mean has an error of the same size, so their
# difference has √2 times that error, and |z| < 1.96/√2 happens about five times in six. What is missing is the difference between prompts, and no number of
# tokens from one prompt shows it.

# %% [markdown]
# **Exercise 4.3** · medium · 7 minutes. `texts` is a list of arrays, one a prompt, each with min(1, q/p) at
# every token. Prompts differ in length. Return mean and interval of α, as `ratio_interval` gives them.

# %% tags=["exercise"]
def alpha_interval(texts):
    # solution
    return ratio_interval([text.sum() for text in texts], [len(text) for text in texts])
    # end


check(alpha_interval)

# %% [markdown] tags=["hints"]
# - One pair of numbers a prompt: what it adds to the numerator, and what it adds to the denominator.
# - The numerator is the sum of its chances, the denominator its number of tokens.

# %% [markdown]
# ## One run, counted
#
# So far the draft never drafted. Now the real decoder: k = 5, temperature 1, the JSON prompts. It keeps a row
# for every round.

# %% tags=["nbval-ignore-output"]
K = 5
json_prompts = load_prompts(["json"], limit=8)
run = decode(pair, [pair.encode(prompt.messages) for prompt in json_prompts], k=K, max_new_tokens=64,
             sampling=Sampling(1.0), generator=torch.Generator(pair.device).manual_seed(0))
rounds = run.rounds
banner("live", pair=pair.name, route="json", prompts=len(json_prompts), k=K, rounds=len(rounds))
rounds.drop(columns="proposed").head(8)

# %% [markdown]
# `accepted` counts the drafts before the first rejection. `emitted` is one more, the target's own token.
#
# Two kinds of rounds are special. The last round of a text may draft fewer than k. And if the text *ends*
# inside the accepted drafts, no token of the target's follows: emitted equals accepted, and nothing was
# rejected either.

# %% tags=["nbval-ignore-output"]
ended = rounds.emitted == rounds.accepted
rejected = (rounds.accepted < rounds.drafted) & ~ended
print(f"{len(rounds)} rounds: {rejected.sum()} with a rejection, {(rounds.drafted < K).sum()} drafted fewer than {K}, "
      f"{ended.sum()} ended inside accepted drafts")

# %% [markdown]
# **Exercise 4.4** · easy · 5 minutes. You are given `drafted`, `accepted` and `emitted`, three lists with one
# number a round. Return the **prefix acceptance rate** and the **tokens per round** of the whole run.

# %% tags=["exercise"]
def prefix_rate_and_tokens(drafted, accepted, emitted):
    # solution
    return sum(accepted) / sum(drafted), sum(emitted) / len(emitted)
    # end


check(prefix_rate_and_tokens)

# %% [markdown] tags=["hints"]
# - Both are quotients of sums. Add up first, divide once: a round that drafted little must not weigh as much
#   as a full one.
# - Prefix rate: accepted ÷ drafted. Tokens per round: emitted ÷ number of rounds.

# %% [markdown]
# Two rates of the run as a whole, then. A third: of the drafts that were *judged*, how many were accepted?
# A round judges its accepted drafts and the rejected one, if there is one. What lies behind was never looked at.

# %% tags=["nbval-ignore-output"]
by_prompt = rounds.assign(judged=rounds.accepted + rejected, rounds=1).groupby("row")[
    ["rounds", "drafted", "judged", "accepted", "emitted"]].sum()
prefix = ratio_interval(by_prompt.accepted, by_prompt.drafted)
hazard = ratio_interval(by_prompt.accepted, by_prompt.judged)
tokens_per_round = ratio_interval(by_prompt.emitted, by_prompt.rounds)
print(f"accepted ÷ drafted  {prefix:.3f}\naccepted ÷ judged   {hazard:.3f}\nemitted ÷ rounds    {tokens_per_round:.3f}")

# %% [markdown]
# Same run, same accepted drafts. The first two differ only in what they divide by. **Accepted ÷ judged
# estimates α; accepted ÷ drafted does not**, because a rejection drags all later drafts into its denominator.

# %% [markdown]
# ## Position by position
#
# In a round the drafts stand at positions 1 to k. Engines print a rate for each. There are two:
#
# - **unconditional**: accepted at position i ÷ *all rounds*;
# - **conditional**: accepted at position i ÷ rounds that *got there*.

# %% [markdown]
# **Exercise 4.5** · medium · 8 minutes. `accepted` is a list with one number a round, each round drafted k, no
# text ended early, and every position was reached. Return the list of the k *conditional* rates.

# %% tags=["exercise"]
def conditional_rates(accepted, k):
    # solution
    rates = []
    for position in range(1, k + 1):
        reached = sum(count >= position - 1 for count in accepted)
        passed = sum(count >= position for count in accepted)
        rates.append(passed / reached)
    return rates
    # end


check(conditional_rates)

# %% [markdown] tags=["hints"]
# - A round accepts the draft at position i if it accepted at least i drafts.
# - The draft at position i is judged if all before it were accepted: at least i − 1 of them.

# %% tags=["nbval-ignore-output"]
def at_position(position):
    """Rounds of each prompt in which this position was judged, and in which it was accepted."""
    judged = (rounds.accepted + rejected >= position).groupby(rounds.row).sum()
    passed = (rounds.accepted >= position).groupby(rounds.row).sum()
    return judged, passed


positions = range(1, int((rounds.accepted + rejected).max()) + 1)  # up to k, or as far as any round got
conditional = [ratio_interval(passed, judged) for judged, passed in map(at_position, positions)]
unconditional = [ratio_interval(passed, by_prompt.rounds) for _, passed in map(at_position, positions)]

figure, axes = plt.subplots(figsize=(7, 4.8))
axes.errorbar(np.array(positions) - 0.06, [i.mean for i in conditional], [i.half_width for i in conditional],
              marker="o", capsize=4, label="conditional: ÷ rounds that got there")
axes.errorbar(np.array(positions) + 0.06, [i.mean for i in unconditional], [i.half_width for i in unconditional],
              marker="s", capsize=4, label="unconditional: ÷ all rounds")
axes.axhline(hazard.mean, linestyle=":", color="black", marker="", label=f"accepted ÷ judged, {hazard.mean:.2f}")
axes.axhline(prefix.mean, linestyle="-.", color="black", marker="", label=f"accepted ÷ drafted, {prefix.mean:.2f}")
axes.set(xlabel="position in the round", ylabel="accepted", xticks=positions, ylim=(0, 1.05))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=10)
show(figure, f"""Acceptance at positions 1 to {len(positions)} of a round, JSON route, 95 % intervals over prompts. Conditional:
    {", ".join(f"{i.mean:.2f}" for i in conditional)}. Unconditional: {", ".join(f"{i.mean:.2f}" for i in unconditional)}.
    Dotted line, accepted per judged draft: {hazard.mean:.2f}. Dash-dotted line, accepted per drafted:
    {prefix.mean:.2f}, which is about the mean of the unconditional rates.""")

# %% [markdown]
# The unconditional rates can only fall: to be accepted at position 3, a round must be accepted at 2 first.
# The conditional ones would be flat if every draft had the same chance. The intervals grow to the right,
# since fewer and fewer rounds get there. (A point at 0 or 1 without a bar is not certain. So few rounds came that
# far that all ended alike.)
#
# Two bits of arithmetic connect the four numbers. The mean of the unconditional rates is the prefix rate, and
# 1 + their sum is tokens per round. (Both exactly so when every round drafts k and no text ends early.)

# %% tags=["nbval-ignore-output"]
unconditional_means = [i.mean for i in unconditional]
print(f"mean of the unconditional rates {sum(unconditional_means) / K:.3f}   prefix rate      {prefix.mean:.3f}")
print(f"1 + their sum                   {tokens_from_unconditional(unconditional_means):.3f}   tokens per round {tokens_per_round.mean:.3f}")
print("conditional, converted:", conditional_from_unconditional(unconditional_means).round(3))
print("conditional, counted:  ", np.array([i.mean for i in conditional]).round(3))

# %% [markdown]
# Small differences come from the short last rounds. Converting divides by all rounds, so a draft that a short round
# never made counts as rejected. Counting leaves it out.

# %% [markdown]
# ## The ledger
#
# Here is the run under every name, also those from the beginning: `score_trace` scores the text that this run
# wrote. The column "promises" takes each number for α and asks the formula for tokens per round, as a reader of
# a log might. The run itself is the judge.

# %% tags=["nbval-ignore-output"]
own = score_trace(pair, json_prompts, run.tokens, Sampling(1.0)).rows


def converted(interval, convert, least):
    """Mean and both ends, each converted to α."""
    return Interval(*(convert(max(end, least), K) for end in interval))


entries = {
    "Σ min(p, q) along the text": rate(own, own.overlap),
    "min(1, q/p) along the text": rate(own, own.accept),
    "accepted ÷ judged": hazard,
    "position 1 alone": conditional[0],
    "α behind the tokens per round": converted(tokens_per_round, alpha_from_tokens, least=1),
    "α behind the prefix rate": converted(prefix, alpha_from_prefix_rate, least=0),
    "prefix rate (accepted ÷ drafted)": prefix,
    f"position {len(positions)} alone, unconditional": unconditional[-1],
}
ledger = pd.DataFrame({"value": [f"{value:.3f}" for value in entries.values()]}, index=entries)
ledger["taken for α, promises"] = [expected_tokens(value.mean, K) for value in entries.values()]
ledger["off by"] = ledger["taken for α, promises"] - tokens_per_round.mean
print(f"counted: {tokens_per_round:.2f} tokens per round")
ledger.round(3)

# %% [markdown]
# The upper rows are estimates of α; compare their promises with the count and its interval. "α behind the tokens per
# round" hits it by construction. The two lowest rows are no α: take them for it, and you promise far too little.
#
# The estimates of α need not be equal. They weigh places differently: the text as a whole, the drafts that were
# judged, the first draft of each round. If α were the same everywhere that would not matter. Notebook 06
# looks at how much it does.

# %% [markdown]
# ## A counter that counts too much
#
# What if a counter judges *every* position of a round, also those behind a rejection? We can do it: the decoder
# kept what was proposed, and we know the final text.

# %% tags=["nbval-ignore-output"]
flags = [[token == written for token, written in zip(proposed, run.tokens[row][start:], strict=False)]
         for row, start, proposed in zip(rounds.row, rounds.start, rounds.proposed, strict=True)]
for one in flags[:6]:
    print("".join("+" if flag else "-" for flag in one))

# %% tags=["nbval-ignore-output"]
everywhere = sum(map(sum, flags))
compared = sum(map(len, flags))
emitted = int(rounds.emitted.sum())
print(f"accepted {int(rounds.accepted.sum())}, matches anywhere {everywhere}")
print(f"rate over every position:  {everywhere / compared:.3f}   (accepted ÷ judged {hazard.mean:.3f})")
print(f"1 + matches ÷ rounds:      {1 + everywhere / len(rounds):.3f}   (emitted ÷ rounds {tokens_per_round.mean:.3f})")
print(f"matches + rounds = {everywhere + len(rounds)} against {emitted} tokens in the text")

# %% [markdown]
# A `+` behind a `-` is a word that turned up at the right place by luck. It was thrown away with the rest of
# its round, and drafted again. Counting it promises tokens that were never emitted, and as a rate it is not α
# either: behind a rejection the draft goes on from a wrong word.
#
# The last line is how to catch it. **Accepted + rounds must be the number of emitted tokens** (less the few
# rounds that ended inside their drafts). A counter that fails this is counting something else.
#
# With coins the bias is exact, so we can see its size without a model.

# %%
banner("simulated", seed=1, prompts=200, rounds="50 each", k=5, alpha=0.6)
coins = np.random.default_rng(1).random((200, 50, 5)) < 0.6
kept = coins.cumprod(axis=2).sum(axis=2)  # before the first rejection
true_tokens = mean_interval((1 + kept).mean(axis=1))
all_flags = mean_interval((1 + coins.sum(axis=2)).mean(axis=1))
print(f"tokens per round, formula   {expected_tokens(0.6, 5):.3f}")
print(f"prefix counted              {true_tokens:.3f}")
print(f"every position counted      {all_flags:.3f}")

# %% [markdown]
# 4 tokens instead of 2.38. And yet the share of heads over *all* positions is 0.6, which is α: for coins that
# owe nothing to each other, a counter like this is a fair estimate of α and a bad one of tokens per round.
# An engine has done just that.

# %% [markdown]
# ## Numbers from the wild
#
# Five public reports. First the one that every log has: k = 5, 260 drafted, 208 accepted
# ([llama.cpp, issue 3649](https://github.com/ggml-org/llama.cpp/issues/3649)).

# %%
print(f"counted:          {1 + 208 / (260 / 5):.2f} tokens per round")
print(f"0.80 taken for α: {expected_tokens(0.80, 5):.2f}")
print(f"α behind it:      {alpha_from_prefix_rate(208 / 260, 5):.4f}")

# %% [markdown]
# α is 0.9265, not 0.80. Next, eight rates by position, printed by vLLM
# ([pull request 48892](https://github.com/vllm-project/vllm/pull/48892)).

# %%
printed = [0.7617, 0.6158, 0.5125, 0.4243, 0.3640, 0.3094, 0.2722, 0.2365]
print(f"unconditional: {tokens_from_unconditional(printed):.2f} tokens per round")
print(f"read as conditional: {1 + np.cumprod(printed).sum():.2f}")
print("the conditional rates:", conditional_from_unconditional(printed).round(3))

# %% [markdown]
# vLLM divides by all rounds. Who multiplies the printed rates once more gets 2.63 tokens instead of 4.50, and
# concludes that the draft gets worse with depth. The conditional rates say the opposite: they rise. Not because
# the draft warms up, but because rounds that get far are rounds in easy text.
#
# Third, a request's histogram: how many rounds accepted 0, 1, 2, 3 drafts.

# %% [markdown]
# **Exercise 4.6** · medium · 6 minutes. Entry n of `histogram` is the number of rounds that accepted exactly n
# drafts; k is the last n. Return rounds, accepted, drafted, prefix rate and tokens per round, in this order.

# %% tags=["exercise"]
def from_histogram(histogram):
    # solution
    k = len(histogram) - 1
    rounds = sum(histogram)
    accepted = sum(n * count for n, count in enumerate(histogram))
    drafted = k * rounds
    return rounds, accepted, drafted, accepted / drafted, 1 + accepted / rounds
    # end


check(from_histogram)

# %% [markdown] tags=["hints"]
# - Four entries stand for 0, 1, 2, 3 accepted. What is k?
# - The entry for n = 0 counts rounds, too: they drafted k tokens and emitted one.

# %% [markdown]
# The package reads it the same way:

# %%
counts = counts_from_histogram([39, 1, 0, 3])
print(counts)
print(f"prefix rate {counts.prefix_rate:.4f}   tokens per round {counts.tokens_per_round:.4f}")

# %% [markdown]
# Fourth: a draft length that varies. A llama.cpp server with k = 3 reports 87 rounds, 259 drafted, 167 accepted
# ([pull request 24536](https://github.com/ggml-org/llama.cpp/pull/24536)). 3 · 87 is 261, so some round drafted fewer.

# %%
print(f"tokens per round {1 + 167 / 87:.4f}   prefix rate {167 / 259:.4f}   with k · rounds below: {167 / 261:.4f}")

# %% [markdown]
# Tokens per round need only rounds and accepted, so they stay right. A rate over drafted tokens shifts a
# little here, and a lot where the draft length is chosen anew each round.
#
# Last, vLLM's first generation ([issue 7301](https://github.com/vllm-project/vllm/issues/7301)): k = 4, 53,716 drafted, 32,594 accepted, 34,244 emitted.

# %% [markdown]
# **Exercise 4.7** · medium · 8 minutes. Return tokens per round and the *prefix* acceptance rate behind such a
# line. Every round drafted k. Check the counter before you trust it: accepted + rounds should be emitted. If it is not,
# trust `drafted` and `emitted`.

# %% tags=["exercise"]
def from_v0(k, drafted, accepted, emitted):
    # solution
    rounds = drafted / k
    prefix_accepted = emitted - rounds  # each round emits its accepted drafts and one more
    return emitted / rounds, prefix_accepted / drafted
    # end


check(from_v0)

# %% [markdown] tags=["hints"]
# - How many rounds are 53,716 drafts at 4 a round? Do accepted and rounds add up to emitted?
# - They do not: this counter also counts what lay behind a rejection. The emitted tokens are in the text and
#   can be trusted. Take one a round away from them.

# %%
counts, note = counts_from_v0(k=4, drafted=53716, accepted=32594, emitted=34244)
print(f"tokens per round {counts.tokens_per_round:.4f}   prefix rate {counts.prefix_rate:.4f}")
print(note)

# %% [markdown]
# The line printed an acceptance rate of 0.607. It is an estimate of α, as with the coins above. Had it been a
# prefix rate, tokens per round would be 3.43; the text says 2.55. **The same words, in two versions of one
# engine, name two definitions.** The arithmetic tells them apart, the name does not.

# %% [markdown]
# ## Which to report
#
# - **Tokens per round, with its k**: the number that speed follows from. All definitions lead to it.
# - **α from accepted ÷ judged** (or from the overlap): to compare drafts, or runs at different k.
# - **A prefix rate only with its k**; better, convert it.
# - Each with an interval over prompts, the number of prompts, and the temperature.

# %% [markdown]
# ## Quiz

# %%
quiz("4.a")

# %%
quiz("4.b")

# %%
quiz("4.c")

# %%
quiz("4.d")

# %%
quiz("4.e")

# %%
quiz("4.f")

# %% [markdown]
# ## Recap
#
# - Σ min(p, q), known before the token, and min(1, q/p) of the target's own token have the same mean, α.
#   On the target's text the ratio is q/p; min(1, p/q) belongs to the draft's tokens.
# - Greedy agreement is α at temperature 0. A greedy draft at temperature 1 has yet another rate, p of its favourite.
# - Prefix rate = accepted ÷ drafted. α = accepted ÷ judged. Unconditional rates divide by all rounds, conditional
#   ones by the rounds that got there. Tokens per round = 1 + the sum of the unconditional rates.
# - Accepted + rounds = emitted. If not, the counter counts what lies behind a rejection.
# - The unit is the prompt. An interval over tokens is too narrow, and nothing in it tells you.
#
# **Next.** All this was one k. Must every k be decoded by itself? Notebook 05 needs one pass for all of them.
