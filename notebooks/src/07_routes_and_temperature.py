# %% [markdown]
# # 07 · Routes and temperature
#
# - **You will do:** take one draft apart by kind of traffic, temperature, top-p and the way it proposes; find
#   out what "one global α" costs; and switch a route off for a reason.
# - **You will learn:** why nobody can tell you *the* α of a draft, why α may rise or fall with temperature,
#   what a draft may do at its own temperature, and why a falling dashboard need not mean a worse draft.
# - **You need:** notebooks 03 (costs), 04 (α and its intervals) and 05 (replay). No GPU.
# - **Minutes:** 80

# %% [markdown]
# "Our draft has α = 0.72." With what traffic? At which temperature? Does it sample, or does it propose its
# favourite? Without the answers the number is about somebody else.
#
# In this notebook the draft never changes. Everything around it does.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from course_lib.costs import CostTable, RoundCosts
from course_lib.course import notebook
from course_lib.intervals import Interval, mean_interval, ratio_difference, ratio_interval
from course_lib.plots import banner, show, style
from course_lib.prompts import ROUTES
from course_lib.recordings import recording
from course_lib.replay import replay_rounds
from course_lib.sampling import Sampling, accept_chance, probabilities, residual
from course_lib.theory import expected_tokens
from course_lib.traces import Trace

check, quiz = notebook("07")
style()

# %% [markdown]
# ## Seven recordings
#
# The target answered the same held-out prompts seven times: at six temperatures, and once more at temperature
# 1 with top-p 0.9. Of each token is known what both models make of it (notebook 05). One row is one token, and each row holds
# *two* drafts:
#
# - `accept`, for a draft that **samples** from q: min(1, q/p) of the token;
# - `match`, for a **greedy** draft that proposes q's favourite: is the token that favourite?

# %%
TEMPERATURES = {"t0": 0.0, "t0.3": 0.3, "t0.6": 0.6, "t0.8": 0.8, "t1": 1.0, "t1.2": 1.2}
traces = {name: Trace.load(recording(f"smol-{name}.parquet")) for name in [*TEMPERATURES, "t1-p0.9"]}
meta = traces["t1"].meta
banner("recorded", pair=meta["pair"], machine=meta["machine"], date=meta["date"][:10], command=meta["command"],
       others="same command, another --temperature or --top-p")

sums = pd.concat({
    name: trace.rows.astype({"accept": float, "match": float}).groupby(["route", "prompt"], sort=False).agg(
        tokens=("t", "size"), accept=("accept", "sum"), match=("match", "sum"))
    for name, trace in traces.items()}, names=["setting"])
sums.groupby(["setting", "route"], sort=False).tokens.agg(prompts="size", tokens="sum").unstack("route")

# %% [markdown]
# At temperatures 0 and 1 there are more prompts than elsewhere, and more prompts are other prompts: some easier, some
# harder. So where we compare settings, we use the prompts that *all* of them have.
#
# From here on a prompt is one line of sums, because the prompt is the unit (notebook 04):

# %%
shared = {route: sorted(set.intersection(*(set(sums.loc[setting].loc[route].index) for setting in traces))) for route in ROUTES}


def alpha(setting, route, draft="accept", only=None):
    """α of a route under one setting, with its 95 % interval over prompts (all it has, or `only` these)."""
    prompts = sums.loc[setting].loc[route]
    prompts = prompts if only is None else prompts.loc[only]
    return ratio_interval(prompts[draft], prompts.tokens)


sums.loc["t1"].groupby("route", sort=False).head(2).round(2)

# %% [markdown]
# ## Three kinds of traffic, one draft
#
# **Claim.** α belongs to the draft *and* the traffic *and* the settings. Change any of them and it is another
# number.
#
# First the traffic. Temperature 1, a sampling draft. A dot is a prompt.

# %%
figure, axes = plt.subplots(figsize=(7, 3.4))
notes = []
for row, (route, marker) in enumerate(zip(ROUTES, "os^", strict=True)):
    prompts = sums.loc["t1"].loc[route]
    each, pooled = prompts.accept / prompts.tokens, alpha("t1", route)
    jitter = np.linspace(-0.28, 0.28, len(each))
    axes.plot(each, row + jitter, marker, color="0.6", markersize=4, linestyle="none")
    axes.errorbar(pooled.mean, row, xerr=pooled.half_width, marker=marker, markersize=10, capsize=6, color="black", linewidth=2.5)
    axes.text(1.0, row, f"{pooled.mean:.2f}", va="center", ha="right", fontsize=14)
    notes.append(f"{route} {pooled:.3f}, single prompts from {each.min():.2f} to {each.max():.2f}")
axes.set(yticks=range(3), yticklabels=ROUTES, xlabel="α at temperature 1", xlim=(0, 1), ylim=(2.5, -0.5))
axes.grid(axis="y", visible=False)
show(figure, f"""α at temperature 1 by route, with 95 % intervals over prompts, and each prompt as a dot: {"; ".join(notes)}.""")

# %% [markdown]
# Two things to look at. How far are the routes apart? And how far the prompts *inside* a route? A route is
# itself a mixture, and that is why the interval has to be over prompts.
#
# **It could have failed.** Perhaps any three heaps of prompts differ that much. So we deal the same prompts
# out at random into three heaps of the same sizes, 2,000 times, and look at the gap between the highest α and
# the lowest.

# %%
at_one = sums.loc["t1"]
labels = at_one.index.get_level_values("route").to_numpy()


def gap(labels):
    """Highest minus lowest α among the heaps."""
    pooled = [at_one.accept[labels == heap].sum() / at_one.tokens[labels == heap].sum() for heap in ROUTES]
    return max(pooled) - min(pooled)


random = np.random.default_rng(0)
by_chance = np.array([gap(random.permutation(labels)) for _ in range(2_000)])
found = gap(labels)
print(f"gap between the routes:  {found:.3f}")
print(f"gap between random heaps: {np.mean(by_chance):.3f} on average, 95 % of them below {np.quantile(by_chance, 0.95):.3f}")
print(f"random heaps with a gap as large: {np.mean(by_chance >= found):.1%}")

# %% [markdown]
# If the last line is under 5 %, the labels mean something. If it is not, this many prompts cannot tell the
# routes apart, and no story about them should be told. Note that we shuffled *prompts*. Shuffling tokens
# would tear the prompts apart, and anything would look like a difference.

