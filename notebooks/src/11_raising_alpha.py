# %% [markdown]
# # 11 · Raising α
#
# - **You will do:** weigh drafts by what they cost as well as by what they get right; train one, live, and watch α
#   rise; cut its vocabulary; adapt it to one route; let a text draft for itself; and choose a draft for each route.
# - **You will learn:** what an α is worth at which price, why a small draft so often wins, which loss belongs to the
#   accept test, and what EAGLE, Medusa and MTP change in the formula.
# - **You need:** notebook 03 (costs), 04 (α as Σ min(p, q)), 05 (replay) and 08 (lookup). No GPU.
# - **Minutes:** 60

# %% [markdown]
# "Pick a draft source that can actually raise α": with that the first article ends. It is half of the advice. A better
# guesser is mostly a larger one, and the rounds wait for it.
#
# So the score of a draft is not α. It is the speedup at the k that suits it best:
#
# > **tokens per round ÷ (1 + k · c)**, at the best k, with c = one step of the draft ÷ one step of the target
#
# (plus whatever verifying k + 1 tokens costs above a plain step, and the rest of the round: notebook 08).

# %%
import itertools
import json
import math
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq  # for exercise 11.2
from scipy.stats import spearmanr

from course_lib.costs import CostTable, RoundCosts
from course_lib.course import notebook
from course_lib.fetch import DRAFT_DATA, DRAFT_FOLDER, PROPOSES, TARGET_FOLDER
from course_lib.intervals import Interval
from course_lib.learning import batches, overlaps
from course_lib.lookup import Lookup
from course_lib.lookup import guesses as looked_up
from course_lib.pairs import load_encoder, with_draft
from course_lib.plans import Plan, load_both
from course_lib.plots import banner, show, style
from course_lib.prompts import ROUTES, load_prompts
from course_lib.recordings import RECORDINGS, provenance, recording
from course_lib.sweep import decide
from course_lib.teacher import answer, by_frequency, load_rows, save_rows
from course_lib.theory import (
    alpha_from_tokens,
    conditional_from_unconditional,
    expected_tokens,
    tokens_from_unconditional,
)
from course_lib.traces import Trace, add_lookup

check, quiz = notebook("11")
style()


def best_speedup(alpha, c, most=12):
    """Of independent drafts whose rounds cost 1 + k c target steps, at the best k; 1 (off) where none pays."""
    return max(1.0, *(expected_tokens(alpha, k) / (1 + k * c) for k in range(1, most + 1)))


for name, alpha, c in (("small and quick", 0.60, 0.10), ("large and good", 0.75, 0.35)):
    print(f"{name:15} α = {alpha:.2f}, c = {c:.2f}: {best_speedup(alpha, c):.2f}× at its best k")

# %% [markdown]
# The second draft is right more often, and slower to use. Nothing about α alone could have told.

# %% [markdown]
# ## What a step of the draft reads
#
# Where does c come from? At batch 1 a step takes about as long as its weights take to be read (notebook 09). A Llama
# reads all its layers and its **head**, the table that turns a state into a chance for each token of the vocabulary. Of
# its embedding it reads one row.
#
# A layer of our target has 3.5 million weights. Its head has 28 million: **as much as eight layers**.

# %%
LAYER, HIDDEN, VOCABULARY, LAYERS = 3_540_096, 576, 49_152, 30  # SmolLM2-135M: weights of a layer, and its sizes
print(f"the head: {VOCABULARY * HIDDEN:,} weights, as many as {VOCABULARY * HIDDEN / LAYER:.1f} layers")

# %% [markdown]
# **Exercise 11.1** · easy · 5 minutes. A draft has `layers` of these layers and proposes only `proposes` tokens: it
# reads that many rows of the head. Which share of what a target step reads does its step read? The target proposes
# everything.

# %% tags=["exercise"]
def read_share(layers, proposes):
    # solution
    return (layers * LAYER + proposes * HIDDEN) / (LAYERS * LAYER + VOCABULARY * HIDDEN)
    # end


check(read_share)

# %% [markdown] tags=["hints"]
# - A head over n tokens has n · `HIDDEN` weights.
# - Both models read layers *and* a head: `layers * LAYER + proposes * HIDDEN` for the draft.

# %% [markdown]
# Now the clock. The recording has drafts of several sizes for the same target, cut from its own layers. `layers2`,
# `layers3`, … were trained on the same texts for the same number of steps, `shipped` longer. `early4` are the target's
# own first four layers, untrained. `@4096` means that it proposes only the 4,096 most frequent tokens; without it, all.
# (The course itself runs `shipped@16384`. At temperature 0, as here, α is the share of tokens at which the favourites of
# both models agree.)

# %%
recorded = json.loads(recording("drafts-cpu.json").read_text(encoding="utf-8"))
banner("recorded", **{name: recorded[name] for name in ("machine", "date", "command", "threads", "temperature")})


def called(name):
    """A draft by a short name: its folder, and what it is cut to."""
    folder, at, few = name.partition("@")
    return {DRAFT_FOLDER.name: "shipped"}.get(Path(folder).name, Path(folder).name) + at + few


found = {called(name): one for name, one in recorded["drafts"].items()}
models = {name: one for name, one in found.items() if one["parameters"]}  # all but lookup
target_reads = LAYERS * LAYER + VOCABULARY * HIDDEN
sizes = pd.DataFrame({name: {
    "layers": one["layers"], "proposes": one["proposes"] or VOCABULARY,
    "target ÷ draft, parameters": target_reads / one["parameters"],
    "share of weights read": (one["layers"] * LAYER + (one["proposes"] or VOCABULARY) * HIDDEN) / target_reads,
    "c by the clock": one["c"]} for name, one in models.items()}).T
sizes.astype({"layers": int, "proposes": int}).round(2)

# %%
excess = sizes["c by the clock"] / sizes["share of weights read"]
print(f"by the clock a draft step costs {excess.min():.2f} to {excess.max():.2f} times what its weights would")
whole = sizes[sizes.proposes == VOCABULARY]
for name, one in whole.iterrows():
    head = VOCABULARY * HIDDEN / (one.layers * LAYER + VOCABULARY * HIDDEN)
    print(f"{name}: {head:.0%} of what it reads is its head")

# %% [markdown]
# So "target ÷ draft" in parameters is a poor guide to c. It does not see that a head was cut: compare the rows of one
# draft. And even the weights that are read are no more than a guide: one large table streams faster than many small ones,
# and a step has costs that no weight explains (calls, drawing a token, a cache).
#
# Elsewhere size does not give the price either. Llama-3.2-1B for Llama-3.1-8B, on an L4: published prefix rates and
# speedups say what a round cost beyond a plain step, since tokens per round = 1 + k · rate. Shared out over its k drafts
# that is c, a token of width, and a share of the overhead (notebook 03 takes the last apart).

# %%
for k, rate, speedup in ((3, 0.547, 1.30), (5, 0.440, 1.21), (7, 0.363, 1.09)):  # nin-ran-jan/HPML_Project
    price = ((1 + k * rate) / speedup - 1) / k
    print(f"k = {k}: {1 + k * rate:.2f} tokens per round, {speedup:.2f}×: {price:.2f} target steps for each draft, all in all")
print(f"in parameters it is {1_235_814_400 / 8_030_261_248:.2f}")

# %% [markdown]
# ## What an α is worth
#
# Each line of the next figure joins drafts that are equally fast. Left and down on it: quick and often wrong. To go
# right, where a step is dearer, you must go up.

