# %% [markdown]
# # 03 · Speedup and break-even
#
# - **You will do:** put a price on a round, repair a published formula, and read the costs of somebody
#   else's machine out of three of their numbers.
# - **You will learn:** how tokens per round become speedup, which k is best, below which α it is better
#   not to speculate, and why a GPU checks six tokens in about the time in which it writes one.
# - **You need:** notebook 02, above all its tokens per round. No model and no GPU.
# - **Minutes:** 80

# %% [markdown]
# Notebook 02 counted what a round *yields*: with α = 0.8 and k = 5 it emits 3.69 tokens on average. This
# notebook counts what a round *costs*. Their quotient is what we are after:
#
# > **speedup = what a round yields ÷ what it costs**
#
# No clock runs here. We choose the costs ourselves, so that we can see what each of them does. Notebook 08
# measures them.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from course_lib.costs import RoundCosts
from course_lib.course import notebook
from course_lib.course.explore import explore
from course_lib.intervals import ratio_interval
from course_lib.plots import banner, show, style
from course_lib.roofline import DEVICES, MODELS, roofline_costs
from course_lib.simulate import simulate_rounds
from course_lib.theory import (
    alpha_from_prefix_rate,
    alpha_from_tokens,
    arithmetic_growth,
    expected_tokens,
)

check, quiz = notebook("03")
style()
banner("simulated", costs="chosen, or published by others and named", seeds="fixed, in each cell")

# %% [markdown]
# ## What a round costs
#
# A round with k drafts does three things:
#
# 1. **Draft.** The draft runs k times, one token each time.
# 2. **Verify.** The target runs once. It reads the k drafts *and* the last token of the text, which nobody
#    has read yet: k + 1 tokens. We call that the **width** of the step.
# 3. **Everything else.** Sampling, throwing away rejected drafts, talking to the GPU: the **overhead**.
#
# Plain decoding is one target step of width 1 for each token. It pays no overhead of this kind.

# %%
costs = RoundCosts(t_draft=1.0, t_verify={1: 10.0, 13: 11.2}, overhead=1.0)  # milliseconds

for k in (0, 1, 5, 12):
    print(f"k = {k:2}   draft {k * costs.t_draft:4.1f}   verify {costs.verify_seconds(k + 1):4.1f}   round {costs.round_seconds(k):4.1f} ms")

# %% [markdown]
# The target step takes 10 ms, and each further token of width adds 0.1 ms. (Two widths are given; in
# between, `RoundCosts` draws a straight line.) At k = 5 a round takes 16.5 ms.

# %%
tokens = expected_tokens(0.8, 5)
plain, speculative = tokens * costs.round_seconds(0), costs.round_seconds(5)

figure, axes = plt.subplots(figsize=(7.5, 2.8))
for i in range(4):
    width = min(1, tokens - i) * 10
    axes.barh(1, width, left=10 * i, color="0.85", edgecolor="black")
axes.barh(0, [1] * 5, left=range(5), color="#E69F00", edgecolor="black", label="draft step")
axes.barh(0, 10.5, left=5, color="0.85", edgecolor="black", label="target step")
axes.barh(0, 1, left=15.5, color="white", edgecolor="black", hatch="///", label="overhead")
axes.set(yticks=[0, 1], yticklabels=["one round, k = 5", "plain decoding"], xlabel="ms", xlim=(0, 40))
axes.set_title(f"Two ways to write {tokens:.2f} tokens")
axes.grid(axis="y", visible=False)
axes.legend(loc="lower right", fontsize=11)
show(figure, f"""Time to write {tokens:.2f} tokens, as bars. Plain decoding: {tokens:.2f} target steps of 10 ms, {plain:.1f} ms.
    One round with k 5: five draft steps of 1 ms, one target step of 10.5 ms and 1 ms of overhead,
    {speculative:.1f} ms. The second bar is {plain / speculative:.2f} times shorter.""")

# %% [markdown]
# The round is 2.24 times as fast, not 3.69 times. The first article of notebook 02 says of 3.69 tokens per
# round: "a 3.7x speedup in token count per forward pass of the target model". Read to its end the sentence is true. But what
# anyone remembers is "3.7x speedup", and no clock would show that.
#
# **Exercise 3.1** · easy · 5 minutes. The time of one round. `verify` is a dictionary from width to time, such as
# `{1: 10.0, 2: 10.1, 3: 10.2}`. k = 0 means plain decoding.

# %% tags=["exercise"]
def round_time(k, t_draft, verify, overhead):
    # solution
    if k == 0:
        return verify[1]
    return k * t_draft + verify[k + 1] + overhead
    # end


check(round_time)

# %% [markdown] tags=["hints"]
# - Three parts: k draft steps, one target step, the overhead. What does plain decoding have of these?
# - The target reads the k drafts and the token before them. Its width is k + 1.

# %% [markdown]
# ## Measure in target steps
#
# Milliseconds belong to one machine. Divide every cost by the plain target step and they travel better:

# %%
for k in (0, 1, 5, 12):
    print(f"k = {k:2}   a round costs {costs.break_even_tokens(k):.2f} target steps")