# %% [markdown]
# ## Temperature, on paper
#
# Temperature T divides the logits by T before the softmax. In terms of chances: raise each to the power 1/T
# and normalise. T below 1 sharpens a law, T above 1 flattens it. It is done to **both** laws, p and q.
#
# **Exercise 7.1** · easy · 5 minutes. `p` is the law at temperature 1, an array. Return the law at
# temperature T > 0.

# %% tags=["exercise"]
def at_temperature(p, T):
    # solution
    powered = p ** (1 / T)
    return powered / powered.sum()
    # end


check(at_temperature)

# %% [markdown] tags=["hints"]
# - Logits are logarithms of the chances, up to a constant. What becomes of log p when it is divided by T?
# - exp(log(p)/T) = p to the power 1/T. These do not add up to 1 any more.

# %% [markdown]
# So what does that do to α? "Hotter text is harder to guess, so α falls." It sounds right. Let us look at
# three places, three tokens each, with exact laws.

# %%
banner("simulated", laws="three places with three tokens each, exact")


def law(p, temperature, top_p=1.0):
    """What the package makes of the law p (at temperature 1) at another temperature, and top-p."""
    logits = torch.tensor(p, dtype=torch.float64).log()
    return probabilities(logits, Sampling(float(temperature), top_p=top_p)).numpy()


def overlap(p, q):
    return float(np.minimum(p, q).sum())


toys = {
    "same favourite, flatter draft": ([0.70, 0.20, 0.10], [0.45, 0.35, 0.20]),
    "same favourite, other runner-up": ([0.55, 0.40, 0.05], [0.55, 0.05, 0.40]),
    "other favourite": ([0.50, 0.42, 0.08], [0.35, 0.55, 0.10]),
}
grid = np.linspace(0.05, 4, 80)
curves = {name: np.array([overlap(law(p, T), law(q, T)) for T in grid]) for name, (p, q) in toys.items()}
curves["mean of the three"] = np.mean(list(curves.values()), axis=0)

figure, axes = plt.subplots(figsize=(7, 4.2))
notes = []
for name, values in curves.items():
    axes.plot(grid, values, markevery=8, label=name)
    at = {T: values[np.argmin(abs(grid - T))] for T in (0.05, 0.5, 1, 4)}
    notes.append(f"{name}: " + ", ".join(f"{value:.2f} at {T}" for T, value in at.items()))
axes.axvspan(0, 1.2, color="0.93", zorder=0)
axes.set(xlabel="temperature (of both)", ylabel="α", ylim=(0, 1.02), xlim=(0, 4))
axes.legend(fontsize=11, loc="lower right")
show(figure, f"""α against temperature from 0.05 to 4 at three made-up places, and their mean. {"; ".join(notes)}.
    With the same favourite α starts at 1, dips and comes back; with another favourite it starts at 0 and rises.
    The shaded part, 0 to 1.2, is what servers use.""")

# %% [markdown]
# Two curves dip, one rises, and their mean first falls a little and then rises.
#
# - **T → 0**: only the favourites count. α is 1 where they agree and 0 where they do not.
# - **T → ∞**: both laws become flat. Flat laws are equal, and α comes back to 1.
# - **In between** it depends on what the two laws have in common.
#
# A text has places of every sort, so its α at T = 0 is the *share of places where the favourites agree*, and
# on the way up some places lose and others gain. Which wins? Paper cannot say. Besides, at another
# temperature the target writes other texts, with other places. This must be measured.

# %% [markdown]
# **Exercise 7.2** · easy · 5 minutes. Two drafts at one place, with the same q. One samples from q; the other
# is greedy and proposes q's favourite every time. `p` and `q` are arrays, already at their temperature.
# Return both chances of acceptance, the sampling draft's first.

# %% tags=["exercise"]
def two_alphas(p, q):
    # solution
    return float(np.minimum(p, q).sum()), float(p[np.argmax(q)])
    # end


check(two_alphas)

# %% [markdown] tags=["hints"]
# - A sampling draft proposes x with chance q(x), and it is kept with min(1, p(x)/q(x)). Add up over x.
# - The greedy draft's law has all its mass on one token d. In min(1, p(d)/q(d)) that law's q(d) is 1.

# %% [markdown]
# Which of the two is better? That, too, can go either way:

# %%
for name, p, q in (("q equals p", [0.4, 0.3, 0.3], [0.4, 0.3, 0.3]), ("q has the right favourite and is too flat", [0.8, 0.1, 0.1], [0.4, 0.3, 0.3])):
    print(f"{name:42} samples {overlap(p, q):.2f}   greedy {p[int(np.argmax(q))]:.2f}")

# %% [markdown]
# ## Temperature, measured
#
# Six temperatures, three routes, two drafts, the shared prompts.

# %%
banner("recorded", pair=meta["pair"], machine=meta["machine"], date=meta["date"][:10], command=meta["command"],
       others="same command, another --temperature", prompts=", ".join(f"{len(ids)} {route}" for route, ids in shared.items()))
drafts = {"samples from q": "accept", "greedy": "match"}
figure, panels = plt.subplots(1, 3, figsize=(10.5, 4.2), sharey=True)
notes = []
for axes, route in zip(panels, ROUTES, strict=True):
    for (name, column), shift, look in zip(drafts.items(), (-0.012, 0.012), ("o-", "s--"), strict=True):
        found = [alpha(setting, route, column, shared[route]) for setting in TEMPERATURES]
        axes.errorbar(np.array(list(TEMPERATURES.values())) + shift, [i.mean for i in found], [i.half_width for i in found],
                      fmt=look, capsize=3, label=name)
        notes.append(f"{route}, {name}: " + ", ".join(f"{i.mean:.2f}" for i in found))
    axes.set(title=route, xlabel="temperature", xticks=[0, 0.3, 0.6, 0.8, 1, 1.2])
    axes.tick_params(axis="x", labelsize=10)
panels[0].set_ylabel("α")
panels[0].legend(fontsize=11)
show(figure, f"""α against temperature 0, 0.3, 0.6, 0.8, 1 and 1.2 in three panels, for a draft that samples and a greedy one,
    with 95 % intervals over the prompts that all temperatures share. {"; ".join(notes)}.""")

# %% [markdown]
# At temperature 0 the two drafts are one and the same, so both lines must start at the same point. That is a
# test of the recording, and the cheapest there is:

# %%
zero = traces["t0"].rows
print("at temperature 0, accept equals match in every row:", bool((zero.accept == zero.match).all()))
for name, column in drafts.items():
    for route in ROUTES:
        means = {T: alpha(setting, route, column, shared[route]).mean for setting, T in TEMPERATURES.items()}
        steps = np.diff(list(means.values()))
        course = "rises all the way" if (steps > 0).all() else "falls all the way" if (steps < 0).all() else "goes up and down"
        print(f"{route:5} {name:15} {course}: {means[0]:.2f} at 0, {means[1.2]:.2f} at 1.2; lowest at {min(means, key=means.get):g}, highest at {max(means, key=means.get):g}")

# %% [markdown]
# Look at the bars before you make a story of a wiggle. Where they overlap, is the difference more than noise?

# %% [markdown]
# ## The same prompts on both sides
#
# Two intervals that overlap may still hide a clear difference. The temperatures were measured **with the same
# prompts**, and a prompt that is easy at 0.6 may well be easy at 1. So we take the difference *prompt by
# prompt*, and what they have in common drops out.
#
# **Exercise 7.3** · easy · 8 minutes. `cold` and `hot` are dictionaries from prompt id to that prompt's α.
# Some prompts are in one of them only. Return the interval of hot minus cold over the prompts in both.
# (`mean_interval(values)` is imported; it returns an `Interval`.)

# %% tags=["exercise"]
def paired(cold, hot):
    # solution
    return mean_interval([hot[prompt] - cold[prompt] for prompt in cold if prompt in hot])
    # end


check(paired)

# %% [markdown] tags=["hints"]
# - One number a prompt: its α in `hot` minus its α in `cold`. Look both up by the prompt's id: the order of a
#   dictionary says nothing.
# - Then `mean_interval` of these differences. A prompt that one side lacks has no difference.

# %% [markdown]
# `ratio_difference` does the same for pooled rates. Against temperature 1, where a server stands by default, over all
# prompts that the two have in common (for T = 0 these are more than in the figure):

# %%
def difference(route, first, second, draft="accept", other=None):
    """α under `first` minus α under `second` over the prompts in both, pairwise; `other`: the second side's draft."""
    one, two = sums.loc[first].loc[route], sums.loc[second].loc[route]
    both = one.index.intersection(two.index)
    one, two = one.loc[both], two.loc[both]
    return ratio_difference((one[draft], one.tokens), (two[other or draft], two.tokens))


def marked(interval):
    """The interval in print, with a star where it leaves out 0."""
    return f"{interval:+.3f}" + (" *" if interval.low > 0 or interval.high < 0 else "")


pd.DataFrame({f"T = {T:g}": {route: marked(difference(route, setting, "t1")) for route in ROUTES}
              for setting, T in TEMPERATURES.items() if T != 1}).rename_axis("α minus α at T = 1")

# %%
rows = []
for route in ROUTES:
    both = sums.loc["t0.6"].loc[route].merge(sums.loc["t1"].loc[route], on="prompt", suffixes=("_one", "_two"))
    # What a pooled α is made of: each prompt's accepted tokens beyond the average, so that long answers count more.
    one = both.accept_one - both.tokens_one * both.accept_one.sum() / both.tokens_one.sum()
    two = both.accept_two - both.tokens_two * both.accept_two.sum() / both.tokens_two.sum()
    apart = np.hypot(ratio_interval(both.accept_one, both.tokens_one).half_width,
                     ratio_interval(both.accept_two, both.tokens_two).half_width)
    rows.append({"route": route, "prompts": len(both), "correlation over prompts": np.corrcoef(one, two)[0, 1],
                 "half-width unpaired": apart, "half-width paired": difference(route, "t0.6", "t1").half_width})
pd.DataFrame(rows).set_index("route").round(3)

# %% [markdown]
# A star means: 0 is outside. There are fifteen such tests in the first table; if nothing were going on, about
# one star would still appear. One star alone is no finding.
#
# The second table says what pairing bought at T = 0.6. The correlation says how much the two sides have in common, prompt
# by prompt: with 0 pairing buys nothing (and costs nothing either), with 0.75 it halves the interval, and the 0.1 to 0.2
# here make it a little narrower.

# %% [markdown]
# ## Greedy or sampling?
#
# vLLM, SGLang and llama.cpp let the draft propose its favourite unless told otherwise. Is that good? Here the
# pairing is perfect: both drafts are judged on the very same text, token by token.

# %%
table = pd.DataFrame({f"T = {T:g}": {route: marked(difference(route, setting, setting, "match", "accept")) for route in ROUTES}
                      for setting, T in TEMPERATURES.items() if T}).rename_axis("greedy minus sampling")
table

# %%
def best_draft(route, setting):
    one = difference(route, setting, setting, "match", "accept")
    return "greedy" if one.low > 0 else "sampling" if one.high < 0 else "no difference seen"


winners = {(route, T): best_draft(route, setting) for route in ROUTES for setting, T in TEMPERATURES.items() if T}
for winner in ("greedy", "sampling", "no difference seen"):
    cases = [f"{route} at {T:g}" for (route, T), who in winners.items() if who == winner]
    print(f"{winner:19}{', '.join(cases) or 'nowhere'}")

# %% [markdown]
# Whatever the winner is: it holds for this pair. A draft that was trained to match the target's whole law
# should sample well; a draft from elsewhere often knows the favourite better than the odds. Both write the
# target's text, so you may simply take the faster one (`draft_sample_method` in vLLM).

# %% [markdown]
# ## Sure places and open places
#
# Why should the two drafts part when it gets hotter? Look at how sure the *target* is. We sort the places at
# temperature 1 by the entropy of p:
#
# - **sure**: below 0.5 nats. One token is all but certain;
# - **a choice**: 0.5 to 2 nats;
# - **open**: above 2 nats, the uncertainty of seven and more equally likely tokens.

# %%
bins = ["sure", "a choice", "open"]


def binned(trace):
    """The rows of a trace with their bin and numbers that can be added up."""
    rows = trace.rows.astype({"accept": float, "match": float})
    return rows.assign(bin=np.select([rows.entropy < 0.5, rows.entropy < 2], bins[:2], bins[2]))


places = binned(traces["t1"])
rows = []
for name in bins:
    prompts = places[places.bin == name].groupby(["route", "prompt"])[["accept", "match"]].agg(["sum", "size"])
    rows.append({"places": name, "share": (places.bin == name).mean(),
                 **{draft: f"{ratio_interval(prompts[column, 'sum'], prompts[column, 'size']):.3f}" for draft, column in drafts.items()},
                 "greedy minus sampling": marked(ratio_difference(prompts["match"].T.to_numpy(), prompts["accept"].T.to_numpy()))})