# %%
PUBLISHED = {  # pair: [(draft, parameters of target and draft in billions, α, c, measured speedup)], and the source
    "Qwen2.5-7B, M4": [("0.5B", 7.6, 0.5, 0.687, 0.383, 1.15), ("1.5B", 7.6, 1.5, 0.739, 0.535, 1.03), ("3B", 7.6, 3.1, 0.773, 0.702, 0.90)],
    "T5-XXL, T = 0": [("small", 11, 0.077, 0.75, 0.02, 3.4), ("base", 11, 0.25, 0.80, 0.04, 2.8), ("large", 11, 0.8, 0.82, 0.11, 1.7)],
    "T5-XXL, T = 1": [("small", 11, 0.077, 0.62, 0.02, 2.6), ("base", 11, 0.25, 0.68, 0.04, 2.4), ("large", 11, 0.8, 0.71, 0.11, 1.4)],
    "Llama-3.1-70B, MI300X": [("1B", 70.6, 1.24, None, None, 2.31), ("3B", 70.6, 3.21, None, None, 2.28), ("8B", 70.6, 8.03, None, None, 2.04)],
}  # spec-decode-advisor; Leviathan et al. 2023, table 4 (twice); rocm-blogs, speculative decoding deep dive

prices, chances = np.geomspace(0.01, 1, 40), np.linspace(0.3, 0.95, 27)
heights = np.max([(1 - chances[:, None] ** (k + 1)) / (1 - chances[:, None]) / (1 + k * prices) for k in range(1, 13)], axis=0)
figure, axes = plt.subplots(figsize=(7.5, 5.4))
lines = axes.contour(prices, chances, heights, levels=[1, 1.25, 1.5, 2, 2.5, 3, 4], colors="0.55", linewidths=1)
axes.clabel(lines, fmt=lambda level: f"{level:.3g}×", fontsize=10, inline_spacing=1)
for pair_name, members in PUBLISHED.items():
    if members[0][4]:
        axes.plot([one[4] for one in members], [one[3] for one in members], label=pair_name)
        for one in members:
            axes.annotate(one[0], (one[4], one[3]), xytext=(5, -13), textcoords="offset points", fontsize=10)
axes.set(xscale="log", xlabel="c, draft step ÷ target step", ylabel="α")
axes.set_xticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"])
axes.minorticks_off()
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
show(figure, "Lines of equal speedup at the best k over c (logarithmic, 0.01 to 1) and α, if verifying is free; they rise to the right. Published pairs, "
     "from the small draft to the large: " + "; ".join(f"{name}: " + ", ".join(
         f"{one[0]} α {one[3]:.2f} at c {one[4]:.2f}, {best_speedup(one[3], one[4]):.2f}×" for one in members)
         for name, members in PUBLISHED.items() if members[0][4]) + ".")

# %%
for pair_name, members in PUBLISHED.items():
    if members[0][4]:
        formula, clock = (max(members, key=by)[0] for by in (lambda one: best_speedup(one[3], one[4]), lambda one: one[5]))
        largest = members[-1]
        print(f"{pair_name}: fastest by the formula {formula}, by the clock {clock}; highest α {largest[0]}, {largest[5]:.2f}× measured")

# %% [markdown]
# Follow a family from its small draft to its large one. α grows with every step, and the last step always goes downhill.
# (The clock is harder on large drafts than the formula. Verifying and the rest of a round are not free.)
#
# **Exercise 11.2** · medium · 6 minutes. A draft has `alpha` at price `c`. Another costs `dearer` a step. Which α must it
# have to be as fast, each draft at the k that is best for itself? Return `math.nan` where not even α = 1 is enough. `best_speedup(alpha, c)`
# is defined above; `brentq(f, a, b)` finds where f is 0 between a and b.

# %% tags=["exercise"]
def needed(alpha, c, dearer):
    # solution
    wanted = best_speedup(alpha, c)
    if best_speedup(1, dearer) < wanted:
        return math.nan
    return brentq(lambda other: best_speedup(other, dearer) - wanted, alpha, 1)
    # end


check(needed)

# %% [markdown] tags=["hints"]
# - First the speed to reach: `best_speedup(alpha, c)`. Ask whether `best_speedup(1, dearer)` reaches it at all.
# - Then search between `alpha` and 1 for the α at which the difference of the two speedups is 0.

# %%
for alpha, c in ((0.5, 0.05), (0.6, 0.1), (0.7, 0.2)):
    wanted = best_speedup(alpha, c)
    same = brentq(lambda other, wanted=wanted, c=c: best_speedup(other, 2 * c) - wanted, alpha, 1)
    print(f"α = {alpha} at c = {c}: {wanted:.2f}×. At twice the price it takes α = {same:.3f}, {same - alpha:+.3f}")

# %% [markdown]
# That is the rate of exchange. A draft of twice the size pays only if it brings this much.

# %% [markdown]
# ### "Four to ten times smaller"
#
# The article's rule of thumb: a draft should be 4 to 10 times smaller than the target; beyond that α drops too far. Test
# it on everything with a published size and speedup.

# %%
rule = pd.DataFrame([(pair_name, one[0], one[1] / one[2], one[5]) for pair_name, members in PUBLISHED.items() for one in members],
                    columns=["target", "draft", "times smaller", "speedup"])
rule["in 4–10×"] = rule["times smaller"].between(4, 10)
rule["fastest of its family"] = rule.groupby("target").speedup.transform("max") == rule.speedup
best_of = rule[rule["fastest of its family"]]
print(f"fastest of its family, and 4 to 10 times smaller: {int(best_of['in 4–10×'].sum())} of {len(best_of)}; "
      f"the fastest are {best_of['times smaller'].min():.0f} to {best_of['times smaller'].max():.0f} times smaller")
smallest = rule.loc[rule.groupby("target")["times smaller"].idxmax()]
print(f"fastest of its family, and its smallest: {int(smallest['fastest of its family'].sum())} of {len(smallest)}")
rule.set_index(["target", "draft"]).round({"times smaller": 1})

# %% [markdown]
# (T5 stands here twice, once for each temperature.) α does drop, but slowly; the price drops fast. (Nobody publishes the drafts that were too small to be of use, so this
# does not show that smaller is always better. Our own designs say more, since the bad ones are in.)

# %% [markdown]
# ### Our designs
#
# The same picture with the costs of the recording: a verify that is not free, and what else a round takes. A line joins
# one draft's heads, from the smallest (left) to all 48k tokens. A step of the target costs the same whoever drafts. It was
# timed beside each draft, and the recording keeps the median: else its noise would order drafts that are close.
#
# **Claim.** α and c together tell which draft is faster. α alone does not.

# %%
most, first = max(recorded["ks"]), next(iter(found.values()))["costs"]
target_steps = {int(width): seconds for width, seconds in first["t_verify"].items()}  # the same for every draft
base = RoundCosts(0, target_steps, float(np.median([one["costs"]["overhead"] for one in found.values()])))
plain_step = base.round_seconds(0)
price = {name: one["draft_step"] / plain_step for name, one in found.items()}  # c


def score(alpha, c):
    """Predicted speedup at the best k on the machine of the recording, for independent drafts."""
    return RoundCosts(c * plain_step, base.t_verify, base.overhead).best_k(alpha, most)[1]


