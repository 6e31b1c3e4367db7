# %% [markdown]
# # 05 · One pass, every k
#
# - **You will do:** turn a text that the target wrote into a row of coins, replay rounds on it for any k,
#   and check the result against the real decoder at six values of k.
# - **You will learn:** why one scoring pass answers every k, how the replay works, and two ways of reading
#   the same data that look right and are not.
# - **You need:** notebook 04 (min(1, q/p) and what an interval is over). No GPU.
# - **Minutes:** 60

# %% [markdown]
# The plain way to choose k is to try: decode all prompts with k = 1, then 2, then 3 … Each try takes as long
# as serving the traffic, and every one is needed again for the next draft.
#
# There is a shorter way. Let the target write once, let the draft *read* the text once, and the yield of
# every k follows, including those nobody ran. This notebook derives that, and then tries hard to break it.

# %%
import os
import time
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from course_lib.course import notebook
from course_lib.intervals import mean_interval, ratio_difference, ratio_interval
from course_lib.pairs import load_pair
from course_lib.plots import banner, show, style
from course_lib.prompts import ROUTES, load_prompts
from course_lib.replay import expected_rounds, position_rates, replay_rounds, tokens_per_round
from course_lib.sampling import GREEDY, Sampling
from course_lib.simulate import rounds_along_text
from course_lib.speculate import decode
from course_lib.theory import expected_tokens
from course_lib.traces import measure_trace, score_trace

check, quiz = notebook("05")
style()
banner("simulated", seeds="fixed, in each cell")

# %% [markdown]
# ## The coin of a token
#
# Take one place in a text, and a round that drafts it. The token x ends up there with chance p(x): that is
# what speculative decoding guarantees (notebook 01). There are two ways it gets there.
#
# - The draft proposed x and it was accepted: chance q(x) · min(1, p(x)/q(x)) = min(p(x), q(x)).
# - Something was rejected and x is the replacement: the rest.
#
# So **of all the times x stands here, the share**
#
# $$a = \frac{\min(p(x), q(x))}{p(x)} = \min\!\Big(1, \frac{q(x)}{p(x)}\Big)$$
#
# **was drafted and accepted.** Turn it round: once the text is known, the place holds a coin that shows heads
# with chance a. We run the round's rule 200,000 times on a toy and count.

# %%
p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.4, 0.4])
random = np.random.default_rng(0)
draft = random.choice(3, size=200_000, p=q)
accepted = random.random(200_000) < np.minimum(1, p / q)[draft]
rest = np.maximum(p - q, 0)
token = np.where(accepted, draft, random.choice(3, size=200_000, p=rest / rest.sum()))

pd.DataFrame({
    "p": p,
    "share of texts": [np.mean(token == x) for x in range(3)],
    "min(1, q/p)": np.minimum(1, q / p),
    "of these, accepted": [accepted[token == x].mean() for x in range(3)],
}).round(3)

# %% [markdown]
# The first two columns agree: the text follows p. So do the last two: the coin is right. Token 0 is the one the
# draft underrates; three times in five, where it stands, it is a correction.
#
# Two properties make the coins useful.
#
# - **They do not depend on k**, nor on where the round began. p and q at a place depend on the text before it
#   alone.
# - **Given the text they are independent.** Token x stands at its place as an accepted draft with chance p(x)·a, or as a
#   correction with chance p(x)·(1 − a). The chance of a text *and* its coins is the product of such factors along it. No
#   factor contains an earlier coin, since what comes next depends on the text so far, not on who wrote it. Divide by
#   the chance of the text, the product of the p(x), and what is left is a product of a's and (1 − a)'s.
#
# So a text of T tokens is a row of T coins with known chances a₁ … a_T. At temperature 0 the chances are 0 or
# 1: does the draft's favourite equal the token?

# %% [markdown]
# **Exercise 5.1** · easy · 4 minutes. A *greedy* draft proposes its favourite, and the target samples at
# temperature 1. The text has `token` at this place; `p` and `q` are the laws there. What is the coin's chance?