pd.DataFrame(rows).set_index("places").round(2)

# %% [markdown]
# In *sure* places greedy may even lead. That is the second toy from above: q has the right favourite and is a little too
# flat.
#
# In open places it is the other way round. A greedy draft proposes one token, and that token is kept with its p. Where
# the target is open, hardly any token has a large p. So a greedy draft can hardly do well there, however good it is.
#
# A sampling draft has no such ceiling: two wide laws may still be the same law. How near to that this draft
# comes, the column says.
#
# And heat opens places. The share of open ones (at 0 none is, by definition: the law at temperature 0 is one token):

# %%
everywhere = [prompt for prompts in shared.values() for prompt in prompts]
opened = {}
for setting, T in TEMPERATURES.items():
    places_there = binned(traces[setting]).query("prompt in @everywhere")
    opened[f"T = {T:g}"] = (places_there.bin == "open").groupby(places_there.route, sort=False).mean()
pd.DataFrame(opened).round(2)

# %% [markdown]
# Do the routes differ only because one has more open places than another? Give each route its own rates but
# the *same* shares of the three bins:

# %%
common = places.bin.value_counts(normalize=True)
for name, column in drafts.items():
    measured = places.groupby("route")[column].mean()
    rate = places.groupby(["route", "bin"])[column].mean().unstack()
    print(f"{name:15} gap between the routes {np.ptp(measured):.3f} as measured, {np.ptp((rate * common).sum(axis=1)):.3f} with equal shares")

# %% [markdown]
# Where the gap shrinks, the shares were the reason. What stays is the draft being better or worse at equal
# sureness, and that is what training can change.

# %% [markdown]
# ## Top-p
#
# Top-p keeps the likeliest tokens until they hold a share p of the mass, and drops the tail. Again of both
# laws, and each law has a tail of *its own*. Two toys, exact, at top-p 0.9:

# %%
banner("simulated", laws="four tokens, exact")
for name, p, q in (("tails differ", [0.6, 0.32, 0.07, 0.01], [0.6, 0.32, 0.01, 0.07]),
                   ("the draft is flat", [0.5, 0.42, 0.04, 0.04], [0.25, 0.25, 0.25, 0.25])):
    print(f"{name:27} α {overlap(p, q):.3f}, with top-p 0.9 {overlap(law(p, 1, top_p=0.9), law(q, 1, top_p=0.9)):.3f}")

# %% [markdown]
# In the first the quarrel was about the tail, and cutting it ends the quarrel. In the second p gets narrower
# and q does not, so more of the drafts fall where p is now 0. On the real pair, with the shared prompts:

# %%
banner("recorded", pair=meta["pair"], machine=meta["machine"], date=traces["t1-p0.9"].meta["date"][:10], command=traces["t1-p0.9"].meta["command"])
rows = []
for name, column in drafts.items():
    for route in ROUTES:
        rows.append({"draft": name, "route": route, "top-p 1": f"{alpha('t1', route, column, shared[route]):.3f}",
                     "top-p 0.9": f"{alpha('t1-p0.9', route, column, shared[route]):.3f}", "difference, paired": marked(difference(route, "t1-p0.9", "t1", column))})
pd.DataFrame(rows).set_index(["draft", "route"])

# %% [markdown]
# So a benchmark at top-p 1 does not answer for a server at top-p 0.9. It costs one more trace to know.

# %% [markdown]
# ## A draft at a temperature of its own
#
# The target's temperature is the user's choice. The *draft's* is ours. Must the two be equal? A greedy draft
# is a draft at temperature 0, and it is allowed. So any temperature should be. Here is the target at
# temperature 1, and three drafts at temperature τ.

# %%
banner("simulated", laws="five tokens, exact")
p_toy = np.array([0.48, 0.25, 0.15, 0.08, 0.04])
near = np.array([0.42, 0.30, 0.12, 0.11, 0.05])  # what a decent draft thinks of it
models = {"about right": near, "too flat": law(near, 2), "too sharp": law(near, 0.5)}
taus = np.linspace(0.05, 3, 296)

figure, axes = plt.subplots(figsize=(7, 4.2))
notes = []
for name, q in models.items():
    values = np.array([overlap(p_toy, law(q, tau)) for tau in taus])
    (line,) = axes.plot(taus, values, markevery=40, label=name)
    best = int(values.argmax())
    axes.plot(taus[best], values[best], marker="*", markersize=17, color=line.get_color(), markeredgecolor="white", linestyle="none")
    at_same = overlap(p_toy, q)
    notes.append(f"{name}: {values[0]:.2f} near 0, {at_same:.2f} at 1, best {values[best]:.2f} at {taus[best]:.2f}")
axes.axvline(1, color="black", linewidth=1, linestyle=":", marker="")
axes.text(1.03, 0.42, "the target's\ntemperature", fontsize=11)
axes.set(xlabel="τ, temperature of the draft alone", ylabel="α", ylim=(0.4, 1.02))
axes.legend(fontsize=11, loc="lower right")
show(figure, f"""α against the draft's own temperature from 0.05 to 3, the target staying at 1, for three exact drafts; a star marks the
    best. {"; ".join(notes)}. At the far left each draft is greedy and α is p of its favourite.""")

# %% [markdown]
# A flat draft wants to be cooled, a sharp one heated. For a draft whose odds are about right the target's
# temperature is not far from the best. More than that nothing guarantees: it is one more knob to *measure*.
#
# But is the text still the target's? The proof (notebook 01) asks for one thing: the q in min(1, p/q) must be
# the law **the draft was really drawn from**.
#
# **Exercise 7.4** · medium · 10 minutes. One place. The draft is drawn from `drawn`, but the verifier
# *believes* it came from `believed`: it accepts with min(1, p/believed), and after a rejection it draws from
# max(p − believed, 0), normalised. Return the law of the token that is emitted. (Arrays; believed is positive
# everywhere. If p − believed is nowhere positive, the replacement is drawn from p.)

# %% tags=["exercise"]
def emitted_law(p, drawn, believed):
    # solution
    kept = drawn * np.minimum(1, p / believed)
    left = np.maximum(p - believed, 0)
    replacement = left / left.sum() if left.sum() > 0 else p
    return kept + (1 - kept.sum()) * replacement
    # end