# %% [markdown]
# At k = 5 a round costs 1.65 target steps. In that time plain decoding would have written 1.65 tokens. So a round
# that emits more than 1.65 tokens is a gain, and one that emits fewer is a loss. **The cost of a round in target
# steps is also its break-even, in tokens.** That is why the method is called `break_even_tokens`.
#
# One cost gets a letter of its own: **c** = draft step ÷ target step. Here c = 0.1. If the target step costs the
# same at any width, and there is no overhead, a round costs k·c + 1 target steps, and
#
# $$\text{speedup} = \frac{1 - \alpha^{k+1}}{(1 - \alpha)\,(k c + 1)} .$$
#
# This is the published formula (Leviathan and others, 2023, theorem 3.8).
#
# **Exercise 3.2** · easy · 4 minutes. Write it, for any α, 1 included. `expected_tokens(alpha, k)` is imported.

# %% tags=["exercise"]
def speedup_iid(alpha, k, c):
    # solution
    return expected_tokens(alpha, k) / (k * c + 1)
    # end


check(speedup_iid)

# %% [markdown] tags=["hints"]
# - `expected_tokens` is the numerator, all of it. It has the case α = 1 too.
# - The denominator: k draft steps at c each, and one target step at 1.

# %% [markdown]
# The paper prints speedups for a draft that costs nothing, c = 0. Do we get the same?

# %%
paper = pd.DataFrame({"α": [0.6, 0.7, 0.8, 0.8, 0.9, 0.9], "k": [2, 3, 2, 5, 2, 10], "printed": [1.96, 2.53, 2.44, 3.69, 2.71, 6.86]})
free = RoundCosts(t_draft=0.0, t_verify={1: 1.0, 11: 1.0})
paper["ours"] = [free.speedup(expected_tokens(alpha, k), k) for alpha, k in zip(paper["α"], paper["k"], strict=True)]
paper.round(2)

# %% [markdown]
# We do, in all six rows. Only there, where the draft is free and width is free, tokens per round and speedup are
# the same number: 3.69 at α = 0.8 and k = 5.

# %% [markdown]
# ## Does the quotient survive a stopwatch?
#
# **Claim.** A text is written (tokens per round) ÷ (cost of a round in target steps) times as fast.
#
# Averages are slippery. Here we divide an average yield by an average cost, while a real text is a sum of
# rounds, no two alike. So we act it out: 200 texts of 100 rounds, where every step of either model takes
# another time at random, by a fifth or so more or less. Then we stop the total time, both ways.

# %%
def stopwatch(costs, alpha, k, seed):
    """Speedup over 200 texts of 100 rounds, with its interval; every step takes a random time."""
    random = np.random.default_rng([seed, 1])  # not the numbers that tossed the coins

    def step(mean, shape):
        return mean * random.gamma(25, 1 / 25, shape)

    emitted = simulate_rounds(alpha, k, n=20_000, seed=seed).emitted.reshape(200, 100)
    rounds = step(costs.t_draft, (k, 200, 100)).sum(axis=0)
    rounds += step(costs.verify_seconds(k + 1), (200, 100)) + step(costs.overhead, (200, 100))
    plain = [step(costs.verify_seconds(1), n).sum() for n in emitted.sum(axis=1)]
    return ratio_interval(plain, rounds.sum(axis=1))


print(" k   quotient   stopwatch")
for k in (1, 2, 5, 8, 12):
    mean, low, high = stopwatch(costs, 0.8, k, seed=k)
    predicted = costs.speedup(expected_tokens(0.8, k), k)
    print(f"{k:2}   {predicted:.3f}      {mean:.3f} [{low:.3f}, {high:.3f}]   {'inside' if low < predicted < high else 'OUTSIDE'}")

# %% [markdown]
# Inside, five times. The averages may be divided, because the total time is the number of rounds times the mean
# cost, and the number of rounds is the tokens divided by the mean yield.

# %% [markdown]
# **It could have failed.** The *formula* with k·c + 1 assumes more than the claim: that width is free. Here are
# verify times that somebody measured on a mixture of experts, a kind of model where each token wakes up weights
# of its own ([vllm-mlx, pull request 763](https://github.com/waybarrios/vllm-mlx/pull/763)). Same stopwatch, and a draft that costs nothing at all:

# %%
experts = RoundCosts(t_draft=0.0, t_verify={1: 8.47, 2: 13.49, 3: 15.64, 5: 20.67, 8: 28.13})  # ms

print(" k   k·c + 1 formula   quotient, measured widths   stopwatch")
for k in (1, 2, 4, 7):
    mean, low, high = stopwatch(experts, 0.8, k, seed=k)
    formula, predicted = expected_tokens(0.8, k), experts.speedup(expected_tokens(0.8, k), k)
    print(f"{k:2}   {formula:9.3f}         {predicted:9.3f}                 {mean:.3f} [{low:.3f}, {high:.3f}]")

# %% [markdown]
# The formula promises up to 4.16 times; the stopwatch shows at most 1.38. The quotient is right in both worlds, the
# formula only where its assumption holds. So measure the *width*, not only the draft.

# %% [markdown]
# ## Two napkins
#
# The second article has small sums of the kind one does on a napkin. Let us do them again.
#
# **Exercise 3.3** · easy · 3 minutes. α = 0.8 and k = 4. Drafting these four tokens takes 30 % of a plain target
# step, all four together; width and overhead are free. What is the speedup, to two decimals?

# %% tags=["exercise"]
# solution
napkin = expected_tokens(0.8, 4) / 1.3
# end

check(napkin, "napkin")

# %% [markdown] tags=["hints"]
# - How many tokens does a round emit at α = 0.8 and k = 4? (Not: how many drafts does it accept.)
# - The round costs the verify, 1, and the drafting, 0.3.

