# %% [markdown]
# # 02 · The geometric formula
#
# - **You will do:** toss coins in place of a language model, turn one round into a formula, and find
#   the mistakes in a published table.
# - **You will learn:** what a round yields on average, where the ceiling 1/(1 − α) comes from, and why
#   the acceptance rate an engine prints is not α.
# - **You need:** powers, averages, and what a probability is. No model and no GPU.
# - **Minutes:** 60

# %% [markdown]
# **How many tokens should the draft propose?** That is the question of this course.
#
# A large language model, the *target*, writes slowly: one step for each token. A small model, the
# *draft*, writes fast but not as well. So they work in *rounds*. The draft proposes k tokens. The
# target reads all k in one step and keeps them up to the first one it rejects. Notebook 01 takes a
# round apart. Here we only count: **what does a round yield, on average, for a given k?**
#
# A coin is all we need. Heads: the target accepts the drafted token. Tails: it does not.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sympy as sp
from IPython.display import display

from course_lib.course import notebook
from course_lib.intervals import mean_interval, ratio_interval
from course_lib.plots import banner, show, style
from course_lib.simulate import rounds_along_text, simulate_rounds, sticky_coins
from course_lib.theory import (
    accepted_pmf,
    alpha_from_prefix_rate,
    alpha_from_tokens,
    expected_accepted,
    expected_tokens,
    prefix_rate,
)

check, quiz = notebook("02")
style()
banner("simulated", rounds=20_000, seeds="fixed, in each cell")

# %% [markdown]
# ## One round
#
# The draft proposes k = 5 words. Each is accepted with chance 0.8. We toss the coins for six rounds
# and draw the first.

# %%
six = simulate_rounds(alpha=0.8, k=5, n=6, seed=2)
words = ["the", "cat", "sat", "on", "a"]
n = int(six.accepted[0])
verdicts = ["accepted"] * n + ["rejected"] + ["unjudged"] * (4 - n)

print("draft proposes  ", *(f"{word:9}" for word in words))
print("target says     ", *(f"{verdict:9}" for verdict in verdicts))
print("round emits     ", *(f"{word:9}" for word in words[:n]), "lay")

# %% [markdown]
# Two drafts were accepted and the third was rejected. What comes after a rejected word continues a
# text that does not exist. The target has read it, too, but does not judge it: it is thrown away. For the third place the
# target has just worked out which word it wants: "lay". That word is kept. The round *accepted* 2 and *emitted* 3.

# %%
for accepted in six.accepted.tolist():
    marks = "+" * accepted + "-" * (accepted < 5) + "." * (4 - accepted)
    print(f"{marks:7}accepted {accepted}   emitted {accepted + 1}")

# %% [markdown]
# Each round emits one token more than it accepts. After a rejection (`-`) that is the target's
# replacement. After five acceptances there is nothing to replace, but the target has already scored the
# place after the last draft. It writes one token there too: the *bonus token*.
#
# Four names for the rest of the course:
#
# - **k**: drafts per round. Here 5.
# - **α** (alpha): the chance that a draft is accepted, given that the ones before it were. Here 0.8.
# - **accepted**: drafts kept in a round, 0 to k.
# - **emitted**: tokens a round adds to the text, accepted + 1.

# %% [markdown]
# **Exercise 2.1** · easy · 3 minutes. You are given the coins of one round, such as
# `[True, False, True, True]`. Return how many drafts the round accepts and how many tokens it emits.

# %% tags=["exercise"]
def count(flags):
    """(accepted, emitted) for one round; flags[i] is True if the target agrees with draft i."""
    # solution
    accepted = 0
    while accepted < len(flags) and flags[accepted]:
        accepted += 1
    return accepted, accepted + 1
    # end


check(count)

# %% [markdown] tags=["hints"]
# - Walk from the left and stop at the first `False`. What lies behind it does not matter.
# - Whatever happens, the target adds one token of its own. It is emitted, but nobody drafted it, so
#   it is not accepted.

# %% [markdown]
# ## At least n
#
# When does a round accept *at least* three drafts? When the first three coins are heads. The later
# coins do not matter. The chance is α · α · α = α³. In the same way, for any n up to k,
#
# $$P(\text{at least } n) = \alpha^n .$$