check(emitted_law)

# %% [markdown] tags=["hints"]
# - A token gets out in two ways. It was drafted and kept: drawn(x) · min(1, p(x)/believed(x)).
# - Or something was rejected, with chance 1 − the sum of all that was kept, and x was drawn as the
#   replacement.

# %% [markdown]
# **It could have failed.** We enumerate every path: the emitted law for four ways to draft, once with an
# honest verifier, once with one that always believes in q at temperature 1.

# %%
def one_place(p, drawn, believed):
    """Exactly what comes out of one place, path by path: drafts from `drawn`, judged as if from `believed`."""
    p, believed = torch.tensor(p), torch.tensor(believed)
    replacement = residual(p, believed).numpy()
    out = np.zeros(len(p))
    for token, chance in enumerate(drawn):
        if chance > 0:
            keep = float(accept_chance(p, believed, torch.tensor(token)))
            out[token] += chance * keep
            out += chance * (1 - keep) * replacement
    return out


q = models["about right"]
rows = []
for name, tau in {"τ = 0, greedy": 0, "τ = 0.5": 0.5, "τ = 1": 1, "τ = 2": 2}.items():
    drawn = law(q, tau)
    honest, fooled = one_place(p_toy, drawn, drawn), one_place(p_toy, drawn, q)
    rows.append({"draft": name, "honest: off by": abs(honest - p_toy).sum() / 2, "believes τ = 1: off by": abs(fooled - p_toy).sum() / 2,
                 "p(favourite)": p_toy[0], "emitted, fooled": fooled[0]})
pd.DataFrame(rows).set_index("draft").round(3)

# %% [markdown]
# "Off by" is the total variation from p: the share of tokens that come out wrong. An honest verifier is off
# by 0 whatever τ is. The other one is right at τ = 1 only. Judging a *greedy* draft by its softmax is the
# worst of them here: it accepts the favourite every time, and the target's 48 % become certainty. Nothing in
# the counters shows it: α looks splendid.
#
# **So: any draft temperature is exact, as long as the verifier knows it.**

# %% [markdown]
# ## What one global α costs
#
# Back to the traffic. Let a server have six **streams**: three routes, each at temperature 0 and at
# temperature 1. Its draft is greedy, as engines have it by default. Suppose somebody measures α over
# everything, puts it into the formula, and sets one k for all. What is lost against a k for each stream?
#
# That needs prices. The clock comes in notebook 08; here we *assume* costs of a round, in target steps. A 1B
# draft reads 0.15 times as many weights as its 8B target, so at small batch a draft step costs about as much:
# 0.1 to 0.2. (Published for EAGLE heads: 0.125 under a 70B target, 0.375 under an 8B one, arXiv 2601.11580.)
# Change the numbers and run again.
#
# - **cheap**: small batch, tiny draft. A draft step costs 0.1, a further token to verify next to nothing.
# - **usual**: a draft step costs 0.2, a further token 0.02.
# - **busy**: many requests at once. The same draft step, but a further token costs 0.12.

# %%
banner("computed", prices="assumed, in target steps", yields="from the recordings named above")
prices = {
    "cheap": RoundCosts(t_draft=0.10, t_verify={1: 1.0, 9: 1.04}, overhead=0.02),
    "usual": RoundCosts(t_draft=0.20, t_verify={1: 1.0, 9: 1.16}, overhead=0.05),
    "busy": RoundCosts(t_draft=0.20, t_verify={1: 1.0, 9: 1.96}, overhead=0.05),
}
try:
    recorded = CostTable.load(recording("costs-cpu.json"))
    prices["recorded CPU, batch 1"] = recorded.at(1)
    banner("recorded", machine=recorded.meta["machine"], date=recorded.meta["date"][:10], command=recorded.meta["command"])
except ValueError as missing:
    print(f"assumed prices only: {str(missing).split(':')[0].split(' (')[0]}")

MAX_K = 8
cost = {name: price.round_cost(MAX_K) for name, price in prices.items()}
pd.DataFrame(cost, index=pd.RangeIndex(MAX_K + 1, name="k")).T.round(2)

# %% [markdown]
# The yields come from the replay of the recordings, k from 0 to 8. Put "accept" for "match" to see the same
# traffic with a sampling draft.

# %%
DRAFT = "match"
parts = []
for setting, T in (("t0", 0), ("t1", 1)):
    for route in ROUTES:
        chances = [values.astype(float) for values in traces[setting].column(DRAFT, route)]
        part = pd.DataFrame(replay_rounds(chances, range(MAX_K + 1)))  # column k: expected rounds of each prompt
        part["stream"], part["prompt"] = f"{route} at T={T}", sums.loc[setting].loc[route].index
        part["tokens"], part["kept"] = [len(c) for c in chances], [c.sum() for c in chances]
        parts.append(part)
texts = pd.concat(parts, ignore_index=True)
rounds = {stream: part[list(range(MAX_K + 1))].to_numpy() for stream, part in texts.groupby("stream", sort=False)}
tokens = {stream: part.tokens.to_numpy(float) for stream, part in texts.groupby("stream", sort=False)}
own_alpha = texts.groupby("stream", sort=False).kept.sum() / texts.groupby("stream", sort=False).tokens.sum()
pooled = texts.kept.sum() / texts.tokens.sum()

table, k_all, lost = {("", "α"): own_alpha.round(3)}, {}, {}
for name, price in prices.items():
    k_all[name], _ = price.best_k(pooled, MAX_K)
    speedups = {stream: tokens[stream].sum() / (rounds[stream].sum(axis=0) * cost[name]) for stream in rounds}
    table[name, "own k"] = pd.Series({stream: int(s.argmax()) for stream, s in speedups.items()})
    table[name, "speedup"] = pd.Series({stream: s.max() for stream, s in speedups.items()}).round(3)
    table[name, f"with k = {k_all[name]}"] = pd.Series({stream: s[k_all[name]] for stream, s in speedups.items()}).round(3)
    lost[name] = pd.Series({stream: 1 - s[k_all[name]] / s.max() for stream, s in speedups.items()})
print(f"global α = {pooled:.3f}; the formula makes of it " + ", ".join(f"k = {k} ({name})" for name, k in k_all.items()))
pd.DataFrame(table)