# %% [markdown]
# The article rounds 3.36 tokens down to 3 before it divides, and so arrives at 2.3 where 2.59 is right. Rounding early
# costs 11 % of the result here. Its second napkin starts from "around 3 tokens" too, and says 2.4:

# %%
for alpha, k, drafting in ((0.8, 4, 0.30), (0.7, 5, 0.25), (0.4, 4, 0.30), (0.3, 5, 0.25)):
    yields, price = expected_tokens(alpha, k), 1 + drafting
    print(f"α = {alpha}  k = {k}   accepted {yields - 1:.4f}   emitted {yields:.4f}   cost {price:.2f}   speedup {yields / price:.3f}")

# %% [markdown]
# 2.941 ÷ 1.25 is 2.35. Close to the printed number, by luck.
#
# The last two rows are more surprising. Of α = 0.4 the article says that 0.65 accepted drafts are "barely worth it", and of
# α = 0.3 that k = 5 "can become a net loss". At these prices both are *gains*: 1.27 and 1.14 times. A round that accepts
# only 0.43 drafts still emits 1.43 tokens, and 1.43 is more than 1.25. It is a loss as soon as the round costs
# more than 1.4275 target steps, which is easily reached: six tokens of width are not free everywhere, and there is
# the overhead.
#
# The rule the article gives is "accepted tokens per round exceed 1 + cost_ratio". Which number has to exceed the cost?
#
# **Exercise 3.4** · easy · 4 minutes. Does it pay? `accepted` is the mean number of accepted drafts in a round, `cost` the whole
# round's cost in target steps, its verify included.

# %% tags=["exercise"]
def pays(accepted, cost):
    """True if speculating is faster than plain decoding."""
    # solution
    return accepted + 1 > cost
    # end


check(pays)

# %% [markdown] tags=["hints"]
# - In `cost` target steps plain decoding writes `cost` tokens. How many does the round write?
# - A round emits its accepted drafts and one token of the target: accepted + 1.

# %% [markdown]
# **Emitted tokens must exceed the round's cost.** Asking the same of accepted drafts means asking for one
# token more than needed, and switches off a draft that works.

# %% [markdown]
# ## The article's own formula
#
# The first article goes further than the napkin. Its verify has a fixed part and a part for each token:
#
# ```python
# def net_speedup(alpha, K, t_draft, t_verify_base, t_verify_per_token):
#     expected = (1 - alpha**(K+1)) / (1 - alpha)
#     draft_time = K * t_draft
#     verify_time = t_verify_base + K * t_verify_per_token
#     round_time = draft_time + verify_time
#     baseline_time = expected * (t_verify_base + t_verify_per_token)
#     return baseline_time / round_time
# ```
#
# The shape is good. One detail shows if we ask it about k = 0, where nothing is drafted and the speedup must be 1:

# %%
def net_speedup(alpha, K, t_draft, t_verify_base, t_verify_per_token):
    expected = (1 - alpha ** (K + 1)) / (1 - alpha)
    verify_time = t_verify_base + K * t_verify_per_token
    return expected * (t_verify_base + t_verify_per_token) / (K * t_draft + verify_time)


for base, per_token in ((10.0, 0.1), (8.0, 2.0), (5.9, 2.6)):
    print(f"base {base:4}  per token {per_token}   K = 0: {net_speedup(0.8, 0, 1.0, base, per_token):.3f} times as fast by doing nothing")

# %% [markdown]
# **Exercise 3.5** · medium · 7 minutes. A target step of width n takes `base + n * per_token`. Plain decoding reads one token
# at a time, and the article has that right. Its verify is one token short. Write the function as it should be. (α stays below 1.)

# %% tags=["exercise"]
def net_speedup_right(alpha, K, t_draft, base, per_token):
    # solution
    round_time = K * t_draft + base + (K + 1) * per_token
    return expected_tokens(alpha, K) * (base + per_token) / round_time
    # end


check(net_speedup_right)

# %% [markdown] tags=["hints"]
# - With K = 0 a round should be exactly one plain step. What does the article's verify cost then?
# - Which tokens does a verify read? K drafts, and the one they continue.

# %% [markdown]
# Does it matter? That depends on what a token of width costs:

# %%
rows = []
for name, base, per_token in (("width nearly free", 10.0, 0.1), ("one token adds 25 %", 8.0, 2.0), ("mixture of experts", 5.9, 2.6)):
    every_token = RoundCosts(t_draft=1.0, t_verify={1: base + per_token, 13: base + 13 * per_token})
    as_printed = RoundCosts.linear(t_draft=1.0, base=base, per_token=per_token)
    tokens = expected_tokens(0.8, 4)
    rows.append({"": name, "as printed": as_printed.speedup(tokens, 4), "every token paid": every_token.speedup(tokens, 4)})
pd.DataFrame(rows).set_index("").round(3)

# %% [markdown]
# Under 1 % where width is nearly free, a tenth and more where it is not. `RoundCosts.linear` keeps the article's form, so that its
# numbers can be compared; a table of measured widths does not need it.

# %% [markdown]
# ## The best k
#
# Now the question of this course, in its simplest form. α is 0.8 at every place. How does the speedup depend on k, for
# drafts of different price?

