# %% [markdown]
# # 06 · When i.i.d. lies
#
# - **You will do:** take a recorded trace apart to see where acceptance differs, shuffle its coins to see what the
#   order does, and hold the formula against the replay at twelve values of k.
# - **You will learn:** why rates rise along a round though the draft gets no better, why the first position gets
#   worse as k grows, what one more parameter buys, and what trusting the formula costs.
# - **You need:** notebook 02 (the formula), 04 (conditional and unconditional rates) and 05 (coins and replay). No GPU.
# - **Minutes:** 80

# %% [markdown]
# The geometric formula of notebook 02 has one α. It rests on two assumptions, and their short name is *i.i.d.*:
#
# - **identically distributed**: every draft has the same chance, whatever the request and wherever in the text;
# - **independent**: what happened to one draft says nothing about the next.
#
# Real text keeps neither. The question is how much that matters, and for which decisions. It is easy to answer with
# "a lot" or "hardly". We measure, and keep a control beside each measurement: a world where i.i.d. holds.

# %%
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from course_lib.beta_geometric import fit_beta_geometric
from course_lib.costs import RoundCosts
from course_lib.course import notebook
from course_lib.intervals import ratio_difference, ratio_interval
from course_lib.plots import banner, show, style
from course_lib.recordings import recording
from course_lib.replay import position_rates, replay_rounds
from course_lib.simulate import rounds_along_text
from course_lib.theory import alpha_from_tokens, conditional_from_unconditional, expected_tokens
from course_lib.traces import Trace

check, quiz = notebook("06")
style()
KS = range(1, 13)

# %% [markdown]
# ## The recording
#
# The target of our pair answered the held-out prompts of three routes at temperature 1, and of each token is
# known what both models make of it (notebook 05). It has its coin, `accept`: the chance a_t that a draft in its place is accepted.

# %%
trace = Trace.load(recording("smol-t1.parquet"))


def source(trace):
    """What the banner says of a recorded trace."""
    facts = {name: trace.meta[name] for name in ("pair", "temperature", "machine", "date", "command")}
    return facts | {"answers": len(trace.accepts()), "tokens": len(trace.rows)}


banner("recorded", **source(trace))
rows, texts = trace.rows, trace.accepts()
lengths = np.array([len(text) for text in texts])
answers = rows.groupby(["route", "prompt"], sort=False).accept.agg(["mean", "sum", "size", "var"]).reset_index()
routes = answers.route.unique()
alpha = rows.accept.mean()
print(f"mean of all a_t: alpha = {alpha:.3f}")

# %% [markdown]
# ## Not identical, one: difficulty
#
# Before a token is written the target has a law p for it. Its *entropy* says how open the choice is, in *nats* (that is,
# with the natural logarithm): 0 when one token is certain, about 0.7 when it is a fair coin between two, 3 when some
# twenty are about equally good. We sort all tokens by it and cut them into fifths.

# %%
rows["fifth"] = pd.qcut(rows.entropy.rank(method="first"), 5, labels=range(1, 6)).astype(int)
medians = rows.groupby("fifth").entropy.median()

figure, axes = plt.subplots(figsize=(7.5, 4.6))
notes = []
for shift, (route, part) in zip((-0.08, 0, 0.08), rows.groupby("route", sort=False), strict=False):
    found = []
    for _, group in part.groupby("fifth"):
        sums = group.groupby("prompt").accept.agg(["sum", "count"])
        found.append(ratio_interval(sums["sum"], sums["count"]))
    axes.errorbar(np.arange(1, len(found) + 1) + shift, [i.mean for i in found], [i.half_width for i in found],
                  capsize=4, label=route)
    notes.append(f"{route} " + ", ".join(f"{i.mean:.2f}" for i in found))
axes.set(xticks=range(1, 6), xticklabels=[f"{m:.2f}" if m >= 0.005 else "<0.01" for m in medians], ylim=(0, 1),
         xlabel="entropy of the target, nats (medians of five equal groups)", ylabel="mean a_t")
axes.legend(ncols=3, loc="lower left")
show(figure, f"""Mean chance of acceptance by how open the target's choice is, in five groups of tokens with median entropy
    {", ".join(f"{m:.2f}" for m in medians)} nats; 95 % intervals over prompts. {"; ".join(notes)}.""")

# %% [markdown]
# At temperature 1 this small target keeps many tokens possible nearly everywhere, and draft and target can agree on a broad
# choice as well as on a narrow one. At temperature 0.3 it is surer. The two ends of the scale at both:

# %%
for cooler in (trace, Trace.load(recording("smol-t0.3.parquet"))):
    order = cooler.rows.entropy.rank(method="first", pct=True)
    easy, hard = cooler.rows[order <= 0.2], cooler.rows[order > 0.8]
    print(f"temperature {cooler.meta['temperature']:.1f}: mean a_t {easy.accept.mean():.2f} in the surest fifth (median "
          f"{easy.entropy.median():.2f} nats), {hard.accept.mean():.2f} in the least sure ({hard.entropy.median():.2f} nats)")

# %% [markdown]
# One α stands for both ends. And easy places are not sprinkled evenly: a bracket, a word's second half and a stock
# phrase come in runs.
#
# The end of an answer may differ from its beginning as well:

# %%
for low, high in ((0, 8), (8, 32), (32, None)):
    inside = rows[(rows.t >= low) & (rows.t < (high or np.inf))].groupby(["route", "prompt"]).accept.agg(["sum", "count"])
    print(f"tokens {low:2} to {high or 'the end':7}  mean a_t {ratio_interval(inside['sum'], inside['count']):.3f}")

# %% [markdown]
# Where the intervals part, the place in the answer matters, too. Here it is the first eight tokens that are easier.

# %% [markdown]
# ## Not identical, two: requests
#
# Each answer has its own mean, its own α. Some of their spread is chance: an answer has only so many tokens. How
# much? If tokens were dealt to the answers at random, an answer of n tokens would have the spread of one token divided
# by √n.