# %% tags=["exercise"]
def greedy_coin(token, p, q):
    # solution
    return 1.0 if token == np.argmax(q) else 0.0
    # end


check(greedy_coin)

# %% [markdown] tags=["hints"]
# - The q in min(1, q/p) must be the law the draft was drawn from. Which law draws the favourite every time?
# - That law has all its mass on one token. Put it in for q: the coin is min(1, 1/p) for that token, and
#   min(1, 0/p) for any other.

# %% [markdown]
# ## Three tokens by hand
#
# Let a text have three tokens with the coins 0.9, 0.5, 0.8, and let k = 2. How many rounds write it, on
# average? First the long way: all eight ways the coins can fall.

# %%
chances, k = [0.9, 0.5, 0.8], 2
rows, total = [], 0.0
for coins in product([True, False], repeat=3):
    chance = np.prod([a if heads else 1 - a for a, heads in zip(chances, coins, strict=True)])
    rounds = rounds_along_text(coins, k)
    total += chance * len(rounds.emitted)
    rows.append({"coins": "".join("+" if heads else "-" for heads in coins), "chance": chance,
                 "rounds": len(rounds.emitted), "tokens of each": " + ".join(map(str, rounds.emitted))})
print(f"expected rounds {total:.3f}   tokens per round {3 / total:.3f}")
pd.DataFrame(rows).set_index("coins").round(3)

# %% [markdown]
# Look at `++-`: one round. Two drafts are accepted, and the third token is the bonus. Its coin is never looked
# at, so it does not matter that it shows tails.
#
# Now the short way, from the end. Let V(t) be the rounds still needed when one starts at place t, counted from
# 0. At the end nothing is needed: V(3) = 0. With one token left it takes one round: V(2) = 1. Then
#
# - **V(1)** = 1 + 0.5 · V(2) = 1.5. Tails at place 1: the round emits the correction, the next starts at 2. Heads:
#   the last token follows in the same round, as a draft or as its correction.
# - **V(0)** = 1 + 0.1 · V(1) + 0.9 · 0.5 · V(2) + 0.9 · 0.5 · V(3) = 1 + 0.15 + 0.45 + 0 = 1.6. Tails at once; heads
#   then tails; two heads and the bonus.
#
# 1.6, as above.

# %% [markdown]
# **Exercise 5.2** · easy · 5 minutes. The brute-force way needs a player. Given the coins of one text (True for
# heads), how many rounds of k drafts write it?

# %% tags=["exercise"]
def count_rounds(coins, k):
    # solution
    t, rounds = 0, 0
    while t < len(coins):
        accepted = 0
        while accepted < k and t + accepted < len(coins) and coins[t + accepted]:
            accepted += 1
        t += accepted + 1  # the accepted drafts, and the correction or the bonus
        rounds += 1
    return rounds
    # end


check(count_rounds)

# %% [markdown] tags=["hints"]
# - Keep the place t where the round starts. Count heads from there, at most k, and not past the end.
# - The next round starts after the accepted drafts *and one more token*, whether that one was a correction or the
#   bonus.

# %% [markdown]
# **Exercise 5.3** · medium · 6 minutes. By hand: the same three coins, 0.9, 0.5, 0.8, and **k = 1**. How many
# rounds on average?

# %% tags=["exercise"]
# solution
v2 = 1.0
v1 = 1 + 0.5 * v2 + 0.5 * 0
rounds_k1 = 1 + 0.1 * v1 + 0.9 * v2
# end

check(rounds_k1, "rounds_k1")

# %% [markdown] tags=["hints"]
# - With k = 1 a round ends in one of two ways: tails, and the next round starts one place on; heads and the
#   bonus, and it starts two places on.
# - V(3) = 0 and V(2) = 1. V(1) = 1 + 0.5 · V(2) + 0.5 · V(3). One line is left.