# %%
figure, axes = plt.subplots(figsize=(7.5, 4.6))
ks = np.arange(0, 21)
notes = []
for c in (0.0, 0.05, 0.1, 0.2, 0.4):
    flat = RoundCosts(t_draft=c, t_verify={1: 1.0, 21: 1.0})
    speedups = [flat.speedup(expected_tokens(0.8, int(k)), int(k)) for k in ks]
    best, top = flat.best_k(0.8, 20)
    (line,) = axes.plot(ks, speedups, markevery=2, label=f"c = {c}")
    axes.plot(best, top, marker="*", markersize=17, color=line.get_color(), markeredgecolor="white", linestyle="none")
    notes.append(f"c {c}: best k {best}, {top:.2f} times, and {speedups[20]:.2f} at k 20")
axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
axes.set(xlabel="k, drafts per round", ylabel="speedup", xticks=range(0, 21, 4), title="α = 0.8, width and overhead free; ★ best k")
axes.legend(ncols=3, loc="upper left", fontsize=11)
axes.set_ylim(0, 6.2)
show(figure, f"""Speedup against k from 0 to 20 at alpha 0.8, for five prices of a draft step. {"; ".join(notes)}.
    Every curve but the free one rises, has one flat top, and falls.""")

# %% [markdown]
# Only a free draft should propose without end. At c = 0.1 the best k is 6, at c = 0.4 it is 2, and from k = 9 on that
# draft is a loss. Note how *flat* the tops are:

# %%
tenth = RoundCosts(t_draft=0.1, t_verify={1: 1.0, 21: 1.0})
print("  ".join(f"k={k}: {tenth.speedup(expected_tokens(0.8, k), k):.3f}" for k in (2, 3, 4, 5, 6, 7, 8, 10)))

# %% [markdown]
# Any k from 4 to 8 is within 3 % of the best. This is good news (a rough k is fine) and a warning (to tell k = 5 from
# k = 6 on a machine takes a very good clock).
#
# Where is the top? A (k+1)-th draft adds αᵏ⁺¹ tokens and c target steps. It pays as long as it brings more tokens for its
# time than the rounds bring anyway, and what they bring is the speedup S:
#
# $$\alpha^{k+1} > c \cdot S(k) .$$

# %%
print(" k   α^(k+1)   c·S(k)")
for k in range(1, 9):
    speedup = tenth.speedup(expected_tokens(0.8, k), k)
    print(f"{k:2}   {0.8 ** (k + 1):.3f}     {0.1 * speedup:.3f}    {'one more' if 0.8 ** (k + 1) > 0.1 * speedup else 'stop' }")

# %% [markdown]
# The rule stops at k = 6, where the star is. "Go on while αᵏ⁺¹ is above c" would go on to k = 10: a draft must be worth
# more than its own time, because the time could go into the next round.
#
# **Exercise 3.6** · medium · 7 minutes. The best k from 0 to `max_k`, where width and overhead are free. Return 0 if no k is faster
# than plain decoding. Of two equally good ones take the smaller.

# %% tags=["exercise"]
def pick_k(alpha, c, max_k):
    # solution
    best, top = 0, 1.0
    for k in range(1, max_k + 1):
        speedup = expected_tokens(alpha, k) / (k * c + 1)
        if speedup > top:
            best, top = k, speedup
    return best
    # end


check(pick_k)

# %% [markdown] tags=["hints"]
# - Compute the speedup for k = 0, 1, …, max_k and keep the best. At k = 0 it is 1.
# - `range(1, max_k + 1)` includes max_k. Use `>` and not `>=`, and a tie goes to the smaller k.

# %% [markdown]
# ## A map of the best k
#
# The same for every α and c at once. On the left, width is free. On the right each token of width adds 5 % of a target
# step, and a round has an overhead of 10 %.

# %%
def best_of(alpha, c, per_token, overhead, max_k=12):
    """Best k and its speedup on a grid; alpha and c are arrays that broadcast."""
    k = np.arange(max_k + 1).reshape(-1, 1, 1)
    yields = (1 - alpha ** (k + 1)) / (1 - alpha)
    price = np.where(k > 0, 1 + k * (c + per_token) + overhead, 1.0)
    return np.argmax(yields / price, axis=0), np.max(yields / price, axis=0)


alphas, cs = np.linspace(0.005, 0.985, 197), np.linspace(0, 0.8, 161)
worlds = {"width and overhead free": (0.0, 0.0), "5 % a token, 10 % overhead": (0.05, 0.10)}
steps = [-0.5, 0.5, 1.5, 2.5, 3.5, 5.5, 8.5, 12.5]
names = ["off", "1", "2", "3", "4–5", "6–8", "9–12"]
shades = ["0.93", *plt.colormaps["YlGnBu"](np.linspace(0.1, 0.75, 6))]
figure, panels = plt.subplots(1, 2, figsize=(10, 4.8), sharey=True)
off = {}
for axes, (name, (per_token, overhead)) in zip(panels, worlds.items(), strict=True):
    best, top = best_of(alphas[None, :], cs[:, None], per_token, overhead)
    off[name] = (best == 0).mean()
    filled = axes.contourf(alphas, cs, best, levels=steps, colors=shades, hatches=["//"] + [None] * 6)
    lines = axes.contour(alphas, cs, top, levels=[1.2, 1.5, 2, 3], colors="black", linewidths=1.2)
    axes.clabel(lines, fmt="%g×", fontsize=11)
    axes.set(xlabel="α", title=name)
    axes.grid(visible=False)
    axes.text(0.06, 0.7, "off", fontsize=16, backgroundcolor="white")