# %%
figure, axes = plt.subplots(figsize=(7, 4.6))
notes = []
for x, (route, group) in enumerate(answers.groupby("route", sort=False)):
    side = np.random.default_rng(0).uniform(-0.17, 0.17, len(group))
    axes.plot(x + side, group["mean"], linestyle="none", marker="osD"[x % 3], markerfacecolor="none", markersize=7)
    pooled = group["sum"].sum() / group["size"].sum()
    axes.plot([x - 0.3, x + 0.3], [pooled, pooled], color="black", linestyle="-", marker="")
    token = rows.accept[rows.route == route].var()
    chance = np.sqrt((token / group["size"]).mean())
    notes.append(f"{route} from {group['mean'].min():.2f} to {group['mean'].max():.2f}, pooled {pooled:.2f}")
    print(f"{route:5} alpha of its answers: spread {group['mean'].std():.3f}, by chance alone {chance:.3f}")
axes.set(xticks=range(len(routes)), xticklabels=routes, ylabel="mean a_t of an answer", ylim=(0, 1))
axes.grid(axis="x", visible=False)
show(figure, f"The mean a_t of each answer, a mark an answer, a black bar for the route. {'; '.join(notes)}.")

# %% [markdown]
# Where the first number exceeds the second, requests differ beyond chance, even within a route. (Runs of hard places widen
# chance a little: dealt in blocks of eight tokens it is about 0.06.) No α of a route is the α of its requests.

# %% [markdown]
# ## Not independent: after a rejection
#
# Given the text the coins are independent. That was notebook 05. But *you* do not know the text in advance. You see
# one draft rejected, and that is a hint that the text is hard just here.
#
# How good is the next place after a rejection? The chances give the answer without tossing a coin. The coin at t
# shows tails with chance 1 − a_t, so weigh the next place's chance by that.

# %% [markdown]
# **Exercise 6.1** · medium · 7 minutes. `accept` holds the chances a_t of one text. All its coins are tossed, and that
# very many times. Of all the places that came *right after tails*, in all tosses together, which share shows heads? Work
# it out from the chances, without tossing.

# %% tags=["exercise"]
def after_rejection(accept):
    # solution
    tails = 1 - accept[:-1]
    return (tails * accept[1:]).sum() / tails.sum()
    # end


check(after_rejection)

# %% [markdown] tags=["hints"]
# - Pairs of neighbours: place t and place t + 1. The last place has no neighbour after it.
# - Expected pairs "tails, then heads": the sum of (1 − a_t) · a_{t+1}. Expected pairs "tails, then anything": the sum
#   of (1 − a_t).

# %% [markdown]
# Now the control. Take the very same coins and lose their order, in two ways:
#
# - **shuffled within each answer**: an easy answer stays easy, but its easy places no longer come in runs;
# - **shuffled across all answers**: the coins of all answers in one bag, dealt out again. Here every place has the same
#   chance, whatever came before. This is the world where i.i.d. holds.

# %%
def shuffled(texts, within, times=20):
    """The same chances in random order, `times` over."""
    random, ends = np.random.default_rng(6), np.cumsum([len(text) for text in texts])[:-1]
    found = []
    for _ in range(times):
        if within:
            found += [random.permutation(text) for text in texts]
        else:
            found += np.split(random.permutation(np.concatenate(texts)), ends)
    return found


worlds = {"as written": texts, "shuffled within each answer": shuffled(texts, within=True),
          "shuffled across all answers": shuffled(texts, within=False)}


def pairs_after(texts, heads):
    """For each text: expected pairs (this coin, then heads), and pairs (this coin, then anything)."""
    weights = [text[:-1] if heads else 1 - text[:-1] for text in texts]
    return [np.array([(w * text[1:]).sum() for w, text in zip(weights, texts, strict=True)]), np.array([w.sum() for w in weights])]


table, gaps = {}, []
for name, world in worlds.items():
    # The same prompt shuffled twenty times is one prompt: add its shuffles up first.
    heads, tails = ([part.reshape(-1, len(texts)).sum(axis=0) for part in pairs_after(world, side)] for side in (True, False))
    gap = ratio_difference(heads, tails)
    gaps.append(gap.mean)
    table[name] = {"after heads": round(ratio_interval(*heads).mean, 3), "after tails": round(ratio_interval(*tails).mean, 3),
                   "difference": f"{gap:+.3f}", "0 is": "inside" if gap.low <= 0 <= gap.high else "outside"}
pd.DataFrame(table).T

# %% [markdown]
# First row: real text. Right after a rejection the chances are worse than after an acceptance. Second row: what is left of
# that when only the *requests* differ. Third row: nothing is left, as it must be. (A bag of coins, dealt without putting
# back, can differ from 0 in the last digit. And with few prompts the first interval is wide.)

# %%
written, within, across = gaps
print(f"heads minus tails {written:+.3f}: the place in the answer makes {written - within:+.3f} of that, "
      f"which answer it is {within - across:+.3f}, the luck of the deal {across:+.3f}")

# %% [markdown]
# ## Rates rise along a round
#
# A round with k = 8 drafts at positions 1 to 8. (Engines count from 0: their position 0 is our position 1.) As in
# notebook 04 there are two rates: accepted ÷ all rounds, *unconditional*, and accepted ÷ rounds that got there,
# *conditional*. The replay gives the expected counts behind both.

# %%
def counts(texts, k):
    """Expected rounds that reach, and that pass, positions 1 to k: two arrays [texts, k]."""
    tables = [position_rates([text], k) for text in texts]
    reached = np.array([each.reached for each in tables])
    return reached, reached * np.array([each.conditional.fillna(0) for each in tables])


reached, passed = counts(texts, 8)
rounds = replay_rounds(texts, [8])[:, 0]
conditional = [ratio_interval(passed[:, i], reached[:, i]) for i in range(8)]
unconditional = [ratio_interval(passed[:, i], rounds) for i in range(8)]