# %%
coins = simulate_rounds(alpha=0.8, k=4, n=20_000, seed=4)
at_least = range(1, 5)
pd.DataFrame(
    {"formula": [0.8**n for n in at_least], "coins": [np.mean(coins.accepted >= n) for n in at_least]},
    index=pd.Index(at_least, name="at least"),
).round(4)

# %% [markdown]
# Twenty thousand rounds agree with the powers of 0.8 to about one percent. Note the last row: four out
# of four happens in 41 % of all rounds.

# %% [markdown]
# ## Exactly n
#
# **Exercise 2.2** · easy · 5 minutes. Now the chance that a round of k drafts accepts *exactly* n, for
# any n from 0 to k.

# %% tags=["exercise"]
def exactly(alpha, k, n):
    # solution
    return alpha**n * (1 - alpha) if n < k else alpha**k
    # end


check(exactly)

# %% [markdown] tags=["hints"]
# - Exactly two of four: heads, heads, and then? Multiply the three chances.
# - Add up your chances for n = 0 … k. If they fall short of 1, look at n = k: is there another coin
#   that has to be tails?

# %% [markdown]
# ## What stops the round after k?
#
# A round ends in one of two ways. Either a draft is rejected, or the draft has run out of proposals.
# The textbook's *geometric distribution* knows the first way alone: toss until tails, however long it
# takes. Ours is cut off at k, and everything beyond lands on k itself. It is usually called the
# *truncated* geometric; "capped" says it better. `accepted_pmf` holds the k + 1 chances (pmf:
# probability mass function, the chance of each outcome).

# %%
capped = accepted_pmf(0.8, 4)
print("chance of 0, 1, 2, 3, 4 accepted:", capped.round(4), "  sum", capped.sum().round(6))

# %% [markdown]
# They add up to 1, and the largest by far is the last. Now the picture: the coins, this formula, and
# the plain geometric for comparison.

# %%
shares = np.bincount(coins.accepted, minlength=5) / len(coins.accepted)
plain = 0.8 ** np.arange(9) * 0.2

figure, axes = plt.subplots()
axes.bar(range(5), shares, width=0.6, color="0.85", edgecolor="0.3", hatch="//", label="coins, 20,000 rounds")
axes.plot(range(5), capped, linestyle="none", marker="o", markersize=9, label="capped at k = 4")
axes.plot(range(9), plain, linestyle="--", marker="s", label="plain geometric")
axes.set(xlabel="drafts accepted in a round", ylabel="share of rounds", title="α = 0.8, k = 4", ylim=(0, 0.46))
axes.grid(axis="x", visible=False)
axes.legend()
show(figure, f"""Share of rounds against drafts accepted, for alpha 0.8 and k 4. Coins: {", ".join(
    f"{share:.3f} at {n}" for n, share in enumerate(shares))}. The capped geometric lies on them, within
    {abs(shares - capped).max():.3f}. The plain geometric agrees up to 3, then says {plain[4]:.3f} at 4
    instead of {capped[4]:.3f}, and goes on past 4, where no round can go.""")

# %% [markdown]
# The coins follow the capped geometric. The plain one puts 0.082 where 0.410 belongs and spreads the
# rest over rounds that cannot happen.

# %%
toss_until_tails = np.random.default_rng(5).geometric(0.2, size=20_000) - 1  # heads before the first tails
print("cut off at 4:    ", (np.bincount(np.minimum(toss_until_tails, 4)) / 20_000).round(3))
print("thrown away if >4:", (np.bincount(toss_until_tails[toss_until_tails <= 4]) / sum(toss_until_tails <= 4)).round(3))

# %% [markdown]
# Cutting long runs off at 4 gives our law. Leaving them out and rescaling the rest, which is what
# "truncated" means in a statistics book, does not: a long run is a round that went well, not one that
# did not happen.

# %% [markdown]
# ## How many are accepted on average?
#
# The slow way: add up n · P(exactly n). The quick way: look at one draft at a time. Draft number i
# adds 1 to the count if it is accepted, and that happens when at least i are accepted: with chance αⁱ.
# So
#
# $$E[\text{accepted}] = \alpha + \alpha^2 + \dots + \alpha^k .$$

# %%
slow = sum(n * chance for n, chance in enumerate(accepted_pmf(0.8, 4)))
quick = sum(0.8**i for i in range(1, 5))
print(f"slow {slow:.4f}   quick {quick:.4f}   coins {coins.accepted.mean():.4f}")