panels[0].set_ylabel("c = draft step ÷ target step")
bar = figure.colorbar(filled, ax=panels, ticks=np.convolve(steps, [0.5, 0.5], "valid"))
bar.ax.set_yticklabels(names)
bar.set_label("best k")
point = {w: best_of(np.full((1, 1), 0.7), np.full((1, 1), 0.2), *worlds[w]) for w in worlds}
show(figure, f"""Two maps of the best k over alpha (0 to 0.985, across) and c (0 to 0.8, up), with lines of equal speedup. With width and
    overhead free, off covers {off["width and overhead free"]:.0%} of the map: exactly the side where c exceeds alpha; k grows
    towards high alpha and low c. With 5 % for each token of width and 10 % overhead, off covers
    {off["5 % a token, 10 % overhead"]:.0%}. At alpha 0.7 and c 0.2 the left map says k {point["width and overhead free"][0][0, 0]} and
    {point["width and overhead free"][1][0, 0]:.2f} times, the right one k {point["5 % a token, 10 % overhead"][0][0, 0]} and
    {point["5 % a token, 10 % overhead"][1][0, 0]:.2f} times.""")

# %% [markdown]
# On the left the border of "off" is the diagonal: **with width free, some k pays exactly if α is above c** (a corollary in
# the paper), and k = 1 alone already gives (1 + α) ÷ (1 + c). On the right the border has moved: small costs that nobody
# talks about can switch off a draft that looked fine.
#
# The dark strip at the lower right says why large k are rare: they need a draft that is nearly always right, or nearly free.

# %% [markdown]
# ## Break-even
#
# Turn the question round. A round costs what it costs; from which α on does it pay?
#
# **Exercise 3.7** · medium · 7 minutes. The α at which k drafts break even, given the round's cost in target steps. If no α does it,
# return `None`. (`alpha_from_tokens(tokens, k)` is imported.)

# %% tags=["exercise"]
def least_alpha(cost, k):
    # solution
    if cost > k + 1:
        return None
    return alpha_from_tokens(cost, k)
    # end


check(least_alpha)

# %% [markdown] tags=["hints"]
# - At break-even a round emits as many tokens as it costs target steps. `alpha_from_tokens` turns tokens into α.
# - What is the most a round with k drafts can emit? If it costs more than that, even α = 1 is a loss.

# %%
drafts = {
    "c = 0.05, width free": RoundCosts(0.05, {1: 1.0, 13: 1.0}),
    "c = 0.2, width free": RoundCosts(0.2, {1: 1.0, 13: 1.0}),
    "c = 0.2, 5 % a token, 10 % overhead": RoundCosts(0.2, {1: 1.0, 13: 1.6}, overhead=0.1),
    "free draft, mixture of experts": experts,
}
figure, axes = plt.subplots(figsize=(7.5, 4.6))
notes = []
for name, prices in drafts.items():
    ks = np.arange(1, max(prices.t_verify))
    alphas_needed = [prices.break_even_alpha(int(k)) for k in ks]
    axes.plot(ks, alphas_needed, label=name)
    notes.append(f"{name}: {alphas_needed[0]:.3f} at k 1, {alphas_needed[3]:.3f} at k 4, {alphas_needed[-1]:.3f} at k {ks[-1]}")
axes.set(xlabel="k, drafts per round", ylabel="α needed to break even", ylim=(0, 1), xticks=range(1, 13))
axes.legend(fontsize=11, loc="lower right")
show(figure, f"""Break-even alpha against k from 1 to 12 for four sets of costs. {"; ".join(notes)}. Above its line a draft pays.""")

# %% [markdown]
# With width free, k = 1 is the easiest to satisfy: it needs α = c. Each further draft has to be paid by ever rarer
# acceptances, so the lines rise.
#
# The mixture of experts behaves differently. Its draft is *free*, and still needs α = 0.593 at k = 1. And its line first
# *falls*: the second token of width is dear (5 ms), the third is not (2 ms). There, two drafts can pay where one does not:

# %%
for k in (1, 2, 3, 4, 7):
    print(f"k = {k}   must emit {experts.break_even_tokens(k):.4f}   at α = 0.57: emits {expected_tokens(0.57, k):.4f}, {experts.speedup(expected_tokens(0.57, k), k):.3f} times")

# %% [markdown]
# "Start with k = 1 to be safe" is no rule, then. Look at the costs first.

# %% [markdown]
# ## Why checking is nearly free, and when it stops being so
#
# Verifying k + 1 tokens is k + 1 times the arithmetic of writing one. Why does it not take k + 1 times as long? The first
# article says the verify is "compute-bound and fast". It is the other way round. Let us count what one step of
# Llama-3.1-8B must do on an H100: *read* every weight, and *multiply* with every weight, once for each token.

# %%
model, chip = MODELS["llama-3.1-8b"], DEVICES["h100"]
reading = 2 * model.weights_read / chip.bandwidth  # two bytes a weight
print(f"{chip.name}: {chip.bandwidth / 1e12:.2f} TB/s, {chip.flops / 1e12:.0f} TFLOP/s\n")
print("tokens in flight   reading   multiplying")
for n in (1, 2, 6, 64, 256, 295, 384, 1024):
    multiplying = 2 * model.matrices * n / chip.flops  # one multiplication and one addition
    print(f"{n:10}        {reading * 1e3:5.2f} ms    {multiplying * 1e3:6.2f} ms    {'waits for memory' if reading > multiplying else 'waits for arithmetic'}")