figure, axes = plt.subplots(figsize=(7.5, 4.8))
positions = np.arange(1, 9)
axes.errorbar(positions - 0.06, [i.mean for i in conditional], [i.half_width for i in conditional], capsize=4,
              label="conditional: ÷ rounds that got there")
axes.errorbar(positions + 0.06, [i.mean for i in unconditional], [i.half_width for i in unconditional], capsize=4,
              label="unconditional: ÷ all rounds")
axes.axhline(alpha, color="black", linestyle=":", marker="", label=f"mean of all a_t, {alpha:.2f}")
axes.set(xlabel="position in the round", ylabel="accepted", xticks=positions, ylim=(0, 1.02))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=11)
show(figure, f"""Rates at positions 1 to 8 of rounds with k = 8, all routes, 95 % intervals over prompts. Conditional:
    {", ".join(f"{i.mean:.2f}" for i in conditional)}. Unconditional: {", ".join(f"{i.mean:.2f}" for i in unconditional)}.
    Dotted line: mean of all a_t, {alpha:.2f}.""")

# %%
gap = ratio_difference((passed[:, 2:].sum(axis=1), reached[:, 2:].sum(axis=1)), (passed[:, 0], reached[:, 0]))
verdict = "0 is inside" if gap.low <= 0 <= gap.high else "0 is outside"
print(f"conditional rate at position 1: {conditional[0].mean:.3f}; positions 3 to 8 minus position 1: {gap:+.3f}   {verdict}")

# %% [markdown]
# The unconditional rates must fall. The conditional ones, if every draft had the chance α, would lie flat on the
# dotted line. On unequal text they begin below it and climb.
#
# Others have seen the climb, too. These are unconditional rates that vLLM's developers printed for k = 8
# ([pull request 48892 of vLLM](https://github.com/vllm-project/vllm/pull/48892): school mathematics, temperature 0,
# 11,043 rounds; the draft is MTP, extra layers of the target that guess ahead, notebook 11), and the conditional rates in
# them:

# %%
vllm = np.array([0.7617, 0.6158, 0.5125, 0.4243, 0.3640, 0.3094, 0.2722, 0.2365])
print("conditional", *(f"{rate:.3f}" for rate in conditional_from_unconditional(vllm)))

# %% [markdown]
# From 0.76 to 0.87. "The draft gets better as it goes, so let it draft more." Does it? **In our trace it cannot.** A
# place has one coin, and the coin is the same whether the place comes first in a round or eighth. Whatever climb the line
# above reports has another reason. (An MTP draft does depend on the position, and is known to get *worse* with it. Its
# rates climb all the same.)
#
# It is who gets there. Rounds in hard text are rejected at once. Those that come as far as position 5 are in
# easy text: *survivors*.

# %% [markdown]
# **Exercise 6.2** · medium · 7 minutes. Rounds come in kinds. `shares` are the shares of the kinds among *rounds*,
# `alphas` their α; within a kind i.i.d. holds. What is the conditional rate at `position` (from 1), over all rounds?

# %% tags=["exercise"]
def survivor_rate(alphas, shares, position):
    # solution
    got_there = sum(share * alpha ** (position - 1) for alpha, share in zip(alphas, shares, strict=True))
    accepted = sum(share * alpha**position for alpha, share in zip(alphas, shares, strict=True))
    return accepted / got_there
    # end


check(survivor_rate)

# %% [markdown] tags=["hints"]
# - Of a kind with α, the share α^(i−1) reaches position i, and α^i is accepted there.
# - Add up over the kinds, weighted by `shares`, above and below. Divide once, at the end.

# %% [markdown]
# Half of the rounds with α = 0.5, half with 0.9: at position 1 the rate is 0.70, at position 8 it is 0.89. No draft
# changed. The easy kind is all that is left.
#
# **It could have failed.** If selection is the reason, then the rate must stop climbing where there is nothing to
# select by: in the shuffled worlds.

# %%
climb = {name: position_rates(world, 8).conditional.to_numpy() for name, world in worlds.items()}

figure, axes = plt.subplots(figsize=(7.5, 4.8))
for name, rates in climb.items():
    axes.plot(positions, rates, label=name)
axes.set(xlabel="position in the round", ylabel="conditional rate", xticks=positions)
axes.set_ylim(min(map(min, climb.values())) - 0.05, max(map(max, climb.values())) + 0.05)
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=11)
show(figure, "Conditional rate at positions 1 to 8, k = 8, in three worlds made of the same coins. " + ". ".join(
    f"{name}: {', '.join(f'{rate:.2f}' for rate in rates)}" for name, rates in climb.items()) + ".")
for name, rates in climb.items():
    print(f"{name:28} position 1 to 4: {rates[0]:.3f} to {rates[3]:.3f}, {rates[3] - rates[0]:+.3f}")

# %% [markdown]
# Same coins, same mean. In the bag the line is flat: the world where i.i.d. holds. (Far to the right few rounds are
# left, and the lines tremble.) With only the order within answers lost, what climbs is due to requests.
#
# So **a rising conditional rate measures how unequal the text is, not how good the draft is at depth.**

# %% [markdown]
# ## Position 1 falls as k grows
#
# The same developers saw 0.834 at position 1 when k was 1, and 0.762 when k was 8, and suspected a fault. The draft does
# not know k when it writes its first token. What changed?

# %%
first = {name: [position_rates(world, k).conditional[0] for k in KS] for name, world in worlds.items()}

figure, axes = plt.subplots(figsize=(7.5, 4.8))
for name, rates in first.items():
    axes.plot(KS, rates, label=name)
axes.axhline(alpha, color="black", linestyle=":", linewidth=1.2, marker="", label=f"mean of all a_t, {alpha:.3f}")
axes.set(xlabel="k, drafts per round", ylabel="rate at position 1", xticks=KS)
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=11)
show(figure, "Rate at position 1 of a round against k from 1 to 12. " + ". ".join(
    f"{name}: {rates[0]:.3f} at k 1, {rates[3]:.3f} at k 4, {rates[-1]:.3f} at k 12" for name, rates in first.items()) +
    f". Dotted line: mean of all a_t, {alpha:.3f}.")