# %% [markdown]
# 2.3616 both ways, and the coins come close. A sum of k powers has a shorter form. Call it S, multiply
# it by α, and subtract: nearly everything cancels. We let sympy, a program for algebra, do it for k = 4.

# %%
alpha = sp.symbols("alpha", positive=True)
k, i = sp.symbols("k i", integer=True, positive=True)
S = sum(alpha**power for power in range(1, 5))
print("S           =", S)
print("alpha S     =", sp.expand(alpha * S))
print("S - alpha S =", sp.expand(S - alpha * S))

# %% [markdown]
# Of eight powers two are left: (1 − α) S = α − α⁵. The same happens for every k. Divide by 1 − α:

# %%
sp.summation(alpha**i, (i, 1, k))

# %% [markdown]
# So E[accepted] = α(1 − αᵏ) / (1 − α). Sympy treats α = 1 by itself, and rightly: there the fraction
# is 0/0, while k drafts that are always accepted are simply k.

# %% [markdown]
# This course grew out of two articles on the web: the *first*, "Speculative decoding acceptance by draft size", and the
# *second*, "Speculative acceptance rate". Both are good, and both slip in places where it is easy to slip. You will
# find the slips. ([Checkpoints](CHECKPOINTS.md) lists them all with the right values. Look there afterwards.)
#
# **Exercise 2.3** · easy · 4 minutes. The first article writes
#
# $$E[\text{accepted}] = \alpha + \alpha^2 + \dots + \alpha^K + \alpha^K = \frac{\alpha(1 - \alpha^K)}{1 - \alpha} .$$
#
# What is wrong with the sum on the left?
#
# - **a.** It also counts the target's own token, the one that every round adds.
# - **b.** It counts the last draft twice.
# - **c.** The first draft's term should be 1, not α.
# - **d.** Nothing: both sides are equal.

# %% tags=["exercise"]
# Write the letter in quotes. You may compute both sides at alpha = 0.8, K = 4 first.
# solution
culprit = "b"
# end

check(culprit, "culprit")

# %% [markdown] tags=["hints"]
# - At α = 0.8 and K = 4 the left side is 2.7712, the right side 2.3616. The coins said 2.35.
# - What must happen for draft K to be accepted, and with what chance? How often does that chance
#   appear on the left?

# %% [markdown]
# ## How many are emitted?
#
# One more in every round, rejected or not:
#
# $$E[\text{emitted}] = 1 + \alpha + \alpha^2 + \dots + \alpha^k .$$
#
# We call it **tokens per round**. With k = 0, plain decoding, it is exactly 1.

# %% [markdown]
# **Exercise 2.4** · medium · 6 minutes. Write tokens per round in its short form, without a sum, for
# any α from 0 to 1, **1 included**.

# %% tags=["exercise"]
def mean_emitted(alpha, k):
    # solution
    return k + 1 if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)
    # end


check(mean_emitted)

# %% [markdown] tags=["hints"]
# - Use the trick from above: S = 1 + α + … + αᵏ. Which two powers are left in S − αS?
# - At α = 1 the fraction is 0/0. How many tokens does a round emit when every draft is accepted?
# - The sum starts at α⁰ and ends at αᵏ: k + 1 terms.

# %% [markdown]
# Here is the published form (Leviathan and others, 2023, equation 1), and what becomes of it as α
# approaches 1:

# %%
tokens = (1 - alpha ** (k + 1)) / (1 - alpha)
display(tokens)
print("as alpha approaches 1:", sp.limit(tokens, alpha, 1))

# %% [markdown]
# The fraction has no value at α = 1, but the limit is k + 1: all drafts and the bonus token. How much
# does one more draft bring?

# %%
print("tokens(k) - tokens(k - 1) =", sp.simplify(tokens - tokens.subs(k, k - 1)))

# %% [markdown]
# **The k-th draft adds αᵏ tokens.** Each draft adds less than the one before, by the factor α. This is
# the first half of an answer to our question: draft one more token only if αᵏ tokens are worth what it
# costs. The cost is the second half, and waits in notebook 03.

# %% [markdown]
# The second article works through α = 0.8 and k = 4 and ends on 2.3616. Which of the two numbers is that?

# %%
print(f"accepted {expected_accepted(0.8, 4):.4f}   emitted {expected_tokens(0.8, 4):.4f}")

# %% [markdown]
# The accepted drafts, and that is what the article asks for. What reaches the text is one more: 3.3616.