# %% [markdown]
# ## The recursion
#
# The same for any text and any k. A round at t accepts exactly j drafts if j coins show heads and the next tails;
# then a round starts at t + j + 1. If all k show heads, it starts at t + k + 1.
#
# $$V(t) = 1 + \sum_{j<k} \Big(\prod_{i<j} a_{t+i}\Big)\,(1 - a_{t+j})\;V(t+j+1) \;+\; \Big(\prod_{i<k} a_{t+i}\Big)\,V(t+k+1)$$
#
# with V = 0 from the end of the text on. (There are no coins there, and none are needed: they would be multiplied by 0.)
# **Tokens per round are T / V(0).**

# %% [markdown]
# **Exercise 5.4** · hard · 12 minutes. Write it: the expected rounds of a text with chances `accept` and k drafts
# a round.

# %% tags=["exercise"]
def rounds_needed(accept, k):
    # solution
    end = len(accept)
    value = [0.0] * (end + k + 2)  # zeros past the end, so that looking there is harmless
    for t in range(end - 1, -1, -1):
        here, run = 1.0, 1.0  # run: all drafts so far accepted
        for j in range(min(k, end - t)):
            here += run * (1 - accept[t + j]) * value[t + j + 1]
            run *= accept[t + j]
        value[t] = here + run * value[t + k + 1]
    return value[0]
    # end


check(rounds_needed)

# %% [markdown] tags=["hints"]
# - Go backwards: `for t in range(len(accept) - 1, -1, -1)`. Then all the V you need are already there.
# - At each t keep `run`, the chance that all drafts so far were accepted. Rejected at j: run · (1 − a) · V(t+j+1).
#   After the loop: run · V(t+k+1), one more than k for the bonus.
# - A list of zeros longer than the text by k + 2 saves every check for the end of V. For the coins, stop j at the last token.

# %% [markdown]
# `expected_rounds` in the package does this. Against all 1,024 falls of ten coins:

# %%
ten = np.random.default_rng(3).beta(3, 1, size=10)
outcomes = list(product([True, False], repeat=10))
weights = np.where(outcomes, ten, 1 - ten).prod(axis=1)
rows = []
for k in (1, 2, 3, 4, 5, 8):
    brute_force = weights @ [len(rounds_along_text(coins, k).emitted) for coins in outcomes]
    rows.append({"k": k, "brute force": brute_force, "recursion": expected_rounds(ten, k)})
table = pd.DataFrame(rows).set_index("k")
print("equal to 12 digits:", np.allclose(table["brute force"], table.recursion, rtol=1e-12))
table.round(4)

# %% [markdown]
# Equal. So *if* the coins are right, the replay is. Whether they are right for a real decoder is another question.

# %% [markdown]
# ## Live: one trace
#
# **Claim.** From one scoring pass over the target's own text, the replay gives the tokens per round of the real
# decoder at every k.
#
# The target answers the prompts, and its laws are kept; the draft reads the answers; and every token gets its coin,
# `accept`. We take short prompts, because below the decoder has to read them once for each k.

# %% tags=["nbval-ignore-output"]
KS = [1, 2, 3, 4, 5, 8]
NEW = 24
pair = load_pair(os.environ.get("COURSE_PAIR", "smol"))


def short(route, n):
    """The route's first n held-out prompts of at most 90 tokens."""
    return [prompt for prompt in load_prompts([route]) if len(pair.encode(prompt.messages)) <= 90][:n]


json_prompts, other_prompts = short("json", 6), short("chat", 4) + short("code", 4)

started = time.perf_counter()
trace = measure_trace(pair, json_prompts, Sampling(1.0), new_tokens=NEW, seed=1)
trace_seconds = time.perf_counter() - started
others = measure_trace(pair, other_prompts, Sampling(1.0), new_tokens=NEW, seed=1)

banner("live", pair=pair.name, device=pair.device, dtype=str(pair.dtype).removeprefix("torch."), temperature=1,
       prompts=len(json_prompts) + len(other_prompts), tokens=len(trace.rows) + len(others.rows))
trace.rows[["prompt", "t", "token", "logp", "logq", "accept"]].head(6).round(3)