# %%
for name in prices:
    worst = lost[name].idxmax()
    with_one_k = {stream: tokens[stream].sum() / (rounds[stream].sum(axis=0) * cost[name])[k_all[name]] for stream in rounds}
    harmed = [stream for stream, speedup in with_one_k.items() if speedup < 1]
    print(f"{name}: " + (f"{worst} loses most, {lost[name][worst]:.1%} of its speed" if lost[name][worst] > 0.0005 else "no stream loses anything")
          + (f". Slower than without a draft: {'; '.join(harmed)}" if harmed else ""))

# %% [markdown]
# (k = 0 is off, speedup 1.) Where the loss is small, there is a reason: tops are flat (notebook 03). Two
# things make it large: streams that differ *much*, and a price near the break-even of one of them. There the
# one k does not only miss a gain, it makes somebody's answers slower.
#
# ### Far apart
#
# For the first, rates that somebody else measured, by domain, with one draft (Qwen2.5-1.5B with 0.5B, 30
# prompts, spec-decode-advisor), at our assumed prices and with the formula:

# %%
domains = {"copy": 0.865, "code": 0.805, "factual": 0.750, "chat": 0.668, "prose": 0.610}
rows = {}
for name in ("cheap", "usual", "busy"):
    price = prices[name]
    k_all, _ = price.best_k(float(np.mean(list(domains.values()))), MAX_K)
    for domain, a in domains.items():
        k_own, top = price.best_k(a, MAX_K)
        rows[name, domain] = {"α": a, "k for all": k_all, "own k": k_own, "own speedup": f"{top:.2f}",
                              "lost with k for all": f"{1 - price.speedup(expected_tokens(a, k_all), k_all) / top:.1%}"}
pd.DataFrame(rows).T.rename_axis(["prices", "domain"])

# %% [markdown]
# A domain whose own k is the k for all loses nothing. The ends pay most, up to 6 %, where their own k is far from it.
# Nobody sees it on a dashboard, because the mean looks fine.

# %% [markdown]
# ### Is the gain real?
#
# The table of the streams has a flaw. It chose the k for each stream *and judged it on the same prompts*.
# More choices always look better that way, even for labels without meaning. So: choose on one half of the
# prompts, judge on the other, 200 random halves. And the control: the same texts with **random labels**.

# %%
round_columns, kept, written = texts[list(range(MAX_K + 1))].to_numpy(), texts.kept.to_numpy(), texts.tokens.to_numpy()
names, true_labels = np.unique(texts.stream, return_inverse=True)
prompt_number = np.unique(texts.prompt, return_inverse=True)[1]  # a prompt's texts go to the same half


def gains(labels, price, seed, halves=200):
    """Gain of a k for each label over one k for all, in per cent of time, judged on prompts not used to choose."""
    random, per_round = np.random.default_rng(seed), cost[price]
    found = []
    for _ in range(halves):
        half = (random.permutation(prompt_number.max() + 1) % 2 == 0)[prompt_number]
        one_k, _ = prices[price].best_k(kept[half].sum() / written[half].sum(), MAX_K)
        time_all = time_own = 0.0
        for label in range(len(names)):
            mine = labels == label
            k = int((round_columns[half & mine].sum(axis=0) * per_round).argmin())
            judged = round_columns[~half & mine].sum(axis=0) * per_round
            time_all, time_own = time_all + judged[one_k], time_own + judged[k]
        found.append(100 * (time_all / time_own - 1))
    return np.array(found)


rows = []
for name in prices:
    real = gains(true_labels, name, seed=1)
    shuffled = np.concatenate([gains(np.random.default_rng(seed).permutation(true_labels), name, seed, halves=10) for seed in range(20)])
    rows.append({"prices": name, "streams: mean gain %": real.mean(), "5 % to 95 % of the halves": f"{np.quantile(real, 0.05):+.2f} to {np.quantile(real, 0.95):+.2f}",
                 "random labels: mean gain %": shuffled.mean()})
pd.DataFrame(rows).set_index("prices").round(2)

# %% [markdown]
# This is the gain of *all* traffic; a single stream can gain far more. The last column is the control. It
# should be near 0 or below: splitting traffic without need costs a little, since each part chooses from fewer
# prompts. A part of it that is *above* 0 comes from the formula, which chose the k for all, while the replay
# chose the others. Only what the streams gain beyond the random labels is due to the streams.

# %% [markdown]
# **Exercise 7.5** · medium · 7 minutes. Several streams, each with its speedup; how much faster is the whole
# traffic? `shares` is each stream's share of all *tokens*, `speedups` each stream's speedup. Return the
# speedup of all together.

# %% tags=["exercise"]
def whole_speedup(shares, speedups):
    # solution
    return 1 / sum(share / speedup for share, speedup in zip(shares, speedups, strict=True))
    # end


check(whole_speedup)

# %% [markdown] tags=["hints"]
# - Let plain decoding take 1 second for everything. How long does each stream's share take now?
# - Times add up; speedups do not. The answer is 1 ÷ the sum of the times.

# %% [markdown]
# ## Switch a stream off
#
# The surest gain is not a finer k. It is not to speculate where it does not pay. But when do we *know*?
#
# **The rule: speculate only if the lower end of the interval of the speedup is above 1.** Not the mean. A
# mean of 1.02 with an interval from 0.97 to 1.07 says: we do not know.
#
# **Exercise 7.6** · easy · 5 minutes. `tokens` is an `Interval` (mean, low, high) of tokens per round, `cost`
# the round's cost in target steps. Return `"speculate"` or `"off"`. (One prompt gives an interval whose ends
# are nan.)

# %% tags=["exercise"]
def decide(tokens, cost):
    # solution
    return "speculate" if tokens.low / cost > 1 else "off"
    # end


check(decide)

# %% [markdown] tags=["hints"]
# - Speedup = tokens per round ÷ cost. Which of the three numbers of the interval has to clear 1?
# - Every comparison with nan is False. Write it so that False means off.

# %% [markdown]
# The rule on our streams, at the prices from above:

# %%
def best_speedup(stream, round_cost):
    """The best k from 1 to 8, and the speedup there with its interval; round_cost in target steps, by k."""
    k = 1 + int((rounds[stream].sum(axis=0) * round_cost)[1:].argmin())
    return k, Interval(*(end / round_cost[k] for end in ratio_interval(tokens[stream], rounds[stream][:, k])))


def verdict(k, speedup):
    return f"k = {k}, {speedup:.2f}, " + ("speculate" if speedup.low > 1 else "OFF")


pd.DataFrame({name: {stream: verdict(*best_speedup(stream, cost[name])) for stream in rounds} for name in prices})