one, many = ([part[:, 0] for part in counts(texts, k)[::-1]] for k in (1, 12))
gap = ratio_difference(many, one)
print(f"position 1, k = 12 minus k = 1: {gap:+.3f}   " + ("0 is inside" if gap.low <= 0 <= gap.high else "0 is outside"))

# %% [markdown]
# **The rounds start elsewhere.** A round starts after a rejection, where the text is hard, or after a bonus token, where
# all drafts had just been kept and the text is easy. With a larger k it is harder to keep them all. So more and more
# rounds start after a rejection.
#
# At temperature 0 no coin is left to chance and the replayed rounds are the decoder's own. There we can look at each
# start.

# %%
zero = Trace.load(recording("smol-t0.parquet"))
banner("recorded", **source(zero))
lines = []
for k in (1, 2, 3, 4, 8):
    bonus, bonus_kept, other, other_kept = np.zeros((4, len(zero.accepts())))
    for i, coins in enumerate(zero.accepts()):
        played = rounds_along_text(coins, k)
        kept_all = played.accepted[:-1] == played.drafted[:-1]  # so the next round starts after a bonus token
        good = played.accepted[1:] > 0
        bonus[i], bonus_kept[i] = kept_all.sum(), (kept_all & good).sum()
        other[i], other_kept[i] = (~kept_all).sum(), (~kept_all & good).sum()
    both = bonus.sum() + other.sum()
    lines.append({"k": k, "starts after a bonus, %": 100 * bonus.sum() / both,
                  "rate after a bonus": bonus_kept.sum() / bonus.sum() if bonus.sum() else np.nan,
                  "rate after a rejection": other_kept.sum() / other.sum(),
                  "position 1": (bonus_kept.sum() + other_kept.sum()) / both})
pd.DataFrame(lines).set_index("k").round({"starts after a bonus, %": 1}).round(3)

# %% [markdown]
# Read the first column down: that is the mix, and it changes a lot. (The first round of each answer is left out, as it
# follows nothing. At large k few starts follow a bonus, and their rate is noisy.)
#
# Requests do the same on a larger scale. A hard request needs more rounds for its tokens, and the more so the larger k.

# %% [markdown]
# **Exercise 6.3** · medium · 8 minutes. Traffic of several kinds, *equally many tokens* of each, each i.i.d. with its own
# α. Which rate does the engine print for position 1, over all rounds, with k drafts? (`expected_tokens(alpha, k)` is
# imported.)

# %% tags=["exercise"]
def first_position(alphas, k):
    # solution
    rounds = [1 / expected_tokens(alpha, k) for alpha in alphas]  # for one token of each kind
    return sum(alpha * n for alpha, n in zip(alphas, rounds, strict=True)) / sum(rounds)
    # end


check(first_position)

# %% [markdown] tags=["hints"]
# - The rate at position 1 is a mean over *rounds*. Equal tokens are not equal rounds.
# - A kind that emits E tokens a round needs 1/E rounds for each token. Weigh each α with that.

# %% [markdown]
# With α of 0.5 and 0.9 the rate is 0.68 at k = 1 and 0.60 at k = 8. The mean over tokens is 0.70 throughout. **A rate
# at position 1 is a rate over round starts, and k decides which places those are.** Never compare it across k.

# %% [markdown]
# ## What one α does to the sum
#
# Start with the simplest unequal world: two routes, α = 0.5 and 0.9, equally many tokens. At k = 5 notebook 02 found
# three numbers.

# %%
banner("computed", routes="alpha 0.5 and 0.9, equally many tokens; closed forms")


def throughput(alphas, k, tokens=None):
    """Tokens per round of traffic with these alphas and so many tokens of each: all tokens / all rounds."""
    tokens = np.ones(len(alphas)) if tokens is None else np.asarray(tokens, float)
    return float(tokens.sum() / sum(n / expected_tokens(a, k) for a, n in zip(alphas, tokens, strict=True)))


print(f"mean of the routes' tokens per round   {np.mean([expected_tokens(a, 5) for a in (0.5, 0.9)]):.3f}")
print(f"formula at the mean alpha              {expected_tokens(0.7, 5):.3f}")
print(f"all tokens / all rounds                {throughput((0.5, 0.9), 5):.3f}")

# %% [markdown]
# The curve of the formula bends upward in α. So the mean of two values on it lies above the curve at the mean: that is
# *Jensen's inequality*, 3.327 against 2.941. But the server feels the third number, and that comes from rounds per token,
# 1/E. They bend upward in α as well: 0.508 at α = 0.5 and 0.213 at 0.9 have the mean 0.361, and the formula at 0.7 says
# 0.340. More rounds than it says, so fewer tokens a round. **The formula at the mean α promises too much.**
#
# The same three numbers for the recording: once with the α of each route, once with the α of each answer.

# %%
banner("recorded", **source(trace))
grouped = {"routes": answers.groupby("route", sort=False)[["sum", "size"]].sum(), "answers": answers[["sum", "size"]]}
for name, group in grouped.items():
    own = group["sum"] / group["size"]
    values = [expected_tokens(a, 5) for a in own]
    print(f"{len(own):3} {name:8} mean {np.mean(values):.3f}   formula at the mean alpha {expected_tokens(alpha, 5):.3f}   "
          f"all tokens / all rounds {throughput(own, 5, group['size']):.3f}")
print(f"replay, which also knows the order: {lengths.sum() / replay_rounds(texts, [5]).sum():.3f}")

# %% [markdown]
# From left to right: the mean of the parts, the formula at the mean, the throughput. The closer together the αs, the closer
# these three. (An answer's α also holds its luck, having few tokens, and that spreads the second line further than the
# answers really differ.) The last line is the truth. It is lower still for two reasons: hard places come in runs, and each
# answer ends inside a round (more on that soon).
#
# For which k is that worst? Take no limit at all first.