# %% [markdown]
# ## Does the formula survive the coins?
#
# **Claim.** If every draft is accepted with probability α, independently, a round with k drafts emits
# (1 − αᵏ⁺¹) / (1 − α) tokens on average.
#
# We toss 20,000 rounds for each k and put a 95 % interval around the mean. An interval like this
# covers the true mean 95 times in 100.

# %%
rows = []
for drafts in (1, 2, 3, 4, 5, 8, 12):
    mean, low, high = mean_interval(simulate_rounds(0.8, drafts, n=20_000, seed=drafts).emitted)
    formula = expected_tokens(0.8, drafts)
    rows.append({"k": drafts, "formula": formula, "coins": mean, "low": low, "high": high, "inside": low < formula < high})
pd.DataFrame(rows).set_index("k").round(3)

# %% [markdown]
# The formula lies inside all seven intervals. But would a wrong formula have been caught? We try three
# at k = 4.

# %%
mean, low, high = mean_interval(coins.emitted)
print(f"coins                     {mean:.3f}   [{low:.3f}, {high:.3f}]")
for name, value in {
    "the formula": expected_tokens(0.8, 4),
    "without the extra token": expected_accepted(0.8, 4),
    "k in place of k + 1": (1 - 0.8**4) / (1 - 0.8),
    "plain geometric": 1 / (1 - 0.8),
}.items():
    print(f"{name:25} {value:.3f}   {'inside' if low < value < high else 'outside'}")

# %% [markdown]
# All three wrong ones lie far outside. The interval is only 0.04 wide, so this test can tell.

# %% [markdown]
# **It could have failed.** The claim says *independently*. Let the coins stick: after heads the next is
# heads with chance 0.9, after tails with chance 0.4. Easy stretches of text and hard ones behave like
# this. In the long run 0.8 of these coins are heads, as before.
#
# Now order matters, so we toss the coins along a text and let each round start where the last one
# ended. The interval is over texts: neighbours in one text resemble each other, so a round is not a
# fresh piece of evidence, but a text is.

# %%
def along(texts, k):
    """Tokens per round over all texts, with its interval."""
    every = [rounds_along_text(text, k) for text in texts]
    return ratio_interval([r.emitted.sum() for r in every], [len(r.emitted) for r in every])


sticky = [sticky_coins(stay=0.9, leave=0.4, n=2_000, seed=seed) for seed in range(100)]
shuffled = [np.random.default_rng(seed).permutation(text) for seed, text in enumerate(sticky)]

print(f"share of heads {np.mean(sticky):.3f}   formula {expected_tokens(0.8, 4):.3f}")
for name, texts in {"sticky": sticky, "the same coins, shuffled": shuffled}.items():
    mean, low, high = along(texts, k=4)
    print(f"{name:25} {mean:.3f}   [{low:.3f}, {high:.3f}]")

# %% [markdown]
# Same share of heads, different answer: 3.04 instead of 3.36. Each rejection starts a round right behind it, and there
# the next coin is bad, too. So more than one round in five starts behind tails, though only one place in five lies
# there. Shuffle the very same coins, so that only their order is lost, and the formula fits again.
#
# Perhaps 0.8 was the wrong α to put in? Turn the question round: which α would the formula need?

# %%
for drafts in (1, 2, 4, 8, 20):
    measured = along(sticky, drafts).mean
    print(f"k = {drafts:2}   sticky coins {measured:.3f}   needs α = {alpha_from_tokens(measured, drafts):.3f}")

# %% [markdown]
# A different one for each k. No single α makes the formula right for these coins: **α alone does not
# decide.** Notebook 06 comes back to this with real text.

# %% [markdown]
# ## A printed table
#
# The first article prints these tokens per round at α = 0.8. Its formula, (1 − α^(K+1)) / (1 − α), is
# the right one.

# %%
printed = {1: 1.80, 2: 2.44, 3: 2.95, 4: 3.36, 5: 3.69, 8: 4.40, 12: 4.82, 20: 4.99}
print("K      ", *(f"{K:5}" for K in printed))
print("printed", *(f"{value:5.2f}" for value in printed.values()))

# %% [markdown]
# **Exercise 2.5** · easy · 5 minutes. Which rows are wrong, beyond rounding to two decimals? Collect them
# as a dictionary from K, a number, to the right value: `{K: value, …}`. Two decimals are enough.

# %% tags=["exercise"]
# solution
right = {K: expected_tokens(0.8, K) for K in printed}
corrections = {K: right[K] for K in printed if abs(printed[K] - right[K]) > 0.005}
# end