# %% [markdown]
# Where is each stream's limit? Let every drafted token have one price that holds all of it: its draft step,
# its place in the verify. We turn it from 0 to 0.8 target steps (and add 0.05 of overhead a round) and show
# each stream at its best k.

# %%
per_token = np.linspace(0, 0.8, 161)


def at_price(stream, price):
    return best_speedup(stream, 1.05 + price * np.arange(MAX_K + 1))


figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
limits, notes = {}, []
for axes, T in zip(panels, (0, 1), strict=True):
    for route in ROUTES:
        stream = f"{route} at T={T}"
        swept = [at_price(stream, price)[1] for price in per_token]
        low, high = np.array([i.low for i in swept]), np.array([i.high for i in swept])
        (line,) = axes.plot(per_token, [i.mean for i in swept], markevery=20, label=route)
        axes.fill_between(per_token, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
        limits[stream] = float(per_token[np.argmax(low <= 1)]) if (low <= 1).any() else 0.8
        axes.plot(limits[stream], 1, marker="x", markersize=12, markeredgewidth=3, color=line.get_color(), linestyle="none", zorder=5)
        notes.append(f"{stream}: {swept[0].mean:.2f} at 0, {swept[40].mean:.2f} at 0.2, off from {limits[stream]:.3f}")
    axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
    axes.set(xlabel="price of a drafted token, target steps", title=f"temperature {T}", ylim=(0.6, None))
panels[0].set_ylabel("speedup at the best k")
panels[0].legend(title="band: 95 %\n× off from here", fontsize=12, title_fontsize=12)
show(figure, f"""Speedup at the best k against the price of a drafted token from 0 to 0.8 target steps, with 95 % bands over prompts, for
    six streams in two panels. {"; ".join(notes)}. A cross marks where the lower end of a stream's interval falls to 1.""")
print("off from a price of " + ", ".join(f"{limit:.3f} ({stream})" for stream, limit in limits.items()))

# %% [markdown]
# Left of its cross a stream speculates, right of it it is off. Between the first cross and the last, some
# streams should be on and some off, at the same price and with the same draft. We pick the price in the
# middle between them:

# %%
middle = (min(limits.values()) + max(limits.values())) / 2
print(f"price of a drafted token: {middle:.3f} target steps")
for stream in rounds:
    k, speedup = at_price(stream, middle)
    print(f"{stream:12} k = {k}: {speedup.mean:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]   "
          + (f"speculate with k = {k}" if speedup.low > 1 else "OFF: the lower end does not clear 1"))

# %% [markdown]
# An "off" is not a verdict on the draft. It says that at this price and with these prompts the gain is not
# shown. The answer may be to measure more. How many prompts? The half-width shrinks with the square root of
# their number, so there is a number at which the lower end would just stand at 1, if the mean stays. (With so many it is
# an even chance that it does. With twice as many it is about four in five.)

# %%
for stream in rounds:
    k, speedup = at_price(stream, middle)
    have, edge = len(tokens[stream]), abs(speedup.mean - 1)
    need = np.ceil(have * (speedup.half_width / max(edge, 1e-4)) ** 2)
    print(f"{stream:12} is {speedup.mean - 1:+.3f} from break-even: "
          + (f"the {have} prompts suffice" if need <= have else f"about {need:,.0f} prompts instead of {have} would just tell"))

# %% [markdown]
# ### Why not the mean?
#
# **It could have failed.** Is the stricter rule worth its caution? We make a case where the truth is known:
# the recorded prompts of a stream *are* the population, and the price is such that the draft brings **exactly
# nothing** at k = 2. Then 1,000 engineers measure 12 prompts each, drawn from it at random, and apply both
# rules.

# %%
random = np.random.default_rng(7)
rows = []
for stream in rounds:
    one_round = rounds[stream][:, 2]
    nothing = tokens[stream].sum() / one_round.sum()  # the cost at which the true speedup is 1
    by_mean = by_low = 0
    for _ in range(1_000):
        drawn = random.integers(len(one_round), size=12)
        measured = ratio_interval(tokens[stream][drawn], one_round[drawn])
        by_mean += measured.mean / nothing > 1
        by_low += measured.low / nothing > 1
    rows.append({"stream": stream, "mean above 1": f"{by_mean / 1_000:.1%}", "lower end above 1": f"{by_low / 1_000:.1%}"})
pd.DataFrame(rows).set_index("stream")

# %% [markdown]
# About half of the engineers who go by the mean switch on a draft that brings nothing. With the lower end it
# should be one in forty, 2.5 %. (With 12 prompts from a skewed population it can be more, or less: an
# interval is an approximation, too.) The price of the caution: a stream with a small real gain stays off
# until there are enough prompts.

# %% [markdown]
# ## Yesterday's mix is not today's
#
# One more way to be wrong with one global α: it moves when the *traffic* moves, though neither draft nor
# target did. Here are three of the recorded streams, untouched, in two mixes of tokens: yesterday mostly the
# easiest of all, today mostly the hardest. A product that changes its default temperature can do that
# overnight.

# %%
ordered = own_alpha.sort_values()
hard, medium, easy = ordered.index[0], ordered.index[len(ordered) // 2], ordered.index[-1]
own = {stream: float(own_alpha[stream]) for stream in (hard, medium, easy)}
mixes = {"yesterday": {hard: 0.15, medium: 0.25, easy: 0.60}, "today": {hard: 0.70, medium: 0.20, easy: 0.10}}
board = {day: sum(mix[stream] * own[stream] for stream in own) for day, mix in mixes.items()}
print(pd.DataFrame({"α, both days": own, **{f"share {day}": mix for day, mix in mixes.items()}}).round(3).to_string())
print(f"the dashboard shows {board['yesterday']:.3f} yesterday and {board['today']:.3f} today: {board['today'] - board['yesterday']:+.3f}")

# %% [markdown]
# (Our dashboard weighs α by tokens. One that divides accepted drafts by judged ones weighs by those. The argument is
# the same.)
#
# The whole change is the mix. A dashboard with one line cannot tell that from a broken draft; one line a
# stream can.
#
# Take the change apart to be sure: *what the mix did* is the change of the shares at yesterday's rates, *what
# the draft did* is the change of the rates at today's shares. The two add up.

# %%
def decompose(rates_before, mix_before, rates_after, mix_after):
    """The change of a pooled rate: (due to the mix, due to the rates)."""
    mix = sum((mix_after[stream] - mix_before[stream]) * rates_before[stream] for stream in mix_before)
    rates = sum(mix_after[stream] * (rates_after[stream] - rates_before[stream]) for stream in mix_before)
    return mix, rates


better = {stream: value + 0.02 for stream, value in own.items()}
cases = {"mix moved": (own, mixes["today"]), "mix moved, draft 0.02 better everywhere": (better, mixes["today"]), "nothing moved": (own, mixes["yesterday"])}
for name, (rates, mix) in cases.items():
    by_mix, by_rates = decompose(own, mixes["yesterday"], rates, mix)
    print(f"{name:40} dashboard {by_mix + by_rates:+.3f} = mix {by_mix:+.3f} and draft {by_rates:+.3f}")

# %% [markdown]
# In the second line every stream got *better*. Whether the dashboard shows it is a matter of how far the mix
# moved.
#
# **Exercise 7.7** · easy · 4 minutes. Yesterday 80 % of the judged drafts were JSON, with α 0.70, and 20 %
# chat, with α 0.50: the dashboard said 0.66. Today a new draft has 0.72 on JSON and 0.52 on chat, and 25 % of
# the drafts are JSON, 75 % chat. What does the dashboard say?

# %% tags=["exercise"]
# solution
dashboard = 0.25 * 0.72 + 0.75 * 0.52
# end

check(dashboard, "dashboard")

# %% [markdown] tags=["hints"]
# - The dashboard is the mean over all judged drafts of today.
# - Weigh today's rates by today's shares.

# %% [markdown]
# And the k? We set the one k for yesterday's mix. Then the mix slides, from all easy to all hard, at the
# price in the middle of the crosses above. Beside it: a k for each stream, off where the rule says so.
#
# (The middle stream is left out of the picture. Of the two others the hard one had 0.15 of 0.75 yesterday, a share of
# 0.20, and has 0.70 of 0.80 today, 0.875. That is where the two days stand.)

# %%
round_costs = 1.05 + middle * np.arange(MAX_K + 1)
round_costs[0] = 1.0
time_per_token = {stream: rounds[stream].sum(axis=0) * round_costs / tokens[stream].sum() for stream in own}
k_yesterday = int(sum(mixes["yesterday"][stream] * time_per_token[stream] for stream in own).argmin())
k_own = {}
for stream in (easy, hard):
    k, speedup = at_price(stream, middle)
    k_own[stream] = k if speedup.low > 1 else 0
hard_share = np.linspace(0, 1, 21)


def slide(k):
    """Speedup of a mix of the easiest and the hardest stream, against the share of the hard one; k by stream."""
    return 1 / ((1 - hard_share) * time_per_token[easy][k[easy]] + hard_share * time_per_token[hard][k[hard]])


fixed, routed = slide({easy: k_yesterday, hard: k_yesterday}), slide(k_own)
k_names = {stream: f"k = {k}" if k else "off" for stream, k in k_own.items()}
figure, axes = plt.subplots(figsize=(7, 4))
axes.plot(hard_share, routed, markevery=4, label=f"by stream: {easy}: {k_names[easy]}; {hard}: {k_names[hard]}")
axes.plot(hard_share, fixed, markevery=4, label=f"one k, set for yesterday: {f'k = {k_yesterday}' if k_yesterday else 'off'}")
axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
axes.axvline(0.15 / 0.75, ymax=0.75, color="0.5", linewidth=1, linestyle=":", marker="")
axes.axvline(0.70 / 0.80, ymax=0.75, color="0.5", linewidth=1, linestyle=":", marker="")
low, high = min(0.98, fixed.min(), routed.min()), max(1.02, fixed.max(), routed.max())
axes.text(0.21, low, "yesterday", fontsize=11)
axes.text(0.865, low, "today", fontsize=11, ha="right")
axes.set(xlabel=f"share of “{hard}” in the tokens (the rest: “{easy}”)", ylabel="speedup of all traffic",
         ylim=(low - 0.005, high + 0.35 * (high - low)))
axes.legend(fontsize=12, loc="upper right")
show(figure, f"""Speedup of all traffic against the share of {hard} (the rest is {easy}) from 0 to 1, a drafted token costing
    {middle:.3f} target steps. With k by stream ({easy}: {k_names[easy]}; {hard}: {k_names[hard]}): {routed[0]:.3f} without
    {hard}, {routed[10]:.3f} at half, {routed[-1]:.3f} at all {hard}. With one k of {k_yesterday}, set for yesterday's mix:
    {fixed[0]:.3f}, {fixed[10]:.3f} and {fixed[-1]:.3f}.""")

# %% [markdown]
# A k that belongs to a stream needs no change when the mix does. A k that belongs to a mix is out of date as
# soon as the mix moves. How *much* it matters is the distance between the lines, and it is yours to measure.
# (Where the line of the one k lies a little higher, you see the price of caution: a gain too small to be
# shown was left.)

# %% [markdown]
# ## What to write next to an α
#
# The pair. The route, or the mix. Temperature, top-k, top-p. Whether the draft samples or is greedy, and at
# which temperature. The number of prompts, and the interval over them. If it was counted in rounds: the k.
# With less than that, the next person cannot use it.
#
# An engine has one k for the whole server (vLLM can also set it by batch size), not one a stream. What you
# *can* do: send the streams to servers with different settings, one of them without a draft.

# %% [markdown]
# ## Quiz

# %%
quiz("7.a")

# %%
quiz("7.b")

# %%
quiz("7.c")

# %%
quiz("7.d")

# %%
quiz("7.e")

# %%
quiz("7.f")

# %% [markdown]
# ## Recap
#
# - α belongs to draft, target, traffic and settings together.
# - α need not fall with temperature. At 0 it is the share of equal favourites; towards infinity both laws are
#   flat and equal; in between, measure.
# - A greedy draft is accepted with p(its favourite), a sampling one with Σ min(p, q). Either can win; in open
#   places it is hardly ever the greedy one. Both write the target's text, and so does a draft at any temperature, if the
#   verifier uses the law it was drawn from.
# - Compare settings prompt by prompt. Choose and judge on different prompts. Try it with random labels, too.
# - One k from one α costs most at the ends of the range, and where a stream should be off. Off means: the
#   lower end of its interval does not clear 1.
# - A pooled α moves with the mix. Keep one line a stream.
#
# **Next.** All prices here were assumed. Notebook 08 takes a stopwatch.