# %% tags=["nbval-ignore-output"]
replayed = tokens_per_round([trace, others], KS)
replayed.assign(tokens_per_round=[f"{mean:.2f} ± {high - mean:.2f}" for mean, high in replayed[["mean", "high"]].to_numpy()]
                ).pivot(index="route", columns="k", values="tokens_per_round")

# %% [markdown]
# Eighteen numbers, and the decoder has not run yet. Intervals are over prompts, as everywhere.

# %% [markdown]
# ## Temperature 0: round for round
#
# At temperature 0 no coin is left to chance. Then the replay must not be right on average but **exactly**: the same
# rounds, in the same order, with the same tokens in each. One prompt of each route and three values of k will do.

# %% tags=["nbval-ignore-output"]
some = [short(route, 1)[0] for route in ROUTES]
at_zero = measure_trace(pair, some, GREEDY, new_tokens=NEW)
encoded = [pair.encode(prompt.messages) for prompt in some]
rows = []
for k in (1, 4, 8):
    run = decode(pair, encoded, k=k, max_new_tokens=NEW, sampling=GREEDY)
    same_text = same_rounds = 0
    for row, (accept, text) in enumerate(zip(at_zero.accepts(), at_zero.column("token"), strict=True)):
        emitted = run.rounds.emitted[run.rounds.row == row].tolist()
        same_text += run.tokens[row] == text.tolist()
        same_rounds += emitted == rounds_along_text(accept == 1, k).emitted.tolist()
    rows.append({"k": k, "prompts": len(some), "same text": same_text, "same rounds": same_rounds,
                 "replay": len(at_zero.rows) / replay_rounds(at_zero.accepts(), [k]).sum(), "decoder": run.tokens_per_round()})
pd.DataFrame(rows).set_index("k").round(3)

# %% [markdown]
# Every prompt should have the same rounds at every k, and the last two columns should be equal, not similar.
#
# If "same text" is one short somewhere, two tokens of the target were so close that rounding decided between
# them: five tokens are read in another order of additions than one. From there on it is another text, and its
# rounds have every right to differ. (A near-tie of the draft's can change a round and leave the text alone.) In float32
# both are rare; in bfloat16 they are not.

# %% [markdown]
# ## Temperature 1: within the interval
#
# Now the decoder writes another text each time, so only averages can agree. Both sides have an interval. For the
# difference we pair them by prompt: what makes a prompt easy is the same on both sides, and drops out.

# %% tags=["nbval-ignore-output"]
encoded = [pair.encode(prompt.messages) for prompt in json_prompts]
runs = {k: decode(pair, encoded, k=k, max_new_tokens=NEW, sampling=Sampling(1.0),
                  generator=torch.Generator(pair.device).manual_seed(100 + k)) for k in KS}

lengths = np.array([len(accept) for accept in trace.accepts()])
expected = replay_rounds(trace.accepts(), KS)
rows = []
for column, k in enumerate(KS):
    per_prompt = runs[k].rounds.groupby("row").emitted.agg(["sum", "count"])
    replay, decoder = (lengths, expected[:, column]), (per_prompt["sum"], per_prompt["count"])
    gap = ratio_difference(decoder, replay)
    rows.append({"k": k, "replay": ratio_interval(*replay), "decoder": ratio_interval(*decoder), "difference": gap,
                 "0 inside": gap.low <= 0 <= gap.high})
compared = pd.DataFrame(rows).set_index("k")
blind = max(gap.half_width for gap in compared.difference)
print(f"{len(encoded)} prompts of at most {NEW} new tokens: a bias below {blind:.2f} tokens per round could hide at some k")
compared[["replay", "decoder"]].map("{:.2f}".format).assign(
    difference=compared.difference.map("{:+.2f}".format), **{"0 inside": compared["0 inside"]})