# %% [markdown]
# **Exercise 6.4** · easy · 5 minutes. A long text of 1,000 tokens. In half of its places a draft is accepted with chance
# 0.95, in the other half with 0.45, in any order. The draft *never stops before a rejection*. How many tokens per round, to two
# decimals?

# %% tags=["exercise"]
# solution
rejections = 500 * 0.05 + 500 * 0.55  # each ends one round, and nothing else does
no_limit = 1000 / rejections
# end

check(no_limit, "no_limit")

# %% [markdown] tags=["hints"]
# - Without a k only a rejection ends a round. So how many rounds are there?
# - Count the rejections to be expected in 1,000 places.

# %% [markdown]
# The formula at the mean α, 0.7, gives 1/(1 − 0.7): the very same. Without a limit the order does not matter, nor does
# which coins are mixed. At k = 0 nothing is drafted and everybody is right, too. So the formula can only be wrong *in
# between*, at the k people use.
#
# And on the recording? There the replay is the truth: all tokens ÷ all expected rounds.

# %%
def per_cent_off(world):
    """Formula with the mean alpha against the replay, for each k."""
    truth = sum(map(len, world)) / replay_rounds(world, KS).sum(axis=0)
    return 100 * (np.array([expected_tokens(alpha, k) for k in KS]) / truth - 1)


off = {name: per_cent_off(world) for name, world in worlds.items()}
off["two routes, 0.5 and 0.9"] = np.array([100 * (expected_tokens(0.7, k) / throughput((0.5, 0.9), k) - 1) for k in KS])

figure, axes = plt.subplots(figsize=(7.5, 4.8))
for name, error in off.items():
    axes.plot(KS, error, label=name)
axes.axhline(0, color="grey", linewidth=0.8, linestyle="-", marker="")
axes.set(xlabel="k, drafts per round", ylabel="formula too high by, %", xticks=KS)
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=11)
show(figure, "How far the formula at the mean α lies above the tokens per round, in per cent, k from 1 to 12. " + ". ".join(
    f"{name}: {error[0]:+.1f} at k 1, {error[2]:+.1f} at k 3, {error[4]:+.1f} at k 5, {error[7]:+.1f} at k 8, {error[11]:+.1f} at k 12"
    for name, error in off.items()) + ".")
worst = int(np.argmax(np.abs(off["as written"])))
print(f"as written: worst at k = {KS[worst]}, {off['as written'][worst]:+.1f} %; "
      f"the same coins in one bag there: {off['shuffled across all answers'][worst]:+.1f} %")

# %% [markdown]
# The bag is not quite at zero. That is the *end of the texts*: the formula speaks of endless text, and here each answer
# ends inside a round, whose last drafts are for nothing. What a line adds to the bag's is the lie of i.i.d.
#
# Two made-up routes as far apart as 0.5 and 0.9 show what a large error looks like. How large yours is depends on how
# unequal your traffic is. A quick way to see it: which α does the formula *need* at each k?

# %%
for name, world in worlds.items():
    measured = sum(map(len, world)) / replay_rounds(world, KS).sum(axis=0)
    needs = [alpha_from_tokens(float(measured[k - 1]), k) for k in (1, 2, 4, 8, 12)]
    print(f"{name:28} alpha the formula needs at k = 1, 2, 4, 8, 12: " + "  ".join(f"{a:.3f}" for a in needs))

# %% [markdown]
# If i.i.d. held, one line would hold one number. Where it climbs with k, an α taken from counters at a small k is too
# low for a large one, and the other way round. (The bag's number lies a little below the mean of its coins: the ends of the
# texts again.)

# %% [markdown]
# ## One more parameter
#
# Let every *round* draw its own α and keep it for all its drafts. Statisticians like a *beta* law for that, with two
# numbers a and b: its mean is a/(a + b), and the smaller a + b, the more the rounds differ. What makes it handy is how it
# learns. After j accepted drafts the round's α is likely to be a high one, and its mean is now
#
# $$\frac{a + j}{a + b + j}.$$
#
# That is the conditional rate at position j + 1. Every acceptance counts like one more unit of a. Accepted to rejected,
# the *odds*, are (a + j) to b: **they rise along a straight line.** This is the beta-geometric law (Weinberg and Gladen,
# 1986, who counted months until a pregnancy: couples differ, too).

# %% [markdown]
# **Exercise 6.5** · medium · 8 minutes. Tokens per round of the beta-geometric law, for any a, b and k.

# %% tags=["exercise"]
def beta_tokens(a, b, k):
    # solution
    tokens, still_going = 1.0, 1.0
    for j in range(k):
        still_going *= (a + j) / (a + b + j)
        tokens += still_going
    return tokens
    # end


check(beta_tokens)

# %% [markdown] tags=["hints"]
# - Tokens per round are 1 + the sum of the *unconditional* rates.
# - The unconditional rate at a position is the product of the conditional ones up to it. The first is a/(a + b).

# %% [markdown]
# The package writes the law with the mean, a/(a + b), and a *spread* from 0 to 1, which is 1/(a + b + 1). Spread 0 is the
# geometric formula; with spread 1 a round keeps everything or nothing. `fit_beta_geometric` finds the pair under which the
# counts at the positions are likeliest. First a world where we know the answer.

# %%
banner("simulated", rounds=20_000, k=8, law="mean 0.7, spread 0.2: a = 2.8, b = 1.2", seed=0)
random = np.random.default_rng(0)
own = random.beta(2.8, 1.2, size=20_000)
got = np.cumprod(random.random((20_000, 8)) < own[:, None], axis=1).sum(axis=0)
found = fit_beta_geometric(np.concatenate([[20_000], got[:-1]]), got)
print(f"found: mean {found.mean:.3f}, spread {found.spread:.3f}")
print(f"tokens per round at k = 8: coins {1 + got.sum() / 20_000:.3f}   law {found.expected_tokens(8):.3f}   "
      f"formula at the mean {expected_tokens(0.7, 8):.3f}")