# %% [markdown]
# One token: 4.48 ms to read the weights, 0.02 ms to multiply. The chip is idle for 99.7 % of the step. Six tokens: the
# same reading, 0.09 ms of multiplying. With few requests at a time a verify is bound by *memory*, and that is the
# whole reason why it is cheap: the arithmetic for the drafts fits into time that was wasted anyway.
#
# The idle time runs out at 295 tokens in flight. This number is the chip's **ridge**: FLOP/s ÷ bytes/s, the FLOP it can do
# for each byte it reads. A weight is two bytes to read, and two FLOP for each token; the twos cancel, so the ridge is also
# a number of tokens. From there on a verify *is* compute-bound, and every drafted token is paid for in full.
#
# **Exercise 3.8** · medium · 4 minutes. A server writes for several requests in the same step. Together they are a *batch*, and each
# is a *row* of it. So batch × (k + 1) tokens are in flight. What is the largest k, a whole number, that keeps them at or under
# the ridge? 0 if there is none. (`ridge` need not be a whole number.)

# %% tags=["exercise"]
def free_drafts(batch, ridge):
    # solution
    return max(int(ridge // batch) - 1, 0)
    # end


check(free_drafts)

# %% [markdown] tags=["hints"]
# - batch × (k + 1) ≤ ridge. Solve for k, and round down.
# - With more rows than the ridge has tokens the result is negative. There is no such k.

# %% [markdown]
# ## Arithmetic grows while time shrinks
#
# Nothing is free, then; it is paid in arithmetic. Every rejected draft was read by the target for nothing. How many tokens does
# the target read for each one that is written? It reads k + 1 in a round, so (k + 1) ÷ tokens per round. (With a draft too small
# to count; Leviathan and others, theorem 3.11.)

# %%
figure, axes = plt.subplots()
notes = []
for alpha in (0.6, 0.8, 0.9):
    ks = range(0, 13)
    times = [1 / expected_tokens(alpha, k) for k in ks]
    works = [arithmetic_growth(alpha, k, c=0.0) for k in ks]
    (line,) = axes.plot(works, times, label=f"α = {alpha}")
    for k in (2, 5, 10) if alpha != 0.8 else (10,):
        offset = (-32, -12) if alpha == 0.9 else (6, 5)
        axes.annotate(f"k={k}", (works[k], times[k]), textcoords="offset points", xytext=offset, fontsize=11)
    notes.append(f"alpha {alpha}: at k 2 time {times[2]:.2f} and arithmetic {works[2]:.2f}, at k 5 {times[5]:.2f} and {works[5]:.2f}, at k 10 {times[10]:.2f} and {works[10]:.2f}")
axes.axhline(1, color="0.5", linewidth=1, linestyle="-", marker="")
axes.set(xlabel="arithmetic per token (plain decoding = 1)", ylabel="time per token (plain = 1)", ylim=(0, 1.05), xlim=(0.9, 5.3))
axes.legend(loc="upper right")
show(figure, f"""Time per token against arithmetic per token, both relative to plain decoding, as k grows from 0 to 12, with draft and width free.
    {"; ".join(notes)}. Each further draft saves less time and costs more arithmetic.""")

# %% [markdown]
# At α = 0.6 two drafts make the text 1.96 times as fast, for 1.5 times the arithmetic; ten drafts reach 2.5 times, for
# 4.4 times the arithmetic. As long as arithmetic lies idle, nobody minds. On a busy server it does not lie idle: other users' tokens could have
# had it. That is why a large k, best for one user alone, can be a loss for many.

# %% [markdown]
# ## Try it yourself
#
# The figure below has sliders while the notebook runs: α, and the price of a draft step (c), of each token of width, and of the
# overhead, all in target steps. On a page you see their starting point. Watch the star as you raise one of them.

# %%
def draw(alpha, c, width, overhead):
    prices = RoundCosts(c, {1: 1.0, 13: 1 + 12 * width}, overhead)
    ks = range(0, 13)
    speedups = [prices.speedup(expected_tokens(alpha, k), k) for k in ks]
    best, top = prices.best_k(alpha, 12)
    figure, axes = plt.subplots(figsize=(7, 3.6))
    axes.plot(ks, speedups)
    axes.plot(best, top, marker="*", markersize=18, color="#D55E00", linestyle="none")
    axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
    axes.set(xlabel="k, drafts per round", ylabel="speedup", ylim=(0, max(3, 1.1 * top)), xticks=list(ks))
    advice = f"best k is {best}, {top:.2f} times" if best else "off: no k is faster than plain decoding"
    axes.set_title(f"α = {alpha:g}: {advice}")
    return figure, f"""Speedup against k from 0 to 12 at alpha {alpha:g}, draft step {c:g}, {width:g} for each token of width, overhead
        {overhead:g}: {advice}; {speedups[1]:.2f} at k 1, {speedups[4]:.2f} at k 4, {speedups[12]:.2f} at k 12."""


explore(draw, alpha=(0.0, 0.99, 0.01, 0.8), c=(0.0, 0.8, 0.01, 0.1), width=(0.0, 0.5, 0.01, 0.02), overhead=(0.0, 0.5, 0.01, 0.05))

# %% [markdown]
# And nine settings side by side, for those who cannot slide:

# %%
figure, panels = plt.subplots(3, 3, figsize=(10, 7.5), sharex=True, sharey="row")
notes = []
for row, alpha in zip(panels, (0.5, 0.7, 0.9), strict=True):
    for axes, c in zip(row, (0.02, 0.1, 0.3), strict=True):
        bests = []
        for label, width, look in (("width free", 0.0, {"color": "#0072B2", "linestyle": "-", "marker": "o"}),
                                   ("each token of width 0.1", 0.1, {"color": "#D55E00", "linestyle": "--", "marker": "s"})):
            prices = RoundCosts(c, {1: 1.0, 13: 1 + 12 * width})
            speedups = [prices.speedup(expected_tokens(alpha, k), k) for k in range(13)]
            best, top = prices.best_k(alpha, 12)
            axes.plot(range(13), speedups, markersize=4, label=label, **look)
            axes.plot(best, top, marker="*", markersize=15, color=look["color"], linestyle="none")
            bests.append(f"k {best} ({top:.2f})" if best else "off")
        axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
        axes.set_title(f"α = {alpha}, c = {c}", fontsize=12)
        notes.append(f"alpha {alpha}, c {c}: {bests[0]}, {bests[1]}")
panels[0, 2].legend(fontsize=11, loc="upper right")
for axes in panels[-1]:
    axes.set(xticks=range(0, 13, 4), xlabel="k")
for axes in panels[:, 0]:
    axes.set(ylabel="speedup")
show(figure, f"""Nine panels of speedup against k from 0 to 12, alpha 0.5, 0.7 and 0.9 down, c 0.02, 0.1 and 0.3 across; stars mark
    the best k. For each, the best k and its speedup first with width free, then with 0.1 target steps for each token of width.
    {"; ".join(notes)}.""")

# %% [markdown]
# Compare the columns. On the left drafting is nearly free, so the price of width decides: a tenth of a target step for each token
# halves the best k at α = 0.5 and 0.7, and halves the speedup at α = 0.9. On the right the draft itself is dear, and width hardly
# moves the star.

# %% [markdown]
# ## What the formula misses in practice
#
# The paper itself compared its formula with a clock, translating German with T5-XXL and three drafts:

# %%
t5 = pd.DataFrame(
    {"temperature": [0, 0, 0, 1, 1, 1], "draft": ["small", "base", "large"] * 2, "k": [7, 7, 7, 7, 5, 3],
     "α": [0.75, 0.80, 0.82, 0.62, 0.68, 0.71], "c": [0.02, 0.04, 0.11] * 2, "measured": [3.4, 2.8, 1.7, 2.6, 2.4, 1.4]}
)
t5.insert(5, "formula", [expected_tokens(a, k) / (k * c + 1) for a, k, c in zip(t5["α"], t5["k"], t5["c"], strict=True)])
t5.round(2)

# %% [markdown]
# For the small draft the formula is near, a little low even. For the large one it promises 2.50 times and the clock says 1.7.
# Something in those rounds costs more than k·c + 1. In the other direction, one may read the cost *out of* published results:
# from tokens per round and speedup follows what a round must have cost.
#
# **Exercise 3.9** · hard · 9 minutes. Somebody publishes for several k the prefix rate (accepted ÷ drafted) and the speedup. Return the two
# numbers (a, b) of the straight line a + b·k that fits the cost of a round, in target steps. `np.polyfit(x, y, 1)` fits a line
# and returns its slope first.

# %% tags=["exercise"]
def cost_line(ks, rates, speedups):
    # solution
    costs = [(1 + k * rate) / speedup for k, rate, speedup in zip(ks, rates, speedups, strict=True)]
    slope, constant = np.polyfit(ks, costs, 1)
    return constant, slope
    # end


check(cost_line)

# %% [markdown] tags=["hints"]
# - A round emits 1 + k × rate tokens. That is exact; no α is needed.
# - speedup = tokens ÷ cost, so cost = tokens ÷ speedup. Then fit a line through (k, cost).

# %% [markdown]
# Here it is for a pair of notebook 02: Llama-3.2-1B drafting for Llama-3.1-8B on an L4 card, greedy (published by
# nin-ran-jan/HPML_Project).

# %%
published = pd.DataFrame({"k": [3, 5, 7], "prefix rate": [0.547, 0.440, 0.363], "speedup": [1.30, 1.21, 1.09]}).set_index("k")
published["tokens"] = 1 + published.index * published["prefix rate"]
published["cost"] = published["tokens"] / published["speedup"]
b, a = np.polyfit(published.index, published["cost"], 1)
bound = roofline_costs(MODELS["llama-3.1-8b"], MODELS["llama-3.2-1b"], DEVICES["l4"], batch=1, context=500, max_k=12)
width = (bound.verify_seconds(13) - bound.verify_seconds(1)) / 12
print(published.round(3))
print(f"\na round cost {a:.2f} + {b:.2f} k target steps")
print(f"from bytes and FLOP alone a draft step would be {bound.t_draft / bound.round_seconds(0):.3f}, a token of width {width / bound.round_seconds(0):.3f}")

# %% [markdown]
# Three points on a line: 1.12 + 0.30 k. But 0.30 is *not* c. Each further draft makes the target's step wider by one, so the
# slope is a draft step **and a token of width**. The 1.12 is the plain step and the overhead (and, where the second token of
# width is dearer than the third, that jump).
#
# Even so the 0.30 is a surprise: from bytes and FLOP the two should come to little more than half of it. Either may be dearer.
# A small model's step is short, so all that comes with a step weighs more; and width is free on no real machine. Speedups alone
# cannot tell the two apart. **Size does not give the price of a draft. Measure it**, as notebook 08 does, draft and width apart.
#
# For other k the sum is enough:

# %%
fitted = RoundCosts(t_draft=b, t_verify={1: 1.0, 13: 1.0}, overhead=a - 1)  # b: draft and width together
alpha = alpha_from_prefix_rate(0.547, 3)
print(f"α = {alpha:.3f}:  " + "  ".join(f"k={k}: {fitted.speedup(expected_tokens(alpha, k), k):.2f}" for k in (1, 2, 3, 4, 5, 7)))

# %% [markdown]
# The sweep took k = 3, 5 and 7 and found k = 3 the best, falling from there. By these costs k = 2 is as good, for one draft
# less. A sweep that starts at 3 cannot see that.
#
# **Which draft, then?** Three of one family on one laptop (Qwen2.5 for a 7B target, published by spec-decode-advisor; the cost
# is per drafted token, in target steps):

# %%
family = pd.DataFrame({"draft": ["0.5B", "1.5B", "3B"], "α": [0.687, 0.739, 0.773], "cost": [0.383, 0.535, 0.702], "measured best": [1.15, 1.03, 0.90]})
prices = [RoundCosts(cost, {1: 1.0, 13: 1.0}) for cost in family["cost"]]
family["formula's best"] = [price.best_k(alpha, 12)[1] for price, alpha in zip(prices, family["α"], strict=True)]
family.set_index("draft").round(2)

# %% [markdown]
# A larger draft is right more often, and costs more than that is worth: the *smallest* wins. The formula has the
# order right, and is 0.07 to 0.14 too high for each. There is a rule of thumb that a draft should be 4 to 10 times
# smaller than its target. It is no law: the quotient of yield and cost decides, and on another machine a draft 57 times
# smaller (1.24 billion weights against 70.6) did best of three (Llama-3.1-70B with 1B, 3B and 8B on an MI300X: 2.31, 2.28 and
# 2.04 times; ROCm blogs).

# %% [markdown]
# ## A look ahead: load
#
# All of this at once, for the 8B and 1B Llama pair on an H100. The costs are a **roofline**: the least time that bytes and FLOP
# allow, at α = 0.74. Real steps are slower, so read the shape, not the digits.

# %%
pair = MODELS["llama-3.1-8b"], MODELS["llama-3.2-1b"]
batches = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharex=True)
notes = []
for context in (100, 1000, 8000):
    found = [roofline_costs(*pair, chip, batch, context, max_k=12).best_k(0.74, 12) for batch in batches]
    panels[0].plot(batches, [top for _, top in found], label=f"context {context:,}")
    panels[1].plot(batches, [best for best, _ in found], label=f"context {context:,}")
    said = ", ".join(f"{top:.2f} with k {best} at batch {batch}" if best else f"off at batch {batch}"
                     for batch, (best, top) in zip(batches, found, strict=True) if batch in (1, 32, 128, 256, 512))
    notes.append(f"context {context}: {said}")
panels[0].axhline(1, color="black", linewidth=1, linestyle="-", marker="")
panels[0].set(ylabel="speedup at the best k", ylim=(0.9, 1.9))
panels[1].set(ylabel="best k (0 is off)", yticks=range(0, 6))
for axes in panels:
    axes.set_xscale("log", base=2)
    axes.set(xlabel="batch", xticks=batches[::3], xticklabels=batches[::3])
panels[0].legend(loc="lower left", fontsize=11)
show(figure, f"""Left: speedup at the best k against batch from 1 to 512; right: that k. Roofline of Llama-3.1-8B with Llama-3.2-1B on an H100 at
    alpha 0.74. {"; ".join(notes)}. Speedup and k fall with batch, later for long contexts.""")

# %% [markdown]
# At batch 1 the pair gains 1.8 times. With short contexts that is gone at batch 256, although α has not changed: the
# arithmetic is no longer idle. Long contexts move the end back, because a row's cache is read once for all its drafts.
# Whether a real machine agrees is a matter for notebooks 08 and 09: k is a function of load.

# %% [markdown]
# ## Quiz

# %%
quiz("3.a")

# %%
quiz("3.b")

# %%
quiz("3.c")

# %%
quiz("3.d")

# %%
quiz("3.e")

# %%
quiz("3.f")

# %% [markdown]
# ## Recap
#
# - A round costs k draft steps, one target step of width k + 1, and an overhead. In target steps, that cost is the break-even:
#   *emitted* tokens, not accepted drafts, must exceed it.
# - Speedup = tokens per round ÷ cost of the round. With width and overhead free it is (1 − αᵏ⁺¹) / ((1 − α)(k·c + 1)), and some k pays
#   exactly if α > c.
# - Go on drafting while αᵏ⁺¹ > c × speedup. The top is flat: a k next to the best one loses little.
# - A verify is cheap while the step waits for memory; past the ridge (about 295 tokens in flight on an H100) it is paid in full.
#   Arithmetic grows in any case.
# - Costs come from a clock. Size does not tell the price of a draft, and a formula that forgets width and overhead promises too much.
#
# **Next.** So far α was given. Notebook 04 measures it on a real pair; notebook 08 does the same for the costs.