# %% tags=["nbval-ignore-output"]
curve = tokens_per_round([trace, others], range(13))
decoded = compared.decoder
figure, panels = plt.subplots(1, len(ROUTES), figsize=(10, 4), sharey=True)
notes = []
for axes, route in zip(panels, ROUTES, strict=True):
    one = curve[curve.route == route]
    axes.plot(one.k, one["mean"], label="replay")
    axes.fill_between(one.k, one.low, one.high, color="C0", alpha=0.15, linewidth=0)
    if route == "json":
        axes.errorbar(decoded.index, [i.mean for i in decoded], [i.half_width for i in decoded], linestyle="none", marker="D",
                      markersize=8, markerfacecolor="white", color="black", capsize=4, label="decoder", zorder=5)
        axes.legend(loc="lower right", fontsize=11)
    axes.set(title=route, xlabel="k, drafts per round", xticks=range(0, 13, 4))
    at = one.set_index("k")["mean"]
    notes.append(f"{route} {at[1]:.2f} at k 1, {at[4]:.2f} at k 4, {at[12]:.2f} at k 12")
panels[0].set(ylabel="tokens per round", ylim=(0.9, None))  # of all: they share it
show(figure, f"""Three panels, a route each: tokens per round against k from 0 to 12 at temperature 1, replayed from one scoring pass,
    with 95 % bands over prompts: {"; ".join(notes)}. Diamonds: the real decoder on the JSON prompts, {", ".join(
    f"{interval.mean:.2f} at k {k}" for k, interval in decoded.items())}; {int(compared["0 inside"].sum())} of {len(KS)}
    agree with the replay within the interval of the difference.""")

# %% [markdown]
# The curves come from one pass and have a value at every k. The diamonds took a run each.
#
# How sharp is this test? Not very: so few prompts leave wide intervals, and the line above the table says what would
# hide in them. (One in twenty intervals misses by chance even if all is right. And all six share one replayed text, so
# they tend to lie to the same side.) There is a sharper one.

# %% [markdown]
# ## The same text on both sides
#
# Most of that noise comes from the *texts*: each run wrote its own. So take the texts that the six runs wrote, score
# exactly those, and replay each at the k of its run. What is left is the coins. And once the texts are given, the coins
# of two texts owe nothing to each other, even if both answer the same prompt: here each *text* is an observation.
#
# **It could have failed.** Score the same texts as if they had been decoded otherwise: take the test that the decoder
# applies to *drafts*, min(1, p/q), for the coin; or take the coin of a greedy draft.

# %% tags=["nbval-ignore-output"]
own = {k: score_trace(pair, json_prompts, runs[k].tokens, Sampling(1.0)) for k in KS}
for scored in own.values():
    scored.rows["mixed_up"] = np.exp(scored.rows.logp - scored.rows.logq).clip(upper=1)
counted = np.concatenate([runs[k].rounds.groupby("row").size() for k in KS])

rows, gaps = {}, {}
for name, column in {"min(1, q/p)": "accept", "min(1, p/q)": "mixed_up", "greedy draft's": "match"}.items():
    predicted = np.concatenate([replay_rounds([coins.astype(float) for coins in own[k].column(column)], [k])[:, 0] for k in KS])
    gaps[name] = gap = ratio_interval(counted - predicted, predicted)
    rows[name] = {"rounds expected": f"{predicted.sum():.1f}", "rounds counted": counted.sum(),
                  "off by": f"{100 * gap.mean:+.1f} % ± {100 * gap.half_width:.1f} %",
                  "": "0 is inside" if gap.low <= 0 <= gap.high else "0 is OUTSIDE"}
before = [gap.half_width / replay.mean for gap, replay in zip(compared.difference, compared.replay, strict=True)]
print(f"{len(counted)} texts: off by up to ± {100 * gaps['min(1, q/p)'].half_width:.1f} %; before, with another text on each side, "
      f"± {100 * min(before):.0f} to {100 * max(before):.0f} %")
caught = [name for name, gap in list(gaps.items())[1:] if not gap.low <= 0 <= gap.high]
print(f"wrong coins that this test catches: {', '.join(caught) or 'none'}")
pd.DataFrame(rows).T.rename_axis("coin")

# %% [markdown]
# Of the right coin zero should lie inside. (In one run of twenty it does not, by chance alone: decode again with other
# seeds.) A wrong coin is caught if its error exceeds the interval. Where one is not, the test was too blunt for it, or
# the coin is hardly wrong: with a draft whose favourite is nearly always what it would have drawn, the two drafts behave
# alike.