# %% [markdown]
# Here the formula promises too *little*. No contradiction: 0.7 is now a mean over *rounds*, not over tokens. Put
# in the rate at position 1, and the formula forgets the survivors.
#
# Now three sets of counts: our recording as written, the same coins in one bag, and vLLM's.

# %%
def fitted(world, k):
    table = position_rates(world, k)
    return fit_beta_geometric(table.reached, table.reached * table.conditional.fillna(0))


server = fit_beta_geometric(np.concatenate([[1], vllm[:-1]]), vllm)
sets = {"vLLM": (conditional_from_unconditional(vllm), server),
        "as written": (climb["as written"], fitted(texts, 8)),
        "one bag": (climb["shuffled across all answers"], fitted(worlds["shuffled across all answers"], 8))}

figure, axes = plt.subplots(figsize=(7.5, 4.8))
notes = []
for (name, (rates, law)), marker, colour, shift in zip(sets.items(), "Do^", ("C3", "C0", "C2"), (-0.06, 0.06, 0), strict=True):
    seen, line = (r[:6] / (1 - r[:6]) for r in (rates, law.rates(6)))
    axes.plot(positions[:6] + shift, seen / line[0], linestyle="none", marker=marker, color=colour, markersize=8, label=name)
    axes.plot(positions[:6], line / line[0], linestyle="-", linewidth=1.2, marker="", color=colour)
    notes.append(f"{name}: counted {', '.join(f'{o:.2f}' for o in seen / line[0])}, line up to {line[-1] / line[0]:.2f}; "
                 f"law with mean {law.mean:.3f} and spread {law.spread:.3f}")
    total = 1 / max(law.spread, 1e-9) - 1  # a + b
    print(f"{name:10}  mean {law.mean:.3f}   spread {law.spread:.3f}   a = {law.mean * total:.1f}, b = {(1 - law.mean) * total:.1f}")
axes.set(xlabel="position in the round", ylabel="odds ÷ the law's odds at position 1", xticks=positions[:6], ylim=(0, None))
axes.legend()
show(figure, f"""Odds of acceptance, accepted to rejected, at positions 1 to 6 of rounds with k = 8, relative to the law's odds at
    position 1. Marks are counted, straight lines are the law. {'. '.join(notes)}.""")

# %% [markdown]
# The marks scatter around straight lines, so two numbers describe the rates. (Positions 7 and 8 count in the fit. They are
# left out of the picture, as few of our rounds get there.) Flat is i.i.d.: the bag is, with hardly any spread, as it should.
#
# A line rises by 1/a of its start at each position. Two lines can be equally steep and have different spreads, because the
# spread also counts b. Our b is far larger than vLLM's, for we have more rejections, and so our spread is smaller.
#
# **What the law cannot know.** It speaks of rounds as they start at *this* k. At k = 1 other places start rounds:

# %%
print(f"vLLM at k = 8: measured {1 + vllm.sum():.3f} tokens per round, law {server.expected_tokens(8):.3f}")
print(f"the same law asked about k = 1: {server.expected_tokens(1):.3f};  measured with k = 1: 1.834")

# %% [markdown]
# It fits where it was fitted, and at k = 1 it misses by about what position 1 had lost on the way from 1 to 8.

# %% [markdown]
# ## How far off?
#
# **Claim.** A formula with one α leans: on the traffic as a whole it is off to one side at the k people use, and on some
# routes it is off much further.
#
# What is the truth here? Notebook 05 checked the replay against the decoder. So the truth is the replay *of other
# prompts*: each way to predict learns on half of the prompts of each route, and is judged by the replay of the other half.
# Then the halves change places, and all of it is repeated with 20 ways to halve.
#
# Six ways, all from the same half:
#
# - **one α**: the formula at the mean of all a_t.
# - **from k = 4**: the formula at the α that explains the tokens per round at k = 4, as one gets it from counters.
# - **per route**: one α a route, rounds added up. **Per request**: one α an answer, rounds added up.
# - **beta-geometric**: fitted to the rounds at k = 8.
# - **replay**.

# %%
def formula(alpha):
    return np.array([expected_tokens(float(alpha), k) for k in KS])


def sums_of(texts, route):
    """What the six ways need to know of each answer: numbers that can be added up over any half of the answers."""
    tokens = np.array([len(text) for text in texts])
    accepted = np.array([text.sum(dtype=float) for text in texts])
    reached, passed = counts(texts, 8)
    own = np.array([formula(a) for a in accepted / tokens])
    return SimpleNamespace(route=route, tokens=tokens, accepted=accepted, reached=reached, passed=passed,
                           rounds=replay_rounds(texts, KS), own_rounds=tokens[:, None] / own)


def predict(data, half, of):
    """Tokens per round at each k of the traffic `of` (a mask of answers), learned from the answers in `half`."""
    part = half & of
    tokens = data.tokens[part].sum()
    masks = [part & (data.route == name) for name in np.unique(data.route[part])]
    route_rounds = sum(data.tokens[m].sum() / formula(data.accepted[m].sum() / data.tokens[m].sum()) for m in masks)
    law = fit_beta_geometric(data.reached[half].sum(axis=0), data.passed[half].sum(axis=0))
    at_4 = data.tokens[half].sum() / data.rounds[half, 3].sum()
    return {"one α": formula(data.accepted[half].sum() / data.tokens[half].sum()),
            "from k = 4": formula(alpha_from_tokens(float(at_4), 4)),
            "per route": tokens / route_rounds,
            "per request": tokens / data.own_rounds[part].sum(axis=0),
            "beta-geometric": np.array([law.expected_tokens(k) for k in KS]),
            "replay": tokens / data.rounds[part].sum(axis=0)}


# %% [markdown]
# And the halving. A learner's error is the ratio of what it predicts to the truth of the other half. The mean error over all
# trials is its *lean*.