check(corrections, "corrections")

# %% [markdown] tags=["hints"]
# - Compute each row with `expected_tokens(0.8, K)` and put it beside the printed one.
# - A value printed with two decimals may be off by 0.005 and still be right: 2.952 prints as 2.95.

# %% [markdown]
# One slip could explain several wrong rows, such as a k that is off by one. So for each of the last
# three rows we ask: which k would give the printed number?

# %%
for K in (8, 12, 20):
    needed = np.log(1 - printed[K] * (1 - 0.8)) / np.log(0.8) - 1
    print(f"K = {K:2}: {printed[K]:.2f} belongs to k = {needed:.1f}")

# %% [markdown]
# 8.5, 13.9, 26.9: no common slip. The lesson is small and useful: a formula and the table below it are
# two claims. **Compute the table.**

# %% [markdown]
# ## The ceiling
#
# What if the draft proposes without end? Then only a rejection stops a round, and the sum goes on for
# ever.

# %%
sp.summation(alpha**i, (i, 0, sp.oo))

# %% [markdown]
# For α below 1 the sum is 1 / (1 − α): 5 tokens at α = 0.8, 10 at α = 0.9. This is the **ceiling**. On
# the way there a round reaches the share (1 − αᵏ⁺¹) of it.

# %%
ks = [1, 2, 3, 4, 5, 8, 12, 20]
table = pd.DataFrame(
    {
        "tokens per round": [expected_tokens(0.8, n) for n in ks],
        "% of ceiling": [100 * (1 - 0.8 ** (n + 1)) for n in ks],
        "k-th draft adds": [0.8**n for n in ks],
        "drafts thrown away": [n - expected_accepted(0.8, n) for n in ks],
    },
    index=pd.Index(ks, name="k"),
)
table.round({"tokens per round": 3, "% of ceiling": 1, "k-th draft adds": 3, "drafts thrown away": 2})

# %% [markdown]
# Five drafts reach 74 % of the ceiling, eight reach 86.6 %. (The first article says 74 % and 88 %. The
# second is its printed 4.40 divided by 5: one wrong row, two wrong numbers.)
#
# Beyond that, drafting gets wasteful: at k = 20 a round throws away 16 of its 20 drafts, and the
# twentieth adds about one token in a hundred rounds.

# %%
figure, axes = plt.subplots(figsize=(7.5, 4.6))
ks = np.arange(0, 21)
notes = []
for alpha_value in (0.5, 0.7, 0.8, 0.9):
    tokens_at = [expected_tokens(alpha_value, int(n)) for n in ks]
    ceiling = 1 / (1 - alpha_value)
    (line,) = axes.plot(ks, tokens_at, markevery=2)
    axes.axhline(ceiling, color=line.get_color(), linestyle="-", linewidth=0.8, marker="")
    axes.text(20.4, ceiling, f"α = {alpha_value}: {ceiling:.3g}", va="center", color=line.get_color())
    notes.append(f"alpha {alpha_value}: {tokens_at[4]:.2f} at k 4, {tokens_at[8]:.2f} at k 8, "
                 f"{tokens_at[20]:.2f} at k 20, ceiling {ceiling:.2f}")
axes.set(xlabel="k, drafts per round", ylabel="tokens per round", xlim=(0, 20), ylim=(0, 10.6), xticks=range(0, 21, 4))
axes.set_title("Thin lines: the ceilings 1/(1 − α)")
show(figure, f"""Tokens per round against k from 0 to 20, each curve rising from 1 towards its ceiling.
    {"; ".join(notes)}. The lower alpha is, the sooner the curve is flat.""")

# %% [markdown]
# At α = 0.5 everything has happened by k = 4. At α = 0.9 the curve still climbs at k = 20. So a rule
# such as "never draft more than 10" can suit one α and not another.

# %% [markdown]
# **Exercise 2.6** · medium · 6 minutes. The smallest k that reaches at least the given share of the
# ceiling; k = 0 counts. For example, 90 % at α = 0.8. (α lies between 0 and 1, neither included; so does the share.)

# %% tags=["exercise"]
def drafts_for(alpha, share):
    # solution
    k = 0
    while 1 - alpha ** (k + 1) < share:
        k += 1
    return k
    # end


check(drafts_for)