# %% [markdown]
# ## What it costs
#
# Both sides of the comparison were timed: one trace of the JSON prompts, and one decoding run for each k.

# %% tags=["nbval-ignore-output"]
per_k = pd.Series({k: run.seconds for k, run in runs.items()}, name="seconds")
print(f"one pass: {trace_seconds:.1f} s " + str({part: round(seconds, 1) for part, seconds in trace.meta["seconds"].items()}))
print(f"six runs: {per_k.sum():.1f} s " + str(per_k.round(1).to_dict()))
print(f"six runs cost {per_k.sum() / trace_seconds:.1f} times one pass")

# %% [markdown]
# In the braces are the parts of the pass: the target writes, its laws and the draft's are made into numbers, and for
# that the draft reads. Where a text of the target exists already, as in any log of answers sampled from it under the same
# settings, nobody writes: both models read. A second draft costs one more reading of the same text, and k = 12 costs nothing.
#
# What the pass does *not* give is time: how long a round takes must be measured (notebooks 03 and 08). It gives the
# yield.

# %% [markdown]
# **Exercise 5.5** · medium · 6 minutes. `texts` is a list of arrays, the chances a_t of each prompt. Return the
# tokens per round of all of them together. (`expected_rounds(accept, k)` is imported.)

# %% tags=["exercise"]
def tokens_of_all(texts, k):
    # solution
    return sum(len(accept) for accept in texts) / sum(expected_rounds(accept, k) for accept in texts)
    # end


check(tokens_of_all)

# %% [markdown] tags=["hints"]
# - A server's tokens per round is all tokens divided by all rounds.
# - A prompt with few rounds must not weigh as much as one with many: no mean of the prompts' own quotients. And the
#   prompts are separate texts: no round runs from one into the next, so do not join them.

# %% [markdown]
# ## Another decoder from the same trace
#
# The default of vLLM, SGLang and llama.cpp is a greedy draft. Its coin is in the trace as well: `match`. So the
# question "would a sampling draft yield more?" needs no run at all.

# %% tags=["nbval-ignore-output"]
rows = []
for name, column in {"sampling draft": "accept", "greedy draft": "match"}.items():
    rounds = replay_rounds([values.astype(float) for values in trace.column(column)], KS)
    rows.append(pd.Series([f"{ratio_interval(lengths, rounds[:, i]):.2f}" for i in range(len(KS))], index=KS, name=name))
pd.DataFrame(rows).rename_axis(columns="k")

# %% [markdown]
# Which of them leads depends on the pair. Neither changes what the target writes.
#
# And the counters an engine would print, per position, at a k that was not run:

# %% tags=["nbval-ignore-output"]
position_rates(trace.accepts(), k=6).set_index("position").round(3)

# %% [markdown]
# ## Trap 1: every place as the start of a round
#
# Why replay? At each place t one can ask at once: if a round started here, how long would it be? Average over all
# places, and no recursion is needed. It is tempting, and biased.
#
# We make the truth known. A text of easy runs, with coins of 0.97, and hard runs, with 0.70; a run goes on with
# chance 0.92 at each place. k = 8.

# %%
banner("simulated", texts=400, tokens="2,000 each", seed=0, k=8)


def sticky_text(n, random):
    """Chances a_t of a text that switches between an easy and a hard regime."""
    hard = np.cumsum(random.random(n) > 0.92) % 2
    return np.where((hard + random.integers(2)) % 2, 0.70, 0.97)


def every_place(accept, k):
    """Mean length of a round over all places as its start: the trap."""
    ahead = np.lib.stride_tricks.sliding_window_view(np.concatenate([accept, np.zeros(k)]), k)[: len(accept)]
    return float(1 + ahead.cumprod(axis=1).sum(axis=1).mean())