# %%
def trials(data, of=None, times=20):
    """Predictions and truth for each half of the answers (half of each route), and for the other half after it."""
    of = np.ones(len(data.route), bool) if of is None else of
    random, found = np.random.default_rng(1), []
    for _ in range(times):
        half = np.zeros(len(data.route), bool)
        for name in np.unique(data.route):
            here = np.flatnonzero(data.route == name)
            half[random.permutation(here)[: len(here) // 2]] = True
        for learn, judge in ((half, ~half & of), (~half, half & of)):
            found.append((predict(data, learn, of), data.tokens[judge].sum() / data.rounds[judge].sum(axis=0)))
    return found


def errors(found):
    """In per cent, {way: array [trials, k]}. Log ratios, so that too high and too low weigh alike."""
    return {way: np.array([100 * np.log(predicted[way] / truth) for predicted, truth in found]) for way in found[0][0]}


def signed(table):
    return (table.round(1) + 0.0).map("{:+.1f}".format)


banner("recorded", **source(trace))
data = sums_of(texts, answers.route.to_numpy())
found = {"all": trials(data)} | {name: trials(data, data.route == name) for name in routes}
missed = errors(found["all"])
lean = pd.DataFrame({way: value.mean(axis=0) for way, value in missed.items()}, index=pd.Index(KS, name="k"))
noise = np.sqrt((missed["replay"] ** 2).mean(axis=0))

figure, axes = plt.subplots(figsize=(7.5, 5))
for way in lean:
    axes.plot(KS, lean[way], label=way)
axes.fill_between(KS, -noise, noise, color="grey", alpha=0.2, linewidth=0, label="typical error, replay")
axes.set(xlabel="k, drafts per round", ylabel="lean, %", xticks=KS)
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, fontsize=11)
show(figure, f"""Mean error of tokens per round on held-out prompts, in per cent, k from 1 to 12, all routes together. {". ".join(
    f"{way}: " + ", ".join(f"{signed(lean)[way][k]} at k {k}" for k in (1, 4, 8, 12)) for way in lean)}.
    Grey band: typical error of the replay, {noise[0]:.1f} at k 1 and {noise[11]:.1f} at k 12.""")
worst_way = lean.abs().max().idxmax()
print(f"largest lean: {worst_way}, {lean.abs().max().max():.1f} %. Of the lean of one α, texts that end inside a round make up to "
      f"{off['shuffled across all answers'].max():.1f} % (the bag).")
print(f"typical error (root of the mean square): {worst_way} {np.sqrt((missed[worst_way] ** 2).mean()):.1f} %, "
      f"replay {np.sqrt((missed['replay'] ** 2).mean()):.1f} %")

# %% [markdown]
# The grey band is what the prompts alone do: another half of them has another truth. Where a lean is smaller than that, a
# better formula would not help you: more prompts would. But noise shrinks with more prompts, and a lean stays.
#
# (That the replay's lean is zero is no merit of its own. Two halves judge each other, so errors that come from the choice of
# prompts cancel. A formula's would cancel, too, if that were all that is wrong with it.)
#
# Is that all the harm one α does? No. This was the traffic as a whole, where the errors of the routes cancel. The leans
# route by route, at k = 8:

# %%
def leans_of_routes(found):
    return pd.DataFrame({name: {way: value[:, 7].mean() for way, value in errors(found[name]).items()} for name in routes}).T


of_routes = leans_of_routes(found)
furthest = of_routes["one α"].abs().idxmax()
print(f"one α is furthest off on {furthest}: {of_routes.loc[furthest, 'one α']:+.1f} %; "
      f"with the route's own α: {of_routes.loc[furthest, 'per route']:+.1f} %")
signed(of_routes)

# %% [markdown]
# Whoever knows one α, or one law, for everything promises every route the same. **If the routes differ, this is the large
# error**, and the cheapest to repair. Notebook 07 follows it.
#
# **It could have failed.** Would this table find a lean where there is none? The bag again: the same coins, dealt out
# to the same answers at random. A deal has its luck, so here is the mean of eight deals.

# %%
n, dealt = len(texts), worlds["shuffled across all answers"]
deals = []
for i in range(8):
    bag = sums_of(dealt[i * n : (i + 1) * n], data.route)
    deals.append(leans_of_routes({name: trials(bag, data.route == name, times=8) for name in routes}))
in_bag = sum(deals) / len(deals)
luck = np.std([deal["one α"] for deal in deals], axis=0, ddof=1).mean()
print(f"one α, furthest off on a route: {of_routes['one α'].abs().max():.1f} % as written, {in_bag['one α'].abs().max():.1f} % in the bag "
      f"(a single deal strays by about {luck:.1f})")
signed(in_bag)

# %% [markdown]
# In the bag no way is far off on any route. About +1 % stays where α is the mean of a_t, even a route's or a request's own:
# that is the ends of the texts.
#
# At temperature 0 the coins are 0 or 1. The leans on the whole traffic there:

# %%
banner("recorded", **source(zero))
cold_route = zero.rows.groupby(["route", "prompt"], sort=False).size().reset_index().route.to_numpy()
cold = errors(trials(sums_of(zero.accepts(), cold_route)))
signed(pd.DataFrame({k: {way: value[:, k - 1].mean() for way, value in cold.items()} for k in (1, 2, 4, 8, 12)}).rename_axis(columns="k"))

# %% [markdown]
# The same picture. One α leans up at every k. The α from k = 4 is right there, too high before it and too low after. The
# beta-geometric law turns the other way.

# %% [markdown]
# ## What trusting it costs
#
# An error in tokens per round is not yet a loss. The formula is asked for a *decision*: which k? So give a round a cost.
# In units of one plain target step: each draft c, each further token to verify 0.02. Costs are given here; notebook 08
# measures them.
#
# Three things can be said of a decision: what was promised, what it gets, and what the best k would have got.

# %% [markdown]
# **Exercise 6.6** · medium · 10 minutes. `measured` has the true tokens per round at k = 0, 1, …, K; `cost` what such a round
# costs in target steps. Both are 1 at k = 0, plain decoding. Return the k that the formula with `alpha` would pick, the k
# that is best, and the share of the best speed that the formula's k loses. (Of equals take the smaller k.)

# %% tags=["exercise"]
def price_of_formula(alpha, measured, cost):
    # solution
    promised = [expected_tokens(alpha, k) / cost[k] for k in range(len(cost))]
    speed = [measured[k] / cost[k] for k in range(len(cost))]
    picked, best = int(np.argmax(promised)), int(np.argmax(speed))
    return picked, best, 1 - speed[picked] / speed[best]
    # end


check(price_of_formula)

# %% [markdown] tags=["hints"]
# - Speedup at k is tokens per round ÷ cost of the round. The formula's tokens decide what it picks; the measured ones decide
#   what it gets.
# - What is lost compares two *measured* speeds: at the k it picked, and at the best k. What the formula promised plays no
#   part in it.

# %%
banner("recorded", **source(trace))
lines = []
for c in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
    costs = RoundCosts(t_draft=c, t_verify={width: 1 + 0.02 * (width - 1) for width in range(1, 14)})
    cost = costs.round_cost(12)
    for traffic, judged in found.items():
        for predicted, truth in judged:
            speed = np.concatenate([[1], truth]) / cost
            for way, tokens in predicted.items():
                promised = np.concatenate([[1], tokens]) / cost
                k = int(promised.argmax())
                lines.append({"traffic": traffic, "c": c, "way": way, "k": k, "promised": promised[k], "got": speed[k],
                              "lost": 100 * (1 - speed[k] / speed.max())})
decisions = pd.DataFrame(lines)
whole = decisions[decisions.traffic == "all"].groupby(["way", "c"], sort=False)
chosen = whole.agg(k=("k", lambda ks: ks.mode()[0]), promised=("promised", "mean"), got=("got", "mean"), lost=("lost", "mean"))
pd.concat({way: chosen.loc[way].assign(**chosen.loc[way, ["promised", "got", "lost"]].map("{:.2f}".format)).rename(columns={"lost": "lost, %"})
           for way in ("one α", "replay")}, axis=1)

# %% [markdown]
# All traffic, a row a price of the draft. `k` is the one picked most often; 0 is plain decoding. `promised` and `got` are
# speedups; `lost` is what the picked k gives away of the best k for those prompts.
#
# Now all six ways, averaged over the prices, for the traffic as a whole and for single routes. A mean of signed errors hides
# those that cancel, so there are two columns on the promise: its mean error, and the mean *size* of its error.

# %%
apart = decisions.assign(part=np.where(decisions.traffic == "all", "all traffic", "one route"),
                         wrong=100 * (decisions.promised / decisions.got - 1))
apart = apart.assign(size=apart.wrong.abs(), slower=100 * ((apart.k > 0) & (apart.got < 1)))
by_way = apart.groupby(["part", "way"], sort=False)[["lost", "wrong", "size", "slower"]].mean()
by_way.columns = ["lost, %", "promised too much, %", "promise off by, %", "slower than off, % of decisions"]
gap = by_way.loc["all traffic"].loc["one α"] - by_way.loc["all traffic"].loc["replay"]
print(f"all traffic: beyond the replay, one α loses {gap.iloc[0]:+.2f} % of the speed and promises {gap.iloc[1]:+.2f} % too much")
print("one α, promised too much on a route: " + ", ".join(
    f"{name} {apart.wrong[(apart.way == 'one α') & (apart.traffic == name)].mean():+.1f} %" for name in routes))
slower = apart[apart.slower > 0].groupby(["traffic", "c"]).way.nunique()
print("slower than off: " + ("; ".join(f"{name} at c = {c} ({ways} of the 6 ways)" for (name, c), ways in slower.items()) or "nowhere"))
by_way.map(lambda value: f"{value:.2f}")

# %% [markdown]
# Loss and promise are not alike, and the reason is the shape of the curve: near its top it is flat. A k that is off by one
# gives away little. So a formula with a lean can still pick a good k, **while the speedup it prints is wrong by the lean.**
# And on single routes one number for all is off furthest: it promises one route too much and another too little, which
# only the sizes show.
#
# (A replay of too few prompts chases their luck, and can lose more than a rough formula that is averaged over everything.
# The first column shows it where the replay loses more. The remedy is more prompts.)
#
# The last column counts decisions that made things slower than not speculating. Where all six ways have the same number,
# the replay too, no formula is to blame, but the prompts: near break-even one half of them says yes and the other no.
#
# So use the formula to choose k if you must. Do not use it to promise a speedup: there it leans. And whether to speculate at
# all, not even a replay tells without its interval: the report of notebook 12 asks whether the interval's *lower* end is
# above 1.

# %% [markdown]
# ## Quiz

# %%
quiz("6.a")

# %%
quiz("6.b")

# %%
quiz("6.c")

# %%
quiz("6.d")

# %%
quiz("6.e")

# %%
quiz("6.f")

# %% [markdown]
# ## Recap
#
# - Real acceptance differs by difficulty, by request and by route, and hard places come in runs: after a rejection the next
#   draft has worse chances.
# - Conditional rates rise along a round because only rounds in easy text get far. Shuffle the coins of
#   all answers in one bag, and the rise is gone.
# - The rate at position 1 falls as k grows, because more rounds start after a rejection. It is a rate over round starts.
# - The formula at the mean α is right without a limit and at k = 0, and promises too much in between. Taken at position 1,
#   α makes it promise too little.
# - The beta-geometric law adds a spread. Its odds rise along a line, it fits the rates of a round well, and it belongs to the k
#   it was fitted at.
# - The replay needs no assumption on how coins are spread. Its error is that of the prompts, and more prompts make it smaller.
# - A lean harms promises more than it harms the choice of k, and one number for all routes harms most.
#
# **Next.** Notebook 07: routes and temperature, each with its own draft quality, and one switched off.