# %% [markdown] tags=["hints"]
# - The share reached is 1 − αᵏ⁺¹. You may simply try k = 0, 1, 2, … (k = 0 is plain decoding: one token).
# - With logarithms: αᵏ⁺¹ ≤ 1 − share. Both logarithms are negative, so dividing turns the sign round:
#   k + 1 ≥ log(1 − share) / log(α). Then round up, and mind the + 1.

# %% [markdown]
# ## Accepted ÷ drafted is not α
#
# Engines count what they drafted and what they accepted, and many print the quotient as "acceptance
# rate". Let us print it too.

# %%
rows = []
for drafts in (1, 2, 3, 4, 5, 8):
    rounds = simulate_rounds(0.8, drafts, n=20_000, seed=drafts)
    rate = ratio_interval(rounds.accepted, rounds.drafted)
    rows.append({"k": drafts, "formula": prefix_rate(0.8, drafts), "coins": rate.mean, "low": rate.low, "high": rate.high})
pd.DataFrame(rows).set_index("k").round(3)

# %% [markdown]
# α was 0.8 all along. Only at k = 1 does the quotient say so; at k = 8 it has fallen to 0.42. Nothing got
# worse. A rejected draft drags all drafts after it into the denominator, though nobody judged them. We
# call the quotient the **prefix acceptance rate**: E[accepted] / k. In notebook 00 it was the kept share.

# %%
figure, axes = plt.subplots()
ks = np.arange(1, 13)
notes = []
for alpha_value in (0.9265, 0.8, 0.6):
    rates = [prefix_rate(alpha_value, int(n)) for n in ks]
    axes.plot(ks, rates, label=f"α = {alpha_value}")
    notes.append(f"alpha {alpha_value}: {rates[0]:.2f} at k 1, {rates[4]:.2f} at k 5, {rates[11]:.2f} at k 12")
axes.plot(5, 208 / 260, "*", color="black", markersize=16, linestyle="none", label="208 of 260, k = 5")
axes.set(xlabel="k, drafts per round", ylabel="accepted ÷ drafted", ylim=(0, 1), xticks=range(1, 13))
axes.legend(loc="lower left", ncols=2)
show(figure, f"""Prefix acceptance rate against k from 1 to 12, falling for every alpha. {"; ".join(notes)}.
    A star marks a reported run, 208 accepted of 260 drafted at k 5, a rate of {208 / 260:.2f}: it lies on the
    curve of alpha 0.9265, not on that of alpha 0.8.""")

# %% [markdown]
# The star is a real report, from [issue 3649 of llama.cpp](https://github.com/ggml-org/llama.cpp/issues/3649): 260
# drafted with k = 5, 208 accepted. Its rate is 0.80, and it lies on the curve of α = 0.9265. Reading 0.80 as α would
# place the star at k = 1.

# %%
rounds_counted = 260 / 5
print(f"rounds {rounds_counted:.0f}   emitted per round, counted: {1 + 208 / rounds_counted:.2f}")
print(f"formula with alpha = 0.80:   {expected_tokens(208 / 260, 5):.2f}")
print(f"formula with alpha = 0.9265: {expected_tokens(0.9265, 5):.2f}")

# %% [markdown]
# The counts themselves say 5 tokens per round. Taking the rate for α would have promised 3.69.

# %% [markdown]
# **Exercise 2.7** · medium · 7 minutes. Find α from the counts: `accepted` and `drafted` tokens of many
# rounds, each with k drafts. Three decimals are enough. (`expected_accepted` is imported, and good at α = 1 too.)

# %% tags=["exercise"]
def alpha_from_counts(accepted, drafted, k):
    # solution
    rate = accepted / drafted
    low, high = 0.0, 1.0
    for _ in range(60):  # halve the interval: the prefix rate grows with alpha
        middle = (low + high) / 2
        if expected_accepted(middle, k) / k < rate:
            low = middle
        else:
            high = middle
    return low
    # end


check(alpha_from_counts)

# %% [markdown] tags=["hints"]
# - α(1 − αᵏ) / (k(1 − α)) = accepted / drafted cannot be solved for α with pen and paper. But the left side
#   grows with α, so a search works: try the middle of 0 … 1, keep the half that holds the answer, repeat.
# - Or let `scipy.optimize.brentq(f, 0, 1)` find the zero of
#   f(α) = expected_accepted(α, k) / k − accepted / drafted.

# %% [markdown]
# The package has this inverse, and one for tokens per round. Both must give the same α.