random = np.random.default_rng(0)
sticky = [sticky_text(2_000, random) for _ in range(400)]
coins = [rounds_along_text(random.random(2_000) < text, k=8) for text in sticky]
alpha = np.mean(sticky)
print(f"mean of a_t                 {alpha:.3f}")
print(f"coins tossed, rounds played {ratio_interval([2_000] * 400, [len(r.emitted) for r in coins]):.3f}")
print(f"replay                      {ratio_interval([2_000] * 400, replay_rounds(sticky, [8])[:, 0]):.3f}")
print(f"formula at the mean         {expected_tokens(alpha, 8):.3f}")
print(f"every place a start         {mean_interval([every_place(text, 8) for text in sticky]):.3f}")

# %% [markdown]
# The replay finds what the coins show, 4.62 and 4.63. The formula says 4.86. Every place as a start says 5.35: worse than
# no data at all but the mean. (For an endless text all three can be worked out exactly: 4.634, 4.865 and 5.362.)
#
# The reason: **rounds do not start just anywhere.** Most start right after a rejection, and rejections happen where
# the text is hard. The middle of an easy run is a place like any other in the average, but hardly ever the start of
# a round.

# %% [markdown]
# **Exercise 5.6** · easy · 5 minutes. A text at temperature 0 has the coins 1 1 1 1 1 1 0 0 0, and k = 6. Give two
# numbers: tokens per round by following the rounds, and the average that treats every place as a start (its round
# emits the heads from there on, and one more). Two decimals will do.

# %% tags=["exercise"]
# solution
following_rounds = 9 / 3  # rounds emit 7, 1 and 1 tokens
from_every_place = (7 + 6 + 5 + 4 + 3 + 2 + 1 + 1 + 1) / 9
answers = (following_rounds, from_every_place)
# end

check(answers, "answers")

# %% [markdown] tags=["hints"]
# - The first round accepts six drafts and emits seven tokens. Where does the second start?
# - A round that starts at the second place would accept five and emit six, at the third place five, and so on down.

# %% [markdown]
# ## Trap 2: multiplying overlaps
#
# The overlap Σ min(p, q) has the same mean as min(1, q/p), and is quieter (notebook 04). Why not multiply *that* along
# the text? A toy with two places answers exactly. At the first place, p = (0.5, 0.5) and q = (0.9, 0.1). After token
# A the next overlap is 0.9, after B it is 0.3: where the draft guessed well, it goes on guessing well.

# %%
p, q, next_overlap = np.array([0.5, 0.5]), np.array([0.9, 0.1]), np.array([0.9, 0.3])
both = np.minimum(p, q) @ next_overlap  # drafted x, accepted x, then accepted once more
print(f"two drafts accepted, exactly:          {both:.2f}")
print(f"along the text, min(1, q/p) x overlap: {p @ (np.minimum(1, q / p) * next_overlap):.2f}")
print(f"along the text, overlap x overlap:     {p @ (np.minimum(p, q).sum() * next_overlap):.2f}")

# %% [markdown]
# 0.48 is right and 0.36 is not. The text reaches B half of the time. A round with an accepted draft is past A in 45
# cases of 50, since A is what the draft proposes. **The next overlap must be weighed by which tokens drafts lead to**,
# and min(1, q/p), being high at A and low at B, does just that. The plain overlap is the same for both and cannot.

# %% [markdown]
# **Exercise 5.7** · medium · 8 minutes. Now *three* drafts in a row, exactly, for any laws. `p` and `q` are the laws at the
# first place. Row x of `p_next` and of `q_next` is the law at the second place, after token x. `last_overlap[x, y]` is the
# overlap at the third, after x and y.

# %% tags=["exercise"]
def three_accepted(p, q, p_next, q_next, last_overlap):
    # solution
    return float(np.sum(np.minimum(p, q)[:, None] * np.minimum(p_next, q_next) * last_overlap))
    # end


check(three_accepted)

# %% [markdown] tags=["hints"]
# - A token x is drafted *and* accepted with chance q(x) · min(1, p(x)/q(x)). The same holds for y at the second place, with the
#   laws after x.
# - Add up over all pairs x, y. `np.minimum(p, q)[:, None]` is a column, and multiplies row x of a matrix with its entry x.