tokens = {route: one["tokens"] for route, one in next(iter(models.values()))["routes"].items()}
mean_alpha = {name: sum(one["routes"][route]["alpha"]["mean"] * n for route, n in tokens.items()) / sum(tokens.values()) for name, one in models.items()}
trained = {name: one for name, one in models.items() if not name.startswith("early")}  # these would lie far below
prices = np.linspace(0.8 * min(price[name] for name in trained), 1.15 * max(price[name] for name in trained), 40)
chances = np.linspace(min(mean_alpha[name] for name in trained) - 0.06, max(mean_alpha[name] for name in trained) + 0.06, 40)[:, None]
rounds = [(1 - chances ** (k + 1)) / (1 - chances) / (k * prices + (base.verify_seconds(k + 1) + base.overhead) / plain_step) for k in range(1, most + 1)]
figure, axes = plt.subplots(figsize=(7.5, 5.6))
lines = axes.contour(prices, chances[:, 0], np.max(rounds, axis=0), levels=np.arange(0.5, 5, 0.05), colors="0.6", linewidths=1)
axes.clabel(lines, fmt=lambda level: f"{level:.3g}×", fontsize=10, inline_spacing=1)
for folder in dict.fromkeys(name.split("@")[0] for name in trained):
    members = sorted((name for name in trained if name.split("@")[0] == folder), key=price.get)
    axes.plot([price[name] for name in members], [mean_alpha[name] for name in members], label=folder)
    for name in members:  # the smallest head below its mark: it may lie beside the next one
        axes.annotate(f"{(models[name]['proposes'] or VOCABULARY) / 1024:.0f}k", (price[name], mean_alpha[name]), textcoords="offset points",
                      xytext=(0, -14 if name == members[0] else 7), fontsize=9, ha="center")
axes.set(xlabel="c, draft step ÷ plain step", ylabel="α, mean over the routes")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
show(figure, "Lines of equal predicted speedup on the machine of the recording over c and α, and our drafts on it, a line for each with its cuts: " + "; ".join(
    f"{name} α {mean_alpha[name]:.2f} at c {price[name]:.2f}, {score(mean_alpha[name], price[name]):.2f}×" for name in models) + ".")

# %%
rows = []
for route in tokens:
    for name, one in models.items():
        here = one["routes"][route]
        rows.append({"route": route, "draft": name, "alpha": here["alpha"]["mean"], "c": price[name], "k": here["k"],
                     "predicted": here["speedup"]["mean"], "α and c": score(here["alpha"]["mean"], price[name])})
designs = pd.DataFrame(rows)
for route, here in designs.groupby("route", sort=False):
    good, fast = here.loc[here.alpha.idxmax()], here.loc[here.predicted.idxmax()]
    print(f"{route}: highest α {good.draft} ({good.alpha:.2f}), {good.predicted:.2f}×; fastest {fast.draft} (α {fast.alpha:.2f}), {fast.predicted:.2f}× at k = {fast.k}")
mix = designs.groupby("draft").predicted.agg(lambda each: len(each) / (1 / each).sum())  # as many tokens of each route
equal = mix[mix.index.str.startswith("layers")].sort_values(ascending=False)
print("after equally many steps, all routes together: " + ", ".join(f"{name} {speed:.2f}×" for name, speed in equal.items()))
columns = ["alpha", "predicted"]
designs.pivot(index="draft", columns="route", values=columns).loc[list(models)].swaplevel(axis=1).loc[:, [(route, column) for route in tokens for column in columns]].round(2)

# %% [markdown]
# The line on equal steps is how a design is chosen. α rises with every layer, and so does the price: most layers is
# not fastest. Where two designs lie within two or three percent, the clock's noise orders them; take the one you can
# afford to train. Half of the choice is the head: compare a draft with its own cut. `shipped` has four layers like
# `layers4` and seventeen times its training, which costs nothing at decoding.
#
# **It could have failed.** If α decided, sorting by α would sort by speed. So compare three orders with the speed that
# was predicted from the recorded texts: by α alone, by c alone (the cheapest first), and by α and c with the formula, which
# knows neither how the drafts of a text hang together nor what else its rounds cost. 1 is the same order, 0 no relation.

# %%
ranked = designs[designs.draft.isin(list(trained))]  # a draft that knows nothing would make any order look good
orders = pd.DataFrame({route: {"α": spearmanr(here.alpha, here.predicted)[0], "cheapest first": spearmanr(-here.c, here.predicted)[0],
                               "α and c": spearmanr(here["α and c"], here.predicted)[0]} for route, here in ranked.groupby("route", sort=False)})
print(f"rank correlation with the predicted speedup, {len(trained)} drafts")
print(orders.round(2).to_string())
wins = (orders.idxmax() == "α and c").sum()
print(f"both together order best on {wins} of {orders.shape[1]} routes: " + ("as claimed" if wins == orders.shape[1] else "not as claimed everywhere"))

# %% [markdown]
# ## What to train for
#
# A draft is trained by **distillation**: the target writes text, and at every token of it the draft's law q is pulled
# towards the target's p. Pulled how? The usual loss is KL(p‖q) = Σ p · log(p/q), the cost of coding p's tokens with q.
# But the accept test has its own measure (notebook 01):
#
# > α = Σ min(p, q) = 1 − TV(p, q)
#
# **Exercise 11.3** · easy · 5 minutes. `p` is a law, `drafts` a list of laws. Return the number (from 0) of the draft
# that is accepted most often. The target samples at temperature 1.

# %% tags=["exercise"]
def faster(p, drafts):
    # solution
    alphas = [sum(min(a, b) for a, b in zip(p, q, strict=True)) for q in drafts]
    return alphas.index(max(alphas))
    # end


check(faster)

# %% [markdown] tags=["hints"]
# - The chance of being accepted is Σ min(p, q), for each draft.
# - `values.index(max(values))` is the number of the largest.

# %%
banner("simulated", laws="three tokens, exact")
p = np.array([0.6, 0.3, 0.1])
for name, q in (("A", np.array([0.45, 0.35, 0.20])), ("B", np.array([0.60, 0.399, 0.001]))):
    print(f"draft {name}: KL {np.sum(p * np.log(p / q)):.3f}, α {np.minimum(p, q).sum():.3f}")

# %% [markdown]
# KL prefers A, the accept test prefers B. B thinks the third token nearly impossible. KL punishes that without limit, the
# accept test by what p has there, 0.1.
#
# ### A small draft cannot know everything
#
# With room enough q becomes p and both losses are 0. A draft has no room. Let it be unable to tell two contexts apart:
# in 70 % of the cases p is (0.9, 0.1), in 30 % it is (0.2, 0.8), and q = (x, 1 − x) must serve for both.

# %%
x = np.linspace(0.01, 0.99, 197)
contexts = ((0.7, 0.9), (0.3, 0.2))  # how often, and p of the first token
alpha_of_x = sum(share * (1 - abs(first - x)) for share, first in contexts)
kl_of_x = sum(share * (first * np.log(first / x) + (1 - first) * np.log((1 - first) / (1 - x))) for share, first in contexts)
figure, axes = plt.subplots(figsize=(7, 4))
axes.plot(x, alpha_of_x, marker="", label="α")
axes.plot(x, kl_of_x, marker="", label="KL")
by_kl, by_tv = kl_of_x.argmin(), alpha_of_x.argmax()
axes.plot(x[by_kl], kl_of_x[by_kl], "s", color="#D55E00")
axes.plot(x[by_tv], alpha_of_x[by_tv], "o", color="#0072B2")
axes.set(xlabel="x, the draft's chance for the first token", ylabel="α, or KL in nats", ylim=(0, 1.4))
axes.legend()
show(figure, f"α and KL against the draft's x. KL is least at x = {x[by_kl]:.2f}, where α is {alpha_of_x[by_kl]:.3f}; α is highest at x = {x[by_tv]:.2f}, with {alpha_of_x[by_tv]:.3f}.")
print(f"least KL: x = {x[by_kl]:.2f}, α = {alpha_of_x[by_kl]:.3f}; highest α: x = {x[by_tv]:.2f}, α = {alpha_of_x[by_tv]:.3f}")