# %%
print(f"from the prefix rate 0.80:   {alpha_from_prefix_rate(208 / 260, 5):.4f}")
print(f"from 5 tokens per round:     {alpha_from_tokens(5.0, 5):.4f}")

# %% [markdown]
# 0.9265 twice. Now a pair you will meet again: Llama-3.2-1B drafts for Llama-3.1-8B, in three runs with
# k = 3, 5 and 7. These rates were measured and published by others
# ([nin-ran-jan/HPML_Project](https://github.com/nin-ran-jan/HPML_Project): one L4 card, wikitext-2, greedy).

# %%
published = {3: 0.547, 5: 0.440, 7: 0.363}
pd.DataFrame(
    [{"k": n, "prefix rate": rate, "α": alpha_from_prefix_rate(rate, n)} for n, rate in published.items()]
).set_index("k").round(3)

# %% [markdown]
# The printed rate falls by a third, while α stays between 0.73 and 0.74. So **never compare acceptance
# rates at different k**; convert to α or to tokens per round first. (α even creeps up
# with k, as it did for the sticky coins. Notebook 06 takes that up.)

# %% [markdown]
# ## Two routes, one average
#
# A server writes chat at α = 0.5 and JSON at α = 0.9, as many tokens of one as of the other. How many
# tokens per round is that, at k = 5?

# %%
chat, json = expected_tokens(0.5, 5), expected_tokens(0.9, 5)
print(f"chat {chat:.3f}   json {json:.3f}")
print(f"mean of the two                  {(chat + json) / 2:.3f}")
print(f"formula at the mean alpha, 0.7   {expected_tokens(0.7, 5):.3f}")
texts = [sticky_coins(stay=a, leave=a, n=200_000, seed=1) for a in (0.5, 0.9)]  # stay = leave: independent
print(f"coins, 200,000 tokens of each    {along(texts, k=5).mean:.3f}")

# %% [markdown]
# Three numbers for one server, and the coins say that it is 2.77: neither the mean of the two nor the
# formula at the mean α. That a formula at the mean is not the mean of the formula is called *Jensen's
# inequality*. The other gap has a simpler cause. Which?

# %% [markdown]
# **Exercise 2.8** · hard · 6 minutes. Tokens per round of a server that writes the *same number of
# tokens* on every route, given the routes' α and k.

# %% tags=["exercise"]
def server_tokens(alphas, k):
    # solution
    rounds_per_token = [1 / expected_tokens(alpha, k) for alpha in alphas]
    return len(alphas) / sum(rounds_per_token)
    # end


check(server_tokens)

# %% [markdown] tags=["hints"]
# - Say each route writes 1,000 tokens. How many *rounds* does each need? The slow one needs more.
# - Tokens per round is all tokens divided by all rounds. This is the harmonic mean of the routes' values.

# %% [markdown]
# ## Tokens per round is not speedup
#
# At α = 0.8 and k = 5 a round emits 3.69 tokens. The first article calls that "a 3.7x speedup in token
# count per forward pass", and it is easy to stop reading after "speedup". A round also has to be paid
# for: five steps of the draft, and a target step that reads six places instead of one. Divide by that
# price and you have the speedup. Notebook 03 does.

# %% [markdown]
# ## Quiz

# %%
quiz("2.a")

# %%
quiz("2.b")

# %%
quiz("2.c")

# %%
quiz("2.d")

# %%
quiz("2.e")

# %%
quiz("2.f")

# %% [markdown]
# ## Recap
#
# - A round accepts at least n drafts with chance αⁿ; exactly n with chance αⁿ(1 − α), and all k with chance αᵏ.
#   It is a geometric distribution capped at k.
# - E[accepted] = α(1 − αᵏ) / (1 − α). E[emitted] is one more: (1 − αᵏ⁺¹) / (1 − α), tokens per round.
# - The k-th draft adds αᵏ tokens. The ceiling is 1 / (1 − α); k drafts reach the share 1 − αᵏ⁺¹ of it.
# - Accepted ÷ drafted falls as k grows while α stays. Convert before you compare.
# - The formula needs independent coins and one α. Sticky coins with the same mean break it, and a mean over
#   routes is not a route.
# - Tokens per round is not speedup yet.
#
# **Next.** Notebook 03 puts a price on a round and turns tokens into speedup. Notebook 04 leaves the
# coins behind and measures α on a real pair.