# %% [markdown]
# ## The traps on the real trace
#
# All readings of the same JSON trace, side by side, and the decoder that really ran.

# %% tags=["nbval-ignore-output"]
rows = {}
for k in (1, 4, 8):
    overlaps = replay_rounds([values.astype(float) for values in trace.column("overlap")], [k])[:, 0]
    rows[k] = {
        "decoder, counted": compared.decoder[k].mean,
        "replay": compared.replay[k].mean,
        "formula at the mean α": expected_tokens(trace.rows.accept.mean(), k),
        "every place a start": np.average([every_place(a.astype(float), k) for a in trace.accepts()], weights=lengths),
        "replay of Σ min(p, q)": ratio_interval(lengths, overlaps).mean,
    }
readings = pd.DataFrame(rows).rename_axis(columns="k")
print(f"mean α {trace.rows.accept.mean():.3f};  half-width of the replay at k = 1, 4, 8: "
      + ", ".join(f"{compared.replay[k].half_width:.2f}" for k in (1, 4, 8)))
readings.round(3)

# %% tags=["nbval-ignore-output"]
figure, axes = plt.subplots()
names = list(readings.index)
for name, marker in zip(names[1:], ("o", "s", "^", "v"), strict=True):
    axes.plot(range(3), 100 * (readings.loc[name] / readings.loc["replay"] - 1), marker=marker, markersize=8, label=name)
axes.set(xticks=range(3), xticklabels=[f"k = {k}" for k in readings.columns], ylabel="% off the replay")
axes.legend(fontsize=11)
show(figure, "Four readings of one real trace, in per cent off the replay, at k 1, 4 and 8. " + "; ".join(
    f"{name}: " + ", ".join(f"{100 * (readings.loc[name, k] / readings.loc['replay', k] - 1):+.1f} %" for k in readings.columns)
    for name in names[2:]) + ".")

# %% [markdown]
# All read the same text, so most of the sampling noise is common to them, and the lines differ mainly by the reading.
# How far each is off, and to which side, depends on the pair, the route and k. The gap between the formula and the replay is the subject of
# notebook 06: it measures how far the coins are from equal.
#
# Do not let a small gap here persuade you of a trap. It costs no more to follow the rounds.

# %% [markdown]
# ## What one pass does not cover
#
# The coin rests on one rule: drafts are tested one by one, in a row, each with min(1, p/q), and p and q depend on the
# text alone. Where that fails, run the decoder.
#
# - **Trees.** Several drafts compete at a place; the chance that one of them is accepted is another formula.
# - **Block verification** decides over the drafts of a round together. It accepts more than the token-by-token rule.
# - **Typical acceptance** keeps what is likely enough, and changes the target's law.
# - **EAGLE and MTP drafts** read the target's hidden states. Within a round they must guess them, so q depends on how
#   far the round has come, not on the text alone.
# - **Text of somebody else.** An article, or an answer written at another temperature, is not distributed as p. The
#   coins of such a text are the coins of nobody's decoder.

# %% [markdown]
# ## Quiz

# %%
quiz("5.a")

# %%
quiz("5.b")

# %%
quiz("5.c")

# %%
quiz("5.d")

# %%
quiz("5.e")

# %%
quiz("5.f")

# %% [markdown]
# ## Recap
#
# - Given the target's text, a draft at place t is accepted with chance a_t = min(1, q/p) of the token that stands
#   there, independently. At temperature 0, or with a greedy draft, a_t is 0 or 1.
# - The coins do not depend on k. One scoring pass gives them; V(t), from the end backwards, turns them into expected
#   rounds; tokens per round are T / V(0), summed over prompts first.
# - At temperature 0 replay and decoder agree round for round. At temperature 1 they agree within intervals, and the
#   test is sharper on the same text.
# - Follow the rounds: not every place starts one. Multiply min(1, q/p), not overlaps.
# - Trees, block verification, EAGLE-like drafts and foreign text are outside.
#
# **Next.** The formula with the mean α was off, the replay was not. Notebook 06 asks why, and by how much.