# %% [markdown]
# KL takes the **mean** of what it cannot tell apart, total variation the **median**: it commits to the common case and
# gives the rare one up. A forecaster should do the first. A draft should do the second.
#
# ### Then why not total variation from the start?
#
# Look at what a loss asks of the draft's logits. The gradient of KL is q − p. That of α is q · (B − Q): B is 1 for a
# token whose q is below its p and else 0, and Q is how much of q lies on such tokens. It carries a factor q. Where a draft knows nothing yet, q of the right token is tiny, and so is the pull.

# %%
def pulls(p, q):
    """What KL and α ask of the logit of token 0: minus the gradient of KL, and the gradient of α."""
    below = q < p
    return p[0] - q[0], q[0] * (below[0] - q[below].sum())


for name, first in (("knows nothing", 1e-4), ("half way", 0.3), ("nearly there", 0.7)):
    rest = np.array([0.2, 0.3, 0.5]) * (1 - first)
    by_kl, by_alpha = pulls(np.array([0.8, 0.1, 0.05, 0.05]), np.array([first, *rest]))
    print(f"{name:13} q = {first:<6g} p = 0.8: pull of KL {by_kl:.4f}, of α {by_alpha:.5f}")

# %% [markdown]
# So `losses.py` begins with KL and turns to total variation between 40 and 80 % of the training. Training a draft for its target at all is worth
# more than the choice of the loss: DistillSpec (Zhou et al., arXiv 2310.08461) reports 10 to 45 % more speed, and a best
# loss that depends on the task.

# %% [markdown]
# ## Watch α rise
#
# Now train one, here: two of the target's thirty layers, its first and its last, with its embedding and head. The text
# comes first: short answers to JSON prompts, sampled at temperature 1. With each token the target's last state is kept,
# so training needs no further target step. (Half a minute; two on a busy machine.)

# %% tags=["nbval-ignore-output"]
teacher, learner, _, _ = load_both(Plan(str(TARGET_FOLDER), layers=(0, 29), steps=1, rate=3e-3), None)
banner("live", pair="smol", device=teacher.device, threads=torch.get_num_threads(), seed=0)
print(f"the draft has {learner.draft.config.num_hidden_layers} layers; {sum(map(torch.numel, learner.trained)):,} of its weights will be trained")

# %% tags=["nbval-ignore-output"]
ROUTE, NEW_TOKENS, SECONDS = "json", 28, 25


def short(route, split, count):
    """Some prompts of a route, short ones, spread over the file."""
    known = [prompt for prompt in load_prompts([route], split) if sum(len(message["content"]) for message in prompt.messages) < 260]
    return known[::len(known) // count][:count]


def written(prompts, answers, seed):
    """Answers of the target to each prompt, as rows to learn from: prompt, text, states, likely tokens."""
    ids = [teacher.encode(prompt.messages) for prompt in prompts]
    which = torch.arange(len(ids)).repeat(answers)
    texts, hidden = answer(teacher.target, ids, which, NEW_TOKENS, torch.Generator(teacher.device).manual_seed(seed), teacher.eos)
    with tempfile.TemporaryDirectory() as folder:
        save_rows(Path(folder) / "rows", teacher.target.lm_head, [ids[i] for i in which], texts, hidden)
        return load_rows(Path(folder) / "rows")


started = time.perf_counter()
lessons = written(short(ROUTE, "train", 14), 4, seed=0)
held = {route: written(short(route, "heldout", 6), 1, seed=1) for route in (ROUTE, "chat")}
print(f"{len(lessons)} texts to learn from, {sum(len(row['text']) for row in lessons):,} tokens; held back: "
      + ", ".join(f"{len(rows)} texts of {route}" for route, rows in held.items()) + f"; {time.perf_counter() - started:.0f} s")

# %% [markdown]
# The held-back texts answer *other* prompts. α on them, before any training:

# %% tags=["nbval-ignore-output"]
def alpha_on(route):
    """Σ min(p, q) on the held-back texts of a route, as it is now."""
    return sum(overlaps(learner.draft, learner.heads, held[route])) / sum(len(row["text"]) for row in held[route])


head = learner.heads[1]
words = torch.cat([row["text"] for row in lessons]).long()
table_of_words = torch.bincount(words, minlength=len(head)).float() / len(words)
laws = torch.cat([row["hidden"] for row in held[ROUTE]]).float().to(head.device) @ head.T
by_table = float(torch.minimum(laws.softmax(-1), table_of_words.to(head.device)).sum(-1).mean())
history = [(0.0, 0, alpha_on(ROUTE))]
before_chat = alpha_on("chat")
print(f"two of the target's own layers, untrained: α = {history[0][2]:.4f}")
print(f"no model at all, but the table of how often each token was written: α = {by_table:.4f}")

# %% [markdown]
# Two controls. Layers of the target are no draft **by themselves**, though they are the target's own: the last one was
# made to read what twenty-eight others had left. And a table of frequencies that looks at nothing has the second value.
# A draft has learned something only above that.
#
# Now half a minute of training, in small batches. (Each step looks at the 1,024 most frequent tokens, at those of its own
# texts and at some others: the whole vocabulary would take most of the time.)

# %% tags=["nbval-ignore-output"]
learner.frequent = by_frequency(torch.bincount(words, minlength=len(head)).numpy())[:1024]
lesson_stream = itertools.chain.from_iterable(batches(lessons, 4, np.random.default_rng(epoch)) for epoch in itertools.count())


def train(until):
    """Steps until the learner has spent so many seconds; α on the held-back texts every five."""
    mark = learner.spent + 5
    while learner.spent < until:
        learner.step(next(lesson_stream), min(1, learner.spent / (2 * SECONDS)))
        if learner.spent > mark or learner.spent >= until:
            mark = learner.spent + 5
            history.append((learner.spent, learner.seen, alpha_on(ROUTE)))
            print(f"{history[-1][0]:3.0f} s, {history[-1][1]:6,} tokens: α = {history[-1][2]:.3f}")


train(SECONDS)

# %% [markdown]
# And half a minute more, in which the loss has turned from KL to total variation, and the rate goes down to a twentieth.

# %% tags=["nbval-ignore-output"]
train(2 * SECONDS)
seconds, seen, alphas = map(list, zip(*history, strict=True))
figure, axes = plt.subplots(figsize=(7, 4))
axes.plot(seconds, alphas, label="α, held-back JSON")
axes.axhline(by_table, color="black", linewidth=1, linestyle="--", marker="", label="table of frequencies")
axes.set(xlabel="seconds of training", ylabel="α", ylim=(0, None))
axes.legend(loc="lower right")
show(figure, f"α on held-back JSON texts against seconds of training: {alphas[0]:.3f} untrained, {alphas[len(alphas) // 2]:.3f} after {seconds[len(seconds) // 2]:.0f} s, "
     f"{alphas[-1]:.3f} after {seconds[-1]:.0f} s; the table of frequencies has {by_table:.3f}.")
print(f"JSON: {alphas[0]:.3f} → {alphas[-1]:.3f}. Chat, of which it read nothing: {before_chat:.3f} → {alpha_on('chat'):.3f}")

# %% [markdown]
# From nothing to a draft in a minute. Its whole reading was a text of fewer than two thousand tokens, a few times over.
#
# And look at chat, of which it has read nothing: that rose as well. So part of what it learned is not JSON but how words
# go on. The rest belongs to the route.

# %% [markdown]
# ## Hours instead of minutes
#
# Here are the recorded curves: the designs that had 320 steps each, and the shipped draft. α is Σ min(p, q) on
# answers to prompts that were held back, the mean of the three routes.

# %%
recipe = json.loads((DRAFT_DATA / "draft.json").read_text(encoding="utf-8"))
files = {path.stem.removeprefix("distill-"): path for path in sorted(RECORDINGS.glob("distill-layers*.csv"))} | {"shipped": DRAFT_DATA / "curve.csv"}
banner("recorded", what="layers2 (the other designs likewise)", **provenance("distill-layers2.csv"))
banner("recorded", what="the shipped draft", machine=recipe["machine"], date=recipe["date"], command="python -m course_lib distill",
       layers=recipe["layers"], minutes=recipe["minutes"])
curves = {name: pd.read_csv(path) for name, path in files.items()}
measured = {}
for name, curve in curves.items():
    columns = [column for column in curve if column.startswith(("validation_", "alpha_"))]
    measured[name] = curve[curve.tokens > 0].dropna(subset=columns).assign(alpha=lambda rows, columns=columns: rows[columns].mean(axis=1))

figure, axes = plt.subplots(figsize=(7.5, 4.6))
for name, curve in measured.items():
    axes.plot(curve.tokens, curve.alpha, markersize=5, label=name)
axes.set(xscale="log", xlabel="million tokens of training (texts are read several times)", ylabel="α, mean of the routes")
ticks = [each for each in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if axes.get_xlim()[0] < 1e6 * each < axes.get_xlim()[1]]
axes.set_xticks([1e6 * each for each in ticks], [f"{each:g}" for each in ticks])
axes.minorticks_off()
axes.legend()
show(figure, "α on held-back prompts against the tokens of training, logarithmic. " + "; ".join(
    f"{name}: {curve.alpha.iloc[0]:.3f} after {curve.tokens.iloc[0]:,}, {curve.alpha.iloc[-1]:.3f} after {curve.tokens.iloc[-1]:,}" for name, curve in measured.items()) + ".")

# %%
equal = {name: curve for name, curve in measured.items() if name != "shipped"}
common = min(curve.step.max() for curve in equal.values())
at_equal = {name: float(curve.alpha[curve.step == common].iloc[0]) for name, curve in equal.items()}
print(f"after {common} steps: " + ", ".join(f"{name} {alpha:.3f}" for name, alpha in at_equal.items()))
shipped = measured["shipped"]
end = shipped.tokens.iloc[-1]
half, quarter = (float(np.interp(np.log(end / n), np.log(shipped.tokens), shipped.alpha)) for n in (2, 4))
print(f"the shipped draft, α at a quarter, a half and the end of its {end:,} tokens: {quarter:.3f}, {half:.3f}, {shipped.alpha.iloc[-1]:.3f}")
trained_on = curves["shipped"].overlap.tail(400).mean()
print(f"on the batches it learns from, over the last 400 steps: {trained_on:.3f}, {trained_on - shipped.alpha.iloc[-1]:+.3f} against held-back prompts")

# %% [markdown]
# Two things to read. **Layers against text:** how much a layer more brings after equal steps, against what more text
# brings the same draft. The second is paid for once, before anybody waits; a layer is paid for at every token drafted.
#
# (Where a curve dips, training was taken up again with more text, from a higher rate.)
#
# And **doublings:** each one costs twice the one before, so look at what the last brought. Where the batches it learns
# from are hardly better than held-back prompts, it is not learning by heart, and more text or layers could still help.

# %% [markdown]
# ### What the hours bought, by the clock
#
# α went up; a reader waits for seconds. The course's first draft had 64 minutes of training, the shipped one 240. Both
# are four layers. `first` proposes all 49,152 tokens, as it did then, `shipped` the 16,384 frequent ones. `layers2@4096`
# had some 20 minutes and is the cheapest. All decoded the same held-out prompts in one run, in turn with plain decoding.

# %%
clocked = json.loads(recording("drafts-cpu-first.json").read_text(encoding="utf-8"))
banner("recorded", **{name: clocked[name] for name in ("machine", "date", "command", "temperature", "checked")})
rows = {}
for name, one in clocked["drafts"].items():
    for route, here in {**one["routes"], "all": one["pooled"]}.items():
        rows[route, called(name)] = {"α": f"{here['alpha']['mean']:.2f}" if "alpha" in here else "", "k": here.get("k", ""), "measured": f"{Interval(**here['measured']):.2f}×",
                                     "over the first": f"{Interval(**here['over_first']):.2f}×" if here["over_first"] else ""}
pd.DataFrame(rows).T

# %%
for name, one in clocked["drafts"].items():
    if one["pooled"]["over_first"]:
        ratio = Interval(**one["pooled"]["over_first"])
        print(f"{called(name)} over first, all routes: {ratio:.2f}×, " + ("faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "no difference that these prompts can show"))

# %% [markdown]
# ## Propose fewer tokens
#
# The head is most of a small draft. So leave rows out: keep the tokens that are frequent, and let q be 0 elsewhere.
#
# Is the text still the target's? Nothing in the proof of notebook 01 asks where q is 0. A token that is never drafted
# comes from the residual, or as the extra token of a round.
#
# **Exercise 11.4** · medium · 6 minutes. The draft with law `q` may propose only the tokens `keep` (a list of numbers). Its
# logits elsewhere become −∞. What is α now?

# %% tags=["exercise"]
def reduced_alpha(p, q, keep):
    # solution
    total = sum(q[i] for i in keep)
    return sum(min(p[i], q[i] / total) for i in keep)
    # end


check(reduced_alpha)

# %% [markdown] tags=["hints"]
# - Without the other tokens the kept ones share the whole chance: divide their q by their sum.
# - Then Σ min(p, q) as ever. p is not cut.

# %% [markdown]
# Now the law of what is *emitted*, by going through every drafted token, with exact fractions. The second line is a
# mistake that is easy to make with a cut vocabulary: the residual is taken over the kept tokens alone.

# %%
p, q, keep = [[Fraction(n, 20) for n in law] for law in ((9, 5, 4, 2), (8, 6, 4, 2))] + [[0, 1]]
cut = [q[i] / sum(q[j] for j in keep) if i in keep else Fraction(0) for i in range(4)]


def emitted(p, q, where):
    """The law of one emitted token; the residual is taken over the tokens `where`."""
    left = [max(p[i] - q[i], 0) if i in where else Fraction(0) for i in range(len(p))]
    rejected = 1 - sum(map(min, p, q))
    return [min(p[i], q[i]) + rejected * left[i] / sum(left) if sum(left) else min(p[i], q[i]) for i in range(len(p))]


banner("simulated", laws="four tokens, exact; the draft proposes tokens 0 and 1")
for name, law in (("the target", p), ("emitted", emitted(p, cut, range(4))), ("residual cut as well", emitted(p, cut, keep))):
    print(f"{name:21}{'  '.join(f'{value!s:>5}' for value in law)}   sum {sum(law)}{'   = p' if law == p else ''}")

# %% [markdown]
# With the right residual it is p to the last fraction. With the other one, tokens 2 and 3 have died out (and where the
# kept tokens leave no residual, the chances do not even add up).
#
# What is lost, then, is α: at most the target's chance of saying something outside the list. How often does it?

# %%
proposes = np.load(DRAFT_FOLDER / PROPOSES)
covered = {}
for name in ("smol-t0.parquet", "smol-t1.parquet"):
    text = Trace.load(recording(name))
    banner("recorded", **{key: text.meta[key] for key in ("machine", "date", "command")})
    known = text.rows.assign(known=np.isin(text.rows.token, proposes))
    covered[f"T = {text.meta['temperature']:g}"] = 1 - known.groupby("route", sort=False).known.mean()
print(f"the target's tokens that are not among the {len(proposes):,} the shipped draft proposes, on prompts it never met")
pd.DataFrame(covered).map("{:.2%}".format)

# %% [markdown]
# And the whole trade, from the recording: the same weights with smaller and smaller heads.

# %%
by_head = {}
for name, one in models.items():
    by_head.setdefault(name.split("@")[0], []).append((one["proposes"] or VOCABULARY, name))
lines = []
for folder, members in by_head.items():
    for size, name in sorted(members, reverse=True) if len(members) > 1 else []:
        here = designs[designs.draft == name]
        lines.append({"draft": folder, "proposes": size, "c": price[name], "α": mean_alpha[name],
                      **{f"predicted, {row.route}": row.predicted for row in here.itertuples()}})
heads = pd.DataFrame(lines)
if len(heads):
    speeds = [column for column in heads if column.startswith("predicted")]
    heads["mean speedup"] = len(speeds) / (1 / heads[speeds]).sum(axis=1)
    for folder, here in heads.groupby("draft", sort=False):
        best, widest = here.loc[here["mean speedup"].idxmax()], here.iloc[0]
        print(f"{folder}: best with {best.proposes:,} tokens, {best['mean speedup'] / widest['mean speedup'] - 1:+.1%} against {widest.proposes:,}; "
              f"α {best['α'] - widest['α']:+.3f}, c {best.c - widest.c:+.3f}")
heads.round(3)

# %% [markdown]
# (The target's costs are the same in all rows, by construction; a draft step still has noise of a few percent. Where two heads lie
# closer than that, take the smaller.)
#
# FR-Spec (Zhao et al. 2025, arXiv 2502.14856) does the same to EAGLE-2's draft with a vocabulary of 128,000: three
# quarters of the head's work saved, 1.12 times the speed. The larger the vocabulary and the smaller the draft, the more
# there is to gain.

# %% [markdown]
# ## One route at a time
#
# A draft that serves one route need not know the others. Two recordings go on from the shipped draft for some minutes,
# each with total variation as its loss. One reads JSON prompts, of which the draft had read hundreds. The other reads a
# route it had never met: `sql`, questions to a service that turns them into queries, always under the same instruction.

# %%
costs, rows = CostTable.load(recording("costs-cpu.json")), {}
adaptations = sorted(RECORDINGS.glob("adapt-*.json"))
if not adaptations:
    print("no recording of an adaptation: run `python -m course_lib distill --start DRAFT --routes json --minutes 8 --out FOLDER --json`")
for path in adaptations:
    adapted = json.loads(path.read_text(encoding="utf-8"))
    banner("recorded", **provenance(path.name), steps=adapted["steps"], tokens=adapted["tokens"], minutes=round(adapted["seconds"]["training"] / 60, 1))
    for route, one in adapted["alpha"].items():
        gain, (before, after) = Interval(**one["gain"]), (one[name]["mean"] for name in ("before", "after"))
        worth = costs.at(1).best_k(after, 12)[1] / costs.at(1).best_k(before, 12)[1] - 1
        rows[path.stem, route] = {"learned": "yes" if one["learned"] else "no", "prompts": one["prompts"], "α before": f"{Interval(**one['before']):.3f}",
                                  "α after": f"{Interval(**one['after']):.3f}", "gain": f"{gain:+.3f}" + (" *" if gain.low > 0 or gain.high < 0 else ""), "speed": f"{worth:+.1%}"}
    for name, learned in (("the route it learned", True), ("the others", False)):
        print(f"mean gain on {name}: {np.mean([one['gain']['mean'] for one in adapted['alpha'].values() if one['learned'] == learned]):+.3f}")
pd.DataFrame(rows).T if rows else None

# %% [markdown]
# A star: the interval of the gain leaves out 0 (each prompt is compared with itself). `speed` is what the formula makes of
# the two means on the machine of notebook 08. α is of text at temperature 1.
#
# The other routes are the control. What is gained on one may be lost on another. An engine that has one draft for all
# traffic must weigh it by tokens; exercise 11.7 does. And a draft that knows a route already has little left to learn there.

# %% [markdown]
# ## A draft without a model
#
# Notebook 08 let the text draft for itself: **lookup** finds where the last tokens stood before and proposes what came
# next. It costs nothing, so it needs no high α. Where does it beat a trained draft? There is a fourth route for this
# question, `copy`: fix one word, extract a line, rename a variable. Most of the answer stands in the prompt.

# %%
KS = (1, 2, 3, 4, 5, 8, 12)
texts = [Trace.load(recording(name)) for name in ("smol-t0.parquet", "smol-copy-t0.parquet")]
for text in texts:
    banner("recorded", **{key: text.meta[key] for key in ("machine", "date", "command")}, temperature=text.meta["temperature"])
every, encode = load_prompts((*ROUTES, "copy")), load_encoder("smol")
SOURCES = {"the draft": None, "lookup": False, "lookup, then the draft": True}
predicted = {}
for text in texts:
    for who, model_too in SOURCES.items():
        drafted = text if model_too is None else add_lookup(text, encode, every, Lookup(), draft=model_too)
        for route, one in decide(drafted, costs, KS)["routes"].items():
            predicted[route, who] = max(one["loads"]["1"]["table"], key=lambda row: (row["predicted"], -row["k"]))
shown = pd.DataFrame({key: {"k": row["k"], "tokens per round": f"{Interval(row['tokens_per_round'], row['tokens_low'], row['tokens_high']):.2f}",
                            "speedup": f"{Interval(row['predicted'], row['predicted_low'], row['predicted_high']):.2f}"} for key, row in predicted.items()})
shown.T.unstack(0).swaplevel(axis=1).loc[list(SOURCES), [(route, column) for route in (*ROUTES, "copy") for column in shown.index]]

# %%
for route in (*ROUTES, "copy"):
    model, alone, both = (predicted[route, who]["predicted"] for who in SOURCES)
    print(f"{route}: lookup alone is predicted {alone / model:.2f} times as fast as the draft, both together {both / model:.2f} times")
ahead = [route for route in (*ROUTES, "copy") if predicted[route, "lookup"]["predicted"] > predicted[route, "the draft"]["predicted"]]
print("lookup alone is ahead of the draft on " + (", ".join(ahead) or "no route"))

# %% [markdown]
# **It could have failed.** If lookup on `copy` found only what any English text has, the prompt of another request would
# do as well.

# %%
own = texts[1].rows.groupby("prompt", sort=False).token.agg(list)
ids = {prompt.id: encode(prompt.messages) for prompt in every if prompt.route == "copy"}
names = list(own.index)
for whose, shift in (("its own prompt", 0), ("a neighbour's prompt", 1), ("no prompt", None)):
    right = np.concatenate([looked_up(Lookup(), [] if shift is None else ids[names[(i + shift) % len(names)]], own[name]) == own[name]
                            for i, name in enumerate(names)])
    print(f"{whose:21} {right.mean():.1%} of the tokens guessed right")

# %% [markdown]
# On `copy` that is no surprise. Elsewhere it is one: where the text has nothing to say the lookup is silent, and a guess of
# it costs a place in the verify and nothing else. So it can afford k = 8, where the draft must stop at 1.
#
# And by the clock, which tried fewer k: each value is at the k that its own recording predicted to be best of those that
# were timed (– was not). Every prompt was decoded plainly as well, in turn.

# %%
WHO = {(True, False): "the draft", (True, True): "lookup, then the draft", (False, True): "lookup"}
clocked = {}


def add_sweep(name):
    """Speedups by the clock from a recorded `sweep --check`."""
    document = json.loads(recording(name).read_text(encoding="utf-8"))
    meta = document["meta"]["traces"][0]
    banner("recorded", **{key: document["meta"]["costs"][key] for key in ("machine", "date", "command")})
    for route, one in document["routes"].items():
        row = max((row for row in one["loads"]["1"]["table"] if row["measured"]), key=lambda row: (row["predicted"], -row["k"]))
        clocked[route, WHO[bool(meta["draft"]), bool(meta["lookup"])]] = (row["k"], Interval(row["measured"], row["measured_low"], row["measured_high"]))


for name in ("sweep-cpu.json", "sweep-cpu-lookup.json", "sweep-cpu-lookup-only.json", "sweep-cpu-copy.json"):
    add_sweep(name)
together = json.loads(recording("drafts-cpu-copy.json").read_text(encoding="utf-8"))  # here the two took turns on each prompt
banner("recorded", **{name: together[name] for name in ("machine", "date", "command")})
for name, one in together["drafts"].items():
    who = "lookup" if name == "lookup" else "the draft"
    clocked |= {(route, who): (here["k"], Interval(**here["measured"])) for route, here in one["routes"].items()}
pd.DataFrame({route: {who: "–" if (route, who) not in clocked else f"{clocked[route, who][1]:.2f} at k = {clocked[route, who][0]}" for who in SOURCES}
              for route in (*ROUTES, "copy")})

# %% [markdown]
# ## Trees, states and heads
#
# Everything so far was a **chain**: one guess for each place, from a draft that reads tokens. Engines have more. Each
# changes one part of the formula.
#
# | draft | how it guesses | tokens per round | price of drafting |
# |---|---|---|---|
# | chain of a model | k steps, one token each | 1 + α + α² + … | k · c |
# | **tree** (SpecInfer, EAGLE-2, Medusa) | several candidates a place | the sum over the paths | fewer steps, a wider verify |
# | **EAGLE** | one layer, fed with the target's *states* | α falls with depth | k · c, with c small |
# | **Medusa** | k heads on the target's last state, at once | α falls faster with depth | c once, not k times |
# | **MTP** | as EAGLE, trained with the target from the start | mostly k = 1: 1 + α | c, small |
#
# **EAGLE** (arXiv 2401.15077) reads, with the last token, the target's state behind it, which says more than the token
# does. That state is real for the first guess of a round. For the second it is the draft's own guess, and so on. **Medusa** (arXiv 2401.10774)
# has no such chain, but its third head must guess without knowing the first two guesses. **MTP** layers are trained
# along with the target, as in DeepSeek-V3 (arXiv 2412.19437).
#
# See it in numbers that an engine counted: EAGLE-3 for Llama-3.1-8B on MT-Bench, k = 3 (vLLM's acceptance tests).

# %%
rates = [0.7296, 0.5208, 0.3545]  # accepted at each position, of all rounds
print(f"tokens per round 1 + {' + '.join(map(str, rates))} = {tokens_from_unconditional(rates):.2f}")
print("given that all before were accepted: " + ", ".join(f"{rate:.3f}" for rate in conditional_from_unconditional(rates)))
print(f"DeepSeek-V3, k = 1, α from 0.85 to 0.90: {1 + 0.85:.2f} to {1 + 0.90:.2f} tokens per round; it reports 1.8 times the tokens a second, "
      f"so a round costs {1.85 / 1.8:.2f} to {1.90 / 1.8:.2f} steps")
needs = 1.96 * (1 + 3 * 0.125)
print(f"EAGLE under a 70B target, k = 3, draft step 0.125 (arXiv 2601.11580): 1.96× takes {needs:.2f} tokens per round, as α = {alpha_from_tokens(needs, 3):.2f} would give")

# %% [markdown]
# The second line *falls* with depth. With a draft model survivors make it rise (notebook 06). Here the draft itself gets
# worse, place by place, because it reads its own guesses.
#
# That is also why **one pass cannot replay these drafts**. It gives every place one chance a_t. Here the chance at a place
# depends on where the round began, and in a tree on which candidate is asked.
#
# Published speedups at batch 1, for orientation. Other targets, tasks and machines, so do not compare the lines:
#
# | | speedup | where | source |
# |---|---|---|---|
# | Medusa | 2.2 to 3.6× | Vicuna | arXiv 2401.10774 |
# | EAGLE | 2.7 to 3.5× | LLaMA2-Chat 70B | arXiv 2401.15077 |
# | EAGLE-3 | up to 6.5×; about 1.4 times EAGLE-2 | five tasks | arXiv 2503.01840 |
# | EAGLE, k = 3 | 1.96× (70B, batch 1), 1.21× (8B, batch 128) | H100 | arXiv 2601.11580 |
# | MTP, k = 1 | 1.8× tokens a second | DeepSeek-V3 | arXiv 2412.19437 |
# | MTP, 4 tokens | up to 3× | models trained so | arXiv 2404.19737 |

# %% [markdown]
# ### Two candidates for one place
#
# At temperature 1 a second candidate is judged like this (SpecInfer, arXiv 2305.09781): if the first is rejected, the
# residual takes the place of p, and the second is accepted with min(1, residual/q). If it is rejected, too, the target
# draws from what is left then. The emitted law is p again.
#
# **Exercise 11.5** · medium · 6 minutes. Both candidates are drawn from `q`, independently; `q` is not `p`. What is the
# chance that one of them is accepted?

# %% tags=["exercise"]
def one_of_two(p, q):
    # solution
    alpha = sum(map(min, p, q))
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    residual = [value / sum(left) for value in left]
    return alpha + (1 - alpha) * sum(map(min, residual, q))
    # end


check(one_of_two)

# %% [markdown] tags=["hints"]
# - The first is accepted with α = Σ min(p, q). The second has its turn with chance 1 − α.
# - It is judged against the residual, max(p − q, 0), divided by its sum.

# %%
def tries(p, q, n):
    """The chance that one of n draws from q is accepted, each judged against what the last one left."""
    rejected = 1.0
    for _ in range(n):
        alpha, left = np.minimum(p, q).sum(), np.maximum(p - q, 0)
        rejected, p = rejected * (1 - alpha), left / max(left.sum(), 1e-300)
    return 1 - rejected


banner("simulated", laws="three tokens, exact")
p, q = np.array([0.5, 0.4, 0.1]), np.array([0.3, 0.2, 0.5])
for n in (1, 2, 4):
    print(f"{n} candidate{'s' if n > 1 else ' '}: {tries(p, q, n):.3f}; were they independent tries: {1 - (1 - tries(p, q, 1)) ** n:.3f}")

# %% [markdown]
# The residual lies where q has too little. So a second draw from the same q is never better than the first, and mostly
# worse.
#
# ### A tree against a chain
#
# At temperature 0 it is simpler: the candidates are the draft's favourites, at most one of them is right, and their chances
# add up. Let each candidate be followed by a chain of its own.
#
# **Exercise 11.6** · medium · 6 minutes. `hits` are the chances that the draft's first, second, … candidate is the right
# token. Behind each stands a chain, `depth` tokens long with the candidate itself; in it every further token is right
# with chance `alpha` if all before it are. How many tokens does a round emit on average?

# %% tags=["exercise"]
def tree_tokens(hits, alpha, depth):
    # solution
    return 1 + sum(hits) * sum(alpha**i for i in range(depth))
    # end


check(tree_tokens)

# %% [markdown] tags=["hints"]
# - At most one candidate is right. With which chance is *any* of them?
# - Behind the right one the chain goes on as always: 1 + α + … + α^(depth − 1) tokens with the candidate.

# %% [markdown]
# How often is the shipped draft's *second* choice right? It reads some of the recorded texts, which the target wrote at
# temperature 0.

# %% tags=["nbval-ignore-output"]
pair = with_draft(teacher, str(DRAFT_FOLDER))
banner("live", pair="smol", text="recorded, temperature 0", prompts="8 a route")
written_text = texts[0].rows.groupby(["route", "prompt"], sort=False).token.agg(list)
hits = {}
for prompt in load_prompts(limit=8):
    prompt_ids, text = teacher.encode(prompt.messages), written_text[prompt.route, prompt.id]
    with torch.inference_mode():
        found_states = pair.draft.model(input_ids=torch.tensor([prompt_ids + text[:-1]], device=teacher.device), use_cache=False).last_hidden_state
        favourites = pair.draft.lm_head(found_states[0, len(prompt_ids) - 1:]).topk(4).indices.cpu().numpy()
    hits.setdefault(prompt.route, []).append(favourites == np.array(text)[:, None])
hits = {route: np.concatenate(each).mean(0) for route, each in hits.items()}
pd.DataFrame(hits, index=["first choice right", "second", "third", "fourth"]).round(3)

# %% [markdown]
# Now three rounds that verify the same five tokens, and a shorter chain. The costs are those of notebook 08.

# %% tags=["nbval-ignore-output"]
step, plain = costs.at(1).t_draft, costs.at(1).round_seconds(0)
lines = []
for name, width, depth in (("chain of 4", 1, 4), ("2 candidates, chains of 2", 2, 2), ("4 candidates", 4, 1), ("chain of 2", 1, 2)):
    # A draft step over a few tokens is taken to cost what a step over one does.
    cost = (depth * step + costs.at(1).verify_seconds(1 + width * depth) + costs.at(1).overhead) / plain
    emits = {route: 1 + hit[:width].sum() * sum(hit[0] ** i for i in range(depth)) for route, hit in hits.items()}
    lines.append({"round": name, "verified": 1 + width * depth, "draft steps": depth, "price": cost, **{f"tokens, {route}": each for route, each in emits.items()},
                  **{f"speedup, {route}": each / cost for route, each in emits.items()}})
pd.DataFrame(lines).set_index("round").round(2)

# %% [markdown]
# A tree emits more than a chain of the same size where the second choice is right more often than the chain's next
# place is reached and right: two candidates of two beat a chain of four where h₂ (1 + h₁) is above h₁³ + h₁⁴, that is,
# where h₂ is above h₁³, with h₁ and h₂ from the table. And it has **fewer draft steps** one after the other. So width pays where drafting is the dear part and verifying
# is free. Where every verified token costs, as on a CPU or under load, hold it against the last line, a chain of two.
#
# (An estimate: here the chances are the same at every depth. Our decoder has no trees.)

# %% [markdown]
# ## Which draft for which route?
#
# All that was recorded, on one line a route. The rule of notebook 08: take the draft that predicts the most, if the lower
# end of its interval is above 1, and look at the clock.

# %%
lines = []
for route in (*ROUTES, "copy"):
    options = {who: (row["k"], Interval(row["predicted"], row["predicted_low"], row["predicted_high"])) for (where, who), row in predicted.items() if where == route}
    options |= {name: (one["routes"][route]["k"], Interval(**one["routes"][route]["speedup"])) for name, one in models.items()
                if name != "shipped@16384" and route in one["routes"]}
    best, second, *_ = sorted(options, key=lambda who: -options[who][1].mean)
    k, speed = options[best]
    at, clock = clocked.get((route, best), (0, None))
    lines.append({"route": route, "take": best if speed.low > 1 else "none: plain decoding", "k": k if speed.low > 1 else 0, "predicted": f"{speed:.2f}",
                  "by the clock": f"{clock:.2f} at k = {at}" if clock else "not timed", "second": f"{second} {options[second][1].mean:.2f}", "of": len(options)})
pd.DataFrame(lines).set_index("route")

# %% [markdown]
# By the clock each choice is faster than plain decoding, but not equally surely. Few prompts were timed, and where the
# interval reaches below 1, as for lookup alone on chat and on code, a gain is not shown yet. Then time more prompts, or take
# the second if the clock is sure of it.
#
# (The best of several has some luck in it. Where the second is close, take the simpler one: lookup needs no second model, no
# training and no memory.)
#
# **Exercise 11.7** · medium · 5 minutes. An engine holds *one* draft. `speedups` is a dictionary from draft to a dictionary
# from route to its speedup there, `shares` the share of each route in the tokens. Return the draft that makes the whole mix
# fastest, or `"off"` if none is faster than plain decoding.

# %% tags=["exercise"]
def for_the_mix(speedups, shares):
    # solution
    whole = {name: 1 / sum(share / of[route] for route, share in shares.items()) for name, of in speedups.items()}
    best = max(whole, key=whole.get)
    return best if whole[best] > 1 else "off"
    # end


check(for_the_mix)

# %% [markdown] tags=["hints"]
# - A token of a route takes 1 ÷ speedup. Add up these times, weighted by the shares.
# - The speedup of the mix is 1 ÷ that sum. Then the best draft, if it is above 1.

# %%
mixes = {"equal parts": dict.fromkeys((*ROUTES, "copy"), 0.25), "mostly chat": {"chat": 0.7, "code": 0.1, "json": 0.1, "copy": 0.1},
         "mostly copying": {"chat": 0.1, "code": 0.1, "json": 0.1, "copy": 0.7}}
speeds = {who: {route: predicted[route, who]["predicted"] for route in (*ROUTES, "copy")} for who in SOURCES}
banner("recorded", what="predicted speedups of the table above", machine=costs.meta["machine"], date=costs.meta["date"], command=costs.meta["command"])
pd.DataFrame({name: {who: 1 / sum(share / of[route] for route, share in shares.items()) for who, of in speeds.items()} for name, shares in mixes.items()}).round(2)

# %% [markdown]
# Your mix is not one of these, and your target is another one. What carries over is the way to find out: one text of
# the target, every draft on it, costs in turn, then the clock.
#
# ```
# python -m course_lib distill --layers 0,1,2,29 --minutes 30 --out my-draft          # for any Llama: --target
# python -m course_lib distill --start my-draft --prompts mine.jsonl --minutes 10 --out my-draft-adapted
# python -m course_lib bench drafts my-draft my-draft@4096 my-draft-adapted lookup --check
# ```

# %% [markdown]
# ## Quiz

# %%
quiz("11.a")

# %%
quiz("11.b")

# %%
quiz("11.c")

# %%
quiz("11.d")

# %%
quiz("11.e")

# %%
quiz("11.f")

# %%
quiz("11.g")

# %%
quiz("11.h")

# %% [markdown]
# ## Recap
#
# - Score a draft by its speedup at its own best k. α is half of that, c the other half.
# - c is what a step reads, the head included, and more. The ratio of parameters is a poor guide to it, and "4 to 10 times
#   smaller" no law: measure.
# - α = 1 − TV. KL learns fast from nothing and takes the mean of what a small draft cannot tell apart; total variation
#   commits.
# - Training is paid for once, layers at every token.
# - A reduced vocabulary keeps the text exact, if the residual is not cut. It trades a little α for less c.
# - Minutes of training on a route help a little where the draft has not met it, and cost the other routes about as much.
#   Measure both.
# - Lookup costs nothing. Where text is copied, try it first.
# - Trees, EAGLE, Medusa and MTP change yield and price. The score stays the same: tokens per round ÷ price of a round.
#
# **Next.** Notebook 12: your own traffic.
