# %% [markdown]
# # 09 · Concurrency
#
# - **You will do:** follow one draft from a quiet machine to a busy one, find the batch at which it stops paying, and
#   write the table that tells a server which k to use at which load.
# - **You will learn:** why a speedup at batch 1 can be a loss at batch 32, what a long context does to that, what a
#   roofline can say and what it cannot, and four cases in which not to speculate, each with its number.
# - **You need:** notebooks 03 (costs), 05 (tokens per round) and 08 (prices by the clock). No model and no GPU.
# - **Minutes:** 75

# %% [markdown]
# Almost every published speedup was measured with one user. A server has many at once, and runs them as one **batch**:
# one step of the target writes a token in every row. We call the number of rows that run together the **load**.
#
# Speculation lives on idle arithmetic (notebook 03). Other rows want that arithmetic too. So the question of this course
# has no answer without a load.

# %%
import dataclasses
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from course_lib.costs import CostTable
from course_lib.course import notebook
from course_lib.plots import banner, show, style
from course_lib.prompts import ROUTES
from course_lib.recordings import RECORDINGS, recording
from course_lib.replay import tokens_per_round
from course_lib.roofline import DEVICES, MODELS, Device, forward_seconds, roofline_costs, rows_that_fit
from course_lib.theory import expected_tokens
from course_lib.traces import Trace

check, quiz = notebook("09")
style()

# %% [markdown]
# ## Six loads on one machine
#
# The recording below holds what a round of our small pair costs at batch 1, 2, 4, 8, 16 and 32: the draft step, the
# target step at each width, and the overhead. They were timed inside the decoder's own rounds.

# %%
costs = CostTable.load(recording("costs-cpu.json"))
BATCHES = sorted(costs.batches)
FIRST, LAST = BATCHES[0], BATCHES[-1]
banner("recorded", **{name: costs.meta[name] for name in ("machine", "date", "command")}, pair=costs.meta.get("pair"),
       dtype=costs.meta.get("dtype"), threads=costs.meta.get("threads"))

plain = pd.DataFrame({
    "plain step, ms": [1e3 * costs.at(batch).round_seconds(0) for batch in BATCHES],
    "tokens/s, one row": [1 / costs.at(batch).round_seconds(0) for batch in BATCHES],
    "tokens/s, all rows": [batch / costs.at(batch).round_seconds(0) for batch in BATCHES],
}, index=pd.Index(BATCHES, name="batch"))
rise = plain.iloc[-1] / plain.iloc[0]
print(f"A step for {LAST} rows takes {rise['plain step, ms']:.1f} times as long as a step for one and writes {LAST} times as many tokens: "
      f"{rise['tokens/s, all rows']:.1f} times as many a second.")
plain.round(1)

# %% [markdown]
# This is plain decoding. The weights are read once for all rows, so the machine as a whole writes more, and each user waits longer.
#
# Now the price of a *round*, in target steps (the plain steps of notebook 08) at the same batch. It is also the break-even: the tokens a round must emit.

# %%
SHOWN = (1, 2, 4, 8, 12)
prices = pd.DataFrame({f"k = {k}": [costs.at(batch).break_even_tokens(k) for batch in BATCHES] for k in SHOWN},
                      index=pd.Index(BATCHES, name="batch"))
print(f"The price of k = 4 goes from {prices.loc[FIRST, 'k = 4']:.2f} target steps at batch {FIRST} to "
      f"{prices.loc[LAST, 'k = 4']:.2f} at batch {LAST}; a round of k = 4 cannot emit more than 5 tokens.")
prices.round(2)

# %% [markdown]
# Read the table down a column. Where the numbers grow, drafts that were nearly free are being paid for.
#
# Why is k = 1 so much dearer at batch 4, and a little cheaper again at batch 8? The packed product takes six tokens at a
# time (notebook 08). At batch 4 a plain step, 4 tokens, is one block, and a verify of k = 1, 8 tokens, is two. At batch 8
# the plain step needs two as well. A price need not be smooth.
#
# ## The same draft, more rows
#
# **Claim.** What a round yields does not depend on the batch. What it costs does. So the speedup, and the k that is
# best, are functions of the load.
#
# The first half is a matter of logic: each row has its own text, its own coins and its own count of accepted drafts. A row
# does not wait for its neighbours' drafts to be accepted. (The package's tests hold the decoder to this: in a batch each row emits
# what it emits alone.) So one recorded trace gives the yield for every batch.

# %%
KS = (1, 2, 3, 4, 5, 8, 12)
trace = Trace.load(recording("smol-t0.parquet"))
yields = tokens_per_round(trace, KS)
banner("recorded", **{name: trace.meta[name] for name in ("machine", "date", "command")}, temperature=trace.meta["temperature"],
       prompts=trace.rows.groupby("route").prompt.nunique().to_dict())
yields.pivot(index="route", columns="k", values="mean").loc[list(ROUTES)].round(2)

# %% [markdown]
# Tokens per round, by route and k. Divide each by its price at each batch:

# %%
def speedups(route, batch, ks=KS):
    """Speedup with its interval at each k: a table with columns mean, low, high."""
    rows = yields[yields.route == route].set_index("k").loc[list(ks), ["mean", "low", "high"]]
    return rows.div([costs.at(batch).break_even_tokens(k) for k in ks], axis=0)


def choice(route, batch):
    """The best k, or 0 where the lower end of its interval is not above 1; and its row of `speedups`."""
    table = speedups(route, batch)
    best = table["mean"].idxmax()
    return (int(best) if table.low[best] > 1 else 0), table.loc[best]


words = {}
for batch in BATCHES:
    words[batch] = {}
    for route in ROUTES:
        k, gain = choice(route, batch)
        words[batch][route] = f"{f'k = {k}' if k else 'off'}   ({gain['mean']:.2f} ± {(gain.high - gain.low) / 2:.2f})"
print("what to do, and in brackets the best speedup to be had, with its 95 % interval over prompts")
timed = [costs.meta["rounds"][str(batch)]["1"]["count"] for batch in BATCHES]
print(f"(of the clock's own error the interval knows nothing: a price of k = 1 is a median of {min(timed)} to {max(timed)} rounds)")
pd.DataFrame(words).T.rename_axis("batch")

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 4.2), sharey=True)
notes = []
for axes, route in zip(panels, ROUTES, strict=True):
    curves = pd.DataFrame({batch: speedups(route, batch)["mean"] for batch in BATCHES}).T
    for k in (1, 2, 4, 8):
        axes.plot(BATCHES, curves[k], label=f"k = {k}")
    axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
    axes.set_xscale("log", base=2)
    axes.set(title=route, xlabel="batch", xticks=BATCHES, xticklabels=BATCHES)
    at = curves[[1, 2, 4, 8]].round(2)
    notes.append(f"{route}: " + ", ".join(f"k {k} from {at.loc[FIRST, k]:.2f} to {at.loc[LAST, k]:.2f}" for k in at))
panels[0].set_ylabel("speedup")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=11)
show(figure, f"""Speedup of the small pair on this CPU against batch, {FIRST} to {LAST}, one panel a route, a line for each k, with a line
    at 1 where nothing is gained. {"; ".join(notes)}.""")

# %%
for route in ROUTES:
    curves = pd.DataFrame({batch: speedups(route, batch)["mean"] for batch in BATCHES}).T
    k = curves.loc[FIRST].idxmax()
    below = [batch for batch in BATCHES if curves.loc[batch, k] < 1]
    verdict = f"a loss from batch {below[0]} on." if below else "a gain at every batch measured here."
    print(f"{route:5} k = {k}, the best at batch {FIRST}, gives {curves.loc[FIRST, k]:.2f}× there "
          f"and {curves.loc[LAST, k]:.2f}× at batch {LAST}: {verdict}")

# %% [markdown]
# This is how one and the same draft comes by two reputations. Nobody measured wrongly. They measured at different loads.
#
# **Exercise 9.1** · easy · 6 minutes. `yields` gives tokens per round by k, `prices` the cost of a round in target steps by
# batch and k: `prices[batch][k]`. Return the best k for each batch, as a dictionary. 0 where no k is faster than plain
# decoding.

# %% tags=["exercise"]
def k_by_batch(yields, prices):
    # solution
    chosen = {}
    for batch, price in prices.items():
        best = max(yields, key=lambda k: yields[k] / price[k])
        chosen[batch] = best if yields[best] / price[best] > 1 else 0
    return chosen
    # end


check(k_by_batch)

# %% [markdown] tags=["hints"]
# - Speedup = tokens per round ÷ price. The tokens are the same at every batch, the price is not.
# - `max(yields, key=...)` finds the k. Then ask whether its speedup is above 1. If not, the answer is 0.

# %% [markdown]
# ## Where the price comes from
#
# A step waits for the slower of two things (notebook 03). It must *read* every weight, once for all rows. It must
# *multiply* with every weight, once for each token of each row. And there is a third part, the **cache**: attention reads
# the keys and values of all earlier tokens, in each row, once for all new tokens of that row.
#
# $$\text{step} \;\ge\; \max\Big(\frac{\text{weight bytes}}{\text{bandwidth}},\;
# \frac{2 \cdot \text{weights} \cdot \text{batch} \cdot \text{width}}{\text{FLOP/s}}\Big)
# \;+\; \frac{\text{batch} \cdot \text{context} \cdot \text{cache bytes a token}}{\text{bandwidth}}$$
#
# **Exercise 9.2** · easy · 5 minutes. Write it. `weights` is a count, at 2 bytes each. `cache` is the *bytes* a row keeps
# for each token of its context.

# %% tags=["exercise"]
def least_step(batch, width, context, weights, cache, bandwidth, flops):
    # solution
    matrices = max(2 * weights / bandwidth, 2 * weights * batch * width / flops)
    return matrices + batch * context * cache / bandwidth
    # end


check(least_step)

# %% [markdown] tags=["hints"]
# - Two times for the matrices, and the larger one counts: reading goes on while it multiplies.
# - The cache is read by each row for itself, but only once for all its new tokens. So batch appears there, width does not.

# %% [markdown]
# `roofline.forward_seconds` does the same, and counts also the arithmetic of attention. It takes the shape of a
# model and the two peaks of a device.
#
# ## A bound, held against the clock
#
# For our CPU no data sheet tells the peaks, so they were measured in the run that timed the rounds: how fast a large matrix can be
# read, and how fast square matrices are multiplied.

# %%
peaks = costs.meta["peaks"]
cpu = Device("this CPU", peaks["bandwidth"], peaks["flops"], peaks["bytes_per_number"])
target, mean_context = MODELS["smollm2-135m"], {batch: round(costs.meta["context"][str(batch)]) for batch in BATCHES}
ridge_tokens = cpu.ridge * cpu.bytes_per_number / 2  # a weight is read once, and used in 2 FLOP for each token
banner("recorded", **{name: costs.meta[name] for name in ("machine", "date", "command")})
print(f"reads {cpu.bandwidth / 1e9:.1f} GB/s, multiplies {cpu.flops / 1e9:.0f} GFLOP/s, {cpu.bytes_per_number} bytes a number (packed weights, notebook 08): "
      f"the ridge is at {ridge_tokens:.0f} tokens in flight")
for key in ("h100", "h200", "a100", "mi300x", "l4"):
    print(f"{DEVICES[key].name:15} {DEVICES[key].ridge:4.0f} tokens (bf16, from its data sheet)")

# %% [markdown]
# A CPU has little arithmetic for each byte, so its ridge is low. A batch that leaves a GPU half asleep fills it. That is why
# six loads on a small machine can show what takes hundreds of rows on an H100.

# %%
cells = [(batch, int(k) + 1, parts["verify"][1])  # the median over rounds of k drafts
         for batch in BATCHES for k, parts in sorted(costs.meta["rounds"][str(batch)].items(), key=lambda item: int(item[0]))]
clock = pd.DataFrame(cells, columns=["batch", "width", "seconds"])
clock["tokens"] = clock.batch * clock.width
clock["bound"] = [forward_seconds(target, cpu, batch, width, mean_context[batch]) for batch, width, _ in cells]
clock["times the bound"] = clock.seconds / clock.bound
weights_s = target.weights_read * cpu.bytes_per_number / cpu.bandwidth  # reading all weights once

figure, axes = plt.subplots(figsize=(8, 5))
for batch in BATCHES:
    one = clock[clock.batch == batch]
    axes.plot(one.tokens, 1e3 * one.seconds, linewidth=1, label=f"batch {batch}")
tokens = np.geomspace(1, clock.tokens.max(), 200)
axes.plot(tokens, 1e3 * np.maximum(weights_s, 2 * target.matrices * tokens / cpu.flops),
          color="black", linestyle="-", linewidth=3, marker="", alpha=0.5, label="bound, matrices alone")
axes.axvline(ridge_tokens, color="0.4", linewidth=1, linestyle=":", marker="", label="ridge")
axes.set(xscale="log", yscale="log", xlabel="tokens in flight: batch × width", ylabel="target step, ms")
axes.legend(fontsize=11, loc="lower right")
ratio = clock["times the bound"]
show(figure, f"""Time of a target step against tokens in flight, both axes logarithmic, one line for each batch from {FIRST} to {LAST}, widths
    {clock.width.min()} to {clock.width.max()}. A thick grey line is the bound from the matrices alone: {1e3 * weights_s:.0f} ms
    and flat up to the ridge at {ridge_tokens:.0f} tokens (dotted), then proportional. Measured steps go from {1e3 * clock.seconds.min():.0f} ms to
    {1e3 * clock.seconds.max():.0f} ms and take {ratio.min():.2f} to {ratio.max():.2f} times the full bound, {ratio.median():.2f} in the median.""")

# %% [markdown]
# The lines of all batches lie nearly on one curve: what matters most is the *tokens in flight*, whether they are many rows
# or many drafts. (With as many tokens in flight, many rows are dearer than many drafts, by up to a quarter.) To the left of the ridge the curve is flattest; there a draft is cheapest. To the right everything is paid for.
#
# **It could have failed.** Three ideas of where the time goes, each as a least time. A least time is refuted by any step that
# was faster. (We allow 3 %, for the clock.)

# %%
caches_s = clock.batch * clock.batch.map(mean_context) * target.cache_numbers * cpu.bytes_per_number / cpu.bandwidth
ideas = {
    "roofline: weights read once": clock.bound,
    "each row reads the weights for itself": clock.batch * weights_s,
    "each token reads the weights for itself": clock.tokens * weights_s,
    "arithmetic is free: reading alone": weights_s + caches_s,
}
verdicts = pd.DataFrame([{"idea": name, "steps": len(clock), "faster than it allows": int((clock.seconds < 0.97 * least).sum()),
                          "measured ÷ least, median": (clock.seconds / least).median(),
                          f"at batch {LAST}, widest": clock.seconds.iloc[-1] / least.iloc[-1]} for name, least in ideas.items()])
verdicts = verdicts.set_index("idea")
broken = list(verdicts.index[verdicts["faster than it allows"] > 0])
print("refuted:", "; ".join(broken) if broken else "none")
print("standing:", "; ".join(name for name in ideas if name not in broken))
verdicts.round(2)

# %% [markdown]
# If every row read the weights for itself, batching would save nothing, and steps at large batches could not be as fast as they are. A bound
# that knows reading alone cannot be refuted where the roofline is not, but look at its last column: of the widest step it says next to nothing. (Were
# the roofline itself refuted, the peaks would have been measured too low.)
#
# Now the honest part. The roofline is a **bound, not a prediction**. How far is it from the clock, and does the *speedup* that follows
# from it at least come near?

# %%
one = clock[clock.width == 1].set_index("batch")  # the step of width 1 at each batch
verify = pd.DataFrame({"batch": clock.batch, "k": clock.width - 1, "by the bound": clock.bound / clock.batch.map(one.bound),
                       "measured": clock.seconds / clock.batch.map(one.seconds)})
verify = verify[verify.k > 0]
verify["off by"] = verify["by the bound"] / verify["measured"] - 1
print(f"price of the verify in target steps: the bound is off by {100 * verify['off by'].abs().median():.0f} % in the median, "
      f"from {100 * verify['off by'].min():+.0f} % to {100 * verify['off by'].max():+.0f} %")
verify[verify.k.isin((1, 4, 8))].pivot(index="batch", columns="k", values=["by the bound", "measured"]).round(2)

# %% [markdown]
# It sees the shape: flat first, then rising, and where. Digits it does not have. A quotient of two bounds may err to either side. So
# from here on read every roofline as a map of *where things turn*, not as a promise. Decide on measured costs.

# %% [markdown]
# ## The same on big chips
#
# Now Llama-3.1-8B with Llama-3.2-1B as its draft. No such chip is at hand here, so costs come from the roofline alone. α = 0.74 was
# published for this pair (L4, wikitext-2, greedy, by nin-ran-jan/HPML_Project: .727, .738 and .744 at k = 3, 5, 7). We treat it as the same for every
# draft.

# %%
banner("computed", costs="roofline from data sheets, not measured", alpha="0.74, published by others")
PAIR, H100, ALPHA = (MODELS["llama-3.1-8b"], MODELS["llama-3.2-1b"]), DEVICES["h100"], 0.74

rows = (1, 8, 32, 64, 128, 256)
step = {}
for context in (200, 8000):
    for name, model, width in (*((f"width {width}", PAIR[0], width) for width in (1, 2, 4, 8)), ("draft", PAIR[1], 1)):
        step[f"context {context:,}", name] = [1e3 * forward_seconds(model, H100, batch, width, context) for batch in rows]
print("least ms of a step of the 8B on one H100, by batch, width and context; and of a step of the 1B draft")
pd.DataFrame(step, index=pd.Index(rows, name="batch")).round(2)

# %% [markdown]
# Up to 32 rows, eight tokens cost what one costs. At 64 rows width 8 (512 tokens in flight) does not fit under the ridge of
# 295 any more; at 256 rows not even width 2 does. With 8,000 tokens of context the same milliseconds are added, but to a step that takes
# far longer anyway.

# %%
batches = [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512]


def gains(pair, device, batch, context, alpha, ks=range(1, 13), **tp):
    """Speedup at each k by the roofline, for independent drafts."""
    costs = roofline_costs(*pair, device, batch, context, max_k=max(ks), **tp)
    return {k: costs.speedup(expected_tokens(alpha, k), k) for k in ks}


figure, axes = plt.subplots(figsize=(7.5, 4.8))
notes = []
for k in (1, 3, 5, 8):
    curve = [gains(PAIR, H100, batch, 200, ALPHA)[k] for batch in batches]
    axes.plot(batches, curve, label=f"k = {k}")
    lost = next(batch for batch, gain in zip(batches, curve, strict=True) if gain < 1)
    at = dict(zip(batches, curve, strict=True))
    notes.append(f"k {k}: {at[1]:.2f} at batch 1, {at[32]:.2f} at 32, {at[128]:.2f} at 128, {at[256]:.2f} at 256, a loss from {lost} on")
axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
axes.set_xscale("log", base=2)
axes.set(xlabel="batch", ylabel="speedup", xticks=(ticks := [1, 4, 16, 64, 192, 512]), xticklabels=ticks, title="8B + 1B on an H100, context 200, α = 0.74")
axes.legend(fontsize=11, loc="lower left")
show(figure, f"""Speedup by the roofline against batch from 1 to 512 for Llama-3.1-8B with Llama-3.2-1B on an H100, context 200, alpha 0.74, a line for
    each fixed k. {"; ".join(notes)}. The larger k, the earlier it falls.""")

# %% [markdown]
# Flat, then a slope down, and it comes earlier for larger k. It begins where batch × (k + 1) meets the ridge: 295 ÷ 4 ≈ 74 rows
# for k = 3, 295 ÷ 9 ≈ 33 for k = 8. At 192 rows the k = 3 that gave 1.8 times is a loss.
#
# ## The k table
#
# Choose again at each load instead. First for five values of α:

# %%
def said(found):
    k = max(found, key=found.get)
    return f"k = {k}  {found[k]:.2f}×" if found[k] >= 1.005 else "off"


def by_batch(tell, columns):
    """A table with a row for each batch: tell(column, batch) in each cell."""
    return pd.DataFrame({column: [tell(column, batch) for batch in batches] for column in columns}, index=pd.Index(batches, name="batch"))


by_batch(lambda alpha, batch: said(gains(PAIR, H100, batch, 200, alpha)), (0.5, 0.6, 0.74, 0.85, 0.9)).rename_axis(columns="α")

# %% [markdown]
# Down each column k shrinks. A good draft holds out longer, but not forever: from 384 rows on even α = 0.9 has next to nothing left to give.
#
# The same with *recorded* yields: tokens per round of our small pair on its three routes, at the H100's prices for the big pair. (Two
# machines and two pairs in one table. It shows what *measured yields* do to k, not what the Llama pair would do on your prompts.)

# %%
def best_measured(route, batch, context=200):
    costs = roofline_costs(*PAIR, H100, batch, context, max_k=max(KS))
    rows = yields[yields.route == route]
    return {k: costs.speedup(tokens, k) for k, tokens in zip(rows.k, rows["mean"], strict=True)}


banner("computed", costs="roofline of 8B + 1B on an H100, context 200",
       yields=f"recorded: the small pair, temperature {trace.meta['temperature']:g}")
by_batch(lambda route, batch: said(best_measured(route, batch)), ROUTES)

# %% [markdown]
# An engine can be told this table. vLLM takes `num_speculative_tokens_per_batch_size`, a list of ranges `[from, to, k]`.
# (As its source has it at commit 14b450c, `vllm/v1/spec_decode/dynamic/utils.py`: the first range must begin at 1. A batch
# in no range, and so any beyond the last, takes the k of the range before. And `num_speculative_tokens` must hold the
# largest k: what is above it is cut down to it.)
#
# **Exercise 9.3** · medium · 8 minutes. `best` has the best k at the batches that were measured, such as `{1: 4, 2: 4, 8: 2, 32: 0}`.
# Make the list: `[[1, 2, 4], [3, 8, 2], [9, 32, 0]]`. A batch between two measured ones takes the k of the *larger* one, to be on the safe
# side. Neighbours with the same k are one range.

# %% tags=["exercise"]
def ranges(best):
    # solution
    found, start = [], 1
    for batch, k in sorted(best.items()):
        if found and found[-1][2] == k:
            found[-1][1] = batch
        else:
            found.append([start, batch, k])
        start = batch + 1
    return found
    # end


check(ranges)

# %% [markdown] tags=["hints"]
# - Go through the batches in order. Each one ends a range; the range begins just after the batch before it, and the first at 1.
# - If the k is the same as in the last range, move that range's end. Do not drop k = 0: the engine has to be told "off".

# %% [markdown]
# ## The batch at which it stops
#
# How many rows can a chip run before speculation is no longer worth having? We ask for a gain of 10 % at the best k up to 4, since a
# roofline knows nothing of overheads. And we stop at what fits into memory: a row takes room for its cache, in both models.

# %%
def stops(pair, device, context, alpha, least=1.1, draft_factor=1.0, **tp):
    """(rows, why): the first batch that gains less than `least`, or the last that fits into memory."""
    room = min(rows_that_fit(pair, device, context, tp.get("tp", 1)), 1024)
    for batch in range(1, room + 1):
        costs = roofline_costs(*pair, device, batch, context, max_k=4, **tp)
        costs = dataclasses.replace(costs, t_draft=costs.t_draft * draft_factor)
        if costs.best_k(alpha, 4)[1] < least:
            return batch, "gain"
    return room, "memory"


def cell(rows, why):
    return f"{rows}" if why == "gain" else (f"all {rows} that fit" if rows else "does not fit")


contexts = (200, 1000, 4000, 16_000, 32_000)
print("first batch at which the best k gains less than 10 % (8B + 1B, α = 0.74), by context")
pd.DataFrame({DEVICES[key].name: [cell(*stops(PAIR, DEVICES[key], context, ALPHA)) for context in contexts]
              for key in ("l4", "a100", "h100", "h200", "mi300x")}, index=pd.Index(contexts, name="context"))

# %% [markdown]
# Two things end it: the arithmetic (a number), or the memory ("all … that fit"). With short contexts it is the arithmetic. With
# long ones the memory is full before the arithmetic is, and every row that fits is worth speculating for.
#
# The L4 and the H200 tell a small story. The L4 has the highest ridge of all (much arithmetic, slow memory), so speculation
# would hold out longest there, but few rows fit. The H200 has the arithmetic of an H100 and *faster* memory: its ridge is lower, and speculation
# stops *earlier*. Faster memory is what speculation is a substitute for.
#
# How firm are such numbers? In notebook 03 a further draft, its step and its token of width together, cost nearly twice what
# bytes say. Suppose that all of it is the draft's step, and double its price:

# %%
pd.DataFrame({name: [cell(*stops(PAIR, H100, context, ALPHA, draft_factor=factor)) for context in contexts]
              for name, factor in (("draft at its bound", 1.0), ("draft twice as dear", 2.0))}, index=pd.Index(contexts, name="context"))

# %% [markdown]
# The edge moves, and at 1,000 tokens there suddenly is one. Errors of that size are to be expected from a map.

# %% [markdown]
# ## Why a long context moves it back
#
# The cache is read once in each round for *all* drafts of a row. In plain decoding it is read once for each token. So where reading caches
# is most of the step, several tokens for one reading is a gain at any batch: more rows bring more arithmetic, but more cache to read as well.

# %%
figure, panels = plt.subplots(1, 2, figsize=(10, 4.4))
spread = [1, 2, 4, 8, 16, 32, 64, 128, 256]
notes, end_notes = [], []
for context in (200, 1000, 8000, 32_000):
    plain4 = [(forward_seconds(PAIR[0], H100, batch, 1, context), forward_seconds(PAIR[0], H100, batch, 4, context)) for batch in spread]
    verify4 = [four / one for one, four in plain4]
    best = [max(1.0, *gains(PAIR, H100, batch, context, ALPHA).values()) for batch in spread]
    fit = rows_that_fit(PAIR, H100, context)
    inside = sum(batch <= fit for batch in spread)  # so many of the batches
    for axes, curve in zip(panels, (verify4, best), strict=True):
        (line,) = axes.plot(spread[:inside], curve[:inside], label=f"context {context:,}")
        axes.plot(spread, curve, color=line.get_color(), linestyle=":", linewidth=1, marker="")
    notes.append(f"context {context}: {verify4[0]:.2f} at batch 1, {verify4[-1]:.2f} at 256")
    middle = f", {best[inside - 1]:.2f} at {spread[inside - 1]}" if inside < len(spread) else ""
    end_notes.append(f"context {context}: {best[0]:.2f} at batch 1{middle}, {best[-1]:.2f} at 256, and {fit} rows fit")
panels[0].set(ylabel="verify of width 4, target steps", title="what checking three drafts costs")
panels[1].set(ylabel="speedup at the best k", title="what is left")
panels[1].axhline(1, color="black", linewidth=1, linestyle="-", marker="")
for axes in panels:
    axes.set_xscale("log", base=2)
    axes.set(xlabel="batch", xticks=spread[::2], xticklabels=spread[::2])
panels[0].legend(fontsize=11)
show(figure, f"""Left: the price of a verify of width 4 in target steps against batch, 8B on an H100, by context. {"; ".join(notes)}.
    Right: speedup at the best k with the 1B draft, alpha 0.74. {"; ".join(end_notes)}. Dotted where the rows do not fit into 80 GB.""")

# %% [markdown]
# A line goes on thin, **dotted** and without marks where the rows do not fit into 80 GB any more: of 8,000 tokens 40 rows do, of 32,000 only 10.
#
# On the left: with a context of 200, checking three drafts at batch 256 costs 2.7 steps. With 8,000 and 32,000 it stays near
# one, as at batch 1, as long as the rows fit, and would even if more did.
#
# On the right, up to where they fit, the long contexts lie **lower**, and lose a little with each row. The draft has a cache
# too, and reads it *k* times a round. Its price c drifts from the quotient of the weights to the quotient of the caches:

# %%
H4 = {"tp": 4}  # tensor parallel: the matrices of each layer divided among four GPUs
families = {
    "8B + 1B": (PAIR, {}), "70B + 8B, 4 GPUs": ((MODELS["llama-3.1-70b"], MODELS["llama-3.1-8b"]), H4),
    "70B + 1B, 4 GPUs": ((MODELS["llama-3.1-70b"], MODELS["llama-3.2-1b"]), H4),
    "70B + 8B, draft on 1 of 4": ((MODELS["llama-3.1-70b"], MODELS["llama-3.1-8b"]), {"tp": 4, "draft_tp": 1}),
}


def c_of(pair, batch, context, tp):
    costs = roofline_costs(*pair, H100, batch, context, 1, **tp)
    return costs.t_draft / costs.round_seconds(0)


rows = {}
for name, ((big, small), tp) in families.items():
    rows[name] = {"weights, quotient": small.weights_read / big.weights_read, "cache, quotient": small.cache_numbers / big.cache_numbers}
    rows[name] |= {f"c, 32 rows of {context:,}": c_of((big, small), 32, context, tp) for context in (200, 2000, 8000, 32_000)}
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# (Of 32,000 tokens only 8 to 12 rows fit. The last column shows where c is heading.)
#
# **KV heads** are the heads of attention whose keys and values are kept: a cache grows with layers × KV heads × their size. Llama-3.1-8B
# weighs a ninth of the 70B, but its cache is 0.4 of it: both have eight KV heads, and 32 layers against 80. **With long
# contexts choose the draft by its cache, not by its parameters.** (Drafts that look at a short window of the context avoid the problem altogether.)
#
# All four rows but the first are **tensor parallel**: the matrices of each layer are divided among four GPUs, which work on a step
# together. The last row puts the draft on one of them, as `draft_tensor_parallel_size` can. It saves communication, which we do not count, and leaves
# three GPUs idle while it runs. A draft that is not much smaller than its target cannot afford it.
#
# ## 70B on four GPUs
#
# The whole table for the large pairs. We know no published α for them, so 0.8 is an **assumption** for both drafts; the 1B is less likely to reach it.

# %%
banner("computed", costs="roofline, H100 with tensor parallel 4, no communication", alpha="0.8, assumed")


def big_cell(column, batch):
    (pair, tp), context = families[column[0]], column[1]
    fits = batch <= rows_that_fit(pair, H100, context, tp["tp"])
    return said(gains(pair, H100, batch, context, 0.8, **tp)) if fits else "does not fit"


by_batch(big_cell, [(name, context) for name in ("70B + 8B, 4 GPUs", "70B + 1B, 4 GPUs") for context in (200, 8000)])

# %% [markdown]
# The pattern of the small pair again, and the ridge in the same place: 295 tokens in flight do not care how many GPUs share the weights, since bytes and
# arithmetic are divided by the same number.

# %% [markdown]
# ## A GPU of flesh and blood
#
# If you have recorded the two Llama shapes on a GPU, with `make gpu`, the recording is shown here beside its roofline. Without
# one skip this cell.

# %% tags=["nbval-ignore-output"]
found = sorted(RECORDINGS.glob("costs-gpu*.json"))
if not found:
    print("no recording yet: run `make gpu` on a machine with CUDA")
for path in found:
    gpu = CostTable.load(path)
    banner("recorded", **{name: gpu.meta[name] for name in ("machine", "date", "command")}, file=path.name)
    chip = next((DEVICES[key] for key in DEVICES if key in gpu.meta["machine"].lower()), None)
    rows = []
    for batch, at in sorted(gpu.batches.items()):
        k, gain = at.best_k(ALPHA, min(12, max(at.t_verify) - 1))
        row = {"batch": batch, "c": at.t_draft / at.round_seconds(0), "best k at α = 0.74": k, "speedup": gain}
        if chip:
            bound = roofline_costs(*PAIR, chip, batch, int(gpu.meta.get("context", 0)), 12)
            row |= {"c by roofline": bound.t_draft / bound.round_seconds(0), "k by roofline": bound.best_k(ALPHA, 12)[0],
                    "speedup by roofline": bound.best_k(ALPHA, 12)[1], "step ÷ bound": at.round_seconds(0) / bound.round_seconds(0)}
        rows.append(row)
    print(pd.DataFrame(rows).set_index("batch").round(2).to_string())

# %% [markdown]
# ## What others measured
#
# Published results, with what the roofline says beside them. First a pair for which yield and speedup are both known (8B + 1B on an L4, batch 1; tokens per
# round are 1 + k × prefix rate, so no α is needed):

# %%
l4 = pd.DataFrame({"k": [3, 5, 7], "prefix rate": [0.547, 0.440, 0.363], "measured": [1.30, 1.21, 1.09]})
at_one = roofline_costs(*PAIR, DEVICES["l4"], batch=1, context=500, max_k=7)
l4["by roofline"] = [at_one.speedup(1 + k * rate, int(k)) for k, rate in zip(l4.k, l4["prefix rate"], strict=True)]
l4["too high by"] = [f"{100 * (bound / measured - 1):.0f} %" for bound, measured in zip(l4["by roofline"], l4.measured, strict=True)]
l4.set_index("k").round(2)

# %% [markdown]
# The roofline promises too much, and more so for larger k, because every real draft step has costs that do not shrink with the draft. Then three drafts for one
# target (Llama-3.1-70B on an MI300X, vLLM 0.6.7, ROCm blogs). No α came with them; so we ask which α the roofline would need:

# %%
def alpha_needed(pair, device, speedup, batch=1, context=500):
    """The least α at which the best k reaches this speedup, if every step took what the roofline says."""
    costs = roofline_costs(*pair, device, batch, context, max_k=16)
    alphas = np.linspace(0.01, 0.99, 981)
    return next(alpha for alpha in alphas if costs.best_k(alpha, 16)[1] >= speedup)


MI300X, BIG = DEVICES["mi300x"], MODELS["llama-3.1-70b"]
rows = []
for key, measured in (("llama-3.2-1b", 2.31), ("llama-3.2-3b", 2.28), ("llama-3.1-8b", 2.04)):
    at = roofline_costs(BIG, MODELS[key], MI300X, 1, 500, 16)
    rows.append({"draft": MODELS[key].name, "times smaller": BIG.parameters / MODELS[key].parameters,
                 "c by roofline": at.t_draft / at.round_seconds(0), "measured speedup": measured,
                 "α needed": alpha_needed((BIG, MODELS[key]), MI300X, measured)})
pd.DataFrame(rows).set_index("draft").round(3)

# %% [markdown]
# Probably the drafts were right more often than that: a real draft step usually exceeds its bound by more than a target step does. The 8B draft gained least of the three, and still must have been right more often than the 1B had to be.
#
# And two that are about load:
#
# | pair and setting | quiet | busy | source |
# |---|---|---|---|
# | Llama-3-70B + 0.5B, ShareGPT, 4 × H100 | 1.5× at 1 request a second | 1.4× *slower*, 0.71×, at a high rate | vLLM blog, 2024-10-17 |
# | EAGLE, k = 3, H100 | 1.96× (70B, batch 1) | 1.21× (8B, batch 128) | arXiv 2601.11580 |
#
# (ShareGPT is a collection of people's chats with an assistant. EAGLE is a kind of draft: notebook 11.) The second is two targets, so load is not
# the only difference. In the first only the load changed.
#
# ## Load is a rate, not a batch
#
# Nobody chooses a batch. Requests arrive, and the batch is what piles up. If r requests a second arrive, each wants N tokens, and a token takes τ seconds, then on average
#
# $$\text{rows running} = r \cdot N \cdot \tau$$
#
# (Little's law). τ grows with the rows, so the two chase each other. A server that is faster for each user also has *fewer* rows running, which makes it faster still.
#
# **Exercise 9.4** · easy · 5 minutes. `rows` rows run together. A round takes `round_seconds` and emits `tokens` tokens in each row. Each request wants
# `length` tokens. How many requests a second does this finish?

# %% tags=["exercise"]
def requests_per_second(rows, round_seconds, tokens, length):
    # solution
    return rows * tokens / round_seconds / length
    # end


check(requests_per_second)

# %% [markdown] tags=["hints"]
# - In one round, all rows together emit rows × tokens tokens.
# - Divide by the time of the round: tokens a second. Divide by the length of a request: requests a second.

# %%
banner("computed", costs="roofline from data sheets, not measured", alpha="0.74, published by others")
LENGTH, CONTEXT = 250, 500


def served(choose, room):
    """For 1 ... room rows: requests a second, and milliseconds for each token of one user."""
    rates, waits = [], []
    for rows in range(1, room + 1):
        costs = roofline_costs(*PAIR, H100, rows, CONTEXT, max_k=6)
        k = choose(costs)
        wait = costs.round_seconds(k) / expected_tokens(ALPHA, k)
        rates.append(rows / wait / LENGTH)
        waits.append(1e3 * wait)
    return np.array(rates), np.array(waits)


room_plain, room_draft = rows_that_fit(PAIR[:1], H100, CONTEXT), rows_that_fit(PAIR, H100, CONTEXT)
servers = {
    "no draft": served(lambda costs: 0, room_plain),
    "k = 3, always": served(lambda costs: 3, room_draft),
    "k = 5, always": served(lambda costs: 5, room_draft),
    "k by load": served(lambda costs: costs.best_k(ALPHA, 6)[0], room_draft),
}
figure, axes = plt.subplots(figsize=(7.5, 4.8))
notes = []
for name, (rates, waits) in servers.items():
    axes.plot(rates, waits, label=name, markevery=(len(rates) - 1, len(rates)))
    at = {rate: np.interp(rate, rates, waits) for rate in (1, 20, 60)}
    waited = ", ".join(f"{wait:.1f} ms at {rate} a second" for rate, wait in at.items())
    notes.append(f"{name}: {waited}, and at most {rates[-1]:.0f} a second")
axes.set(xlabel="requests a second", ylabel="ms for each token of one user", ylim=(0, None), title="8B + 1B on an H100, 250 tokens each")
axes.legend(fontsize=11, loc="upper left")
show(figure, f"""Milliseconds for each token of one user against requests a second, by the roofline, 8B with 1B on an H100, alpha 0.74, 250 tokens a request,
    context 500. {"; ".join(notes)}. Each curve ends, with a marker, where memory is full.""")

# %% [markdown]
# Where a curve goes straight up, arithmetic is full: more rows finish no more requests, they only wait longer. The mark at its end is where memory is full.

# %%
asked = (1, 20, 40, 60, 70, 80, 85, 90, 100, 110)
against = pd.DataFrame({name: np.interp(asked, rates, waits, right=math.inf) for name, (rates, waits) in servers.items()},
                       index=pd.Index(asked, name="requests a second"))
print("speedup against a server with no draft at the same rate of requests; 0 means that the queue grows without end")
against.rdiv(against["no draft"], axis=0).drop(columns="no draft").round(2)

# %% [markdown]
# Read down a column. At first the gain *grows* with the rate: the faster server has fewer rows running, and rows cost time. Then, within some twenty requests a second, it is gone: for k = 5 at 80,
# for k = 3 past 100. Beyond that they cannot keep up at all, while the plain server still can. That is the blog's story, from bytes and FLOP alone. **k by load** stays ahead throughout. (Left out:
# reading prompts, which needs arithmetic too and brings the end nearer; sampling and launches; and that arrivals come in bursts.)

# %% [markdown]
# ## When not to speculate
#
# Four cases, each with a number.
#
# ### 1. Short outputs
#
# The draft must read the prompt before it can guess. That is arithmetic, and it delays the first token. How long must the answer be to win that back?
#
# **Exercise 9.5** · medium · 7 minutes. The draft's reading of the prompt takes `draft_prefill` seconds. After that a plain token takes `step`, and a round takes `round_time` and emits
# `tokens`. From how many new tokens on is speculation faster? Return the number, not rounded, or `None` if it never is.

# %% tags=["exercise"]
def least_length(draft_prefill, step, round_time, tokens):
    # solution
    saved = step - round_time / tokens  # with each token
    return draft_prefill / saved if saved > 0 else None
    # end


check(least_length)

# %% [markdown] tags=["hints"]
# - Speculating, a token takes round_time ÷ tokens on average. How much is saved with each token?
# - n tokens save n times that. They must make up for draft_prefill. The target reads the prompt in either case.

# %%
banner("computed", costs="roofline from data sheets, not measured", alpha="0.74, published by others")
rows = []
for prompt in (500, 4000, 16_000, 64_000):
    at = roofline_costs(*PAIR, H100, 1, prompt, max_k=3)
    extra = forward_seconds(PAIR[1], H100, 1, width=prompt)
    saved = at.round_seconds(0) - at.round_seconds(3) / expected_tokens(ALPHA, 3)
    rows.append({"prompt": prompt, "target reads it, ms": 1e3 * forward_seconds(PAIR[0], H100, 1, width=prompt),
                 "draft reads it, ms": 1e3 * extra,
                 "saved with each token, ms": 1e3 * saved, "pays from": math.ceil(extra / saved)})
short = pd.DataFrame(rows).set_index("prompt")
short.round(1)

# %% [markdown]
# With short prompts, a handful of tokens is enough. A classifier that reads 16,000 tokens to answer "yes" should not speculate: its one token costs it the whole reading of the draft.
# (By the roofline. Real prompts are often cached, in both models or in neither.)
#
# ### 2. A saturated GPU, and 3. a poor α

# %%
full = gains(PAIR, H100, 256, 100, ALPHA)
print(f"2. 256 rows of 100 tokens on an H100: k = 3 gives {full[3]:.2f}×, k = 1 {full[1]:.2f}×. Best: {said(full)}.\n")
print("3. the α that k drafts need to break even, 8B + 1B on an H100, context 200 (by the roofline), and on this CPU (measured):")
needed = {}
for batch in (1, 2, 4, 8, 16, 32, 64, 128, 192, 256):
    bound = roofline_costs(*PAIR, H100, batch, 200, max_k=4)
    machines = {"H100": bound} | ({"CPU": costs.at(batch)} if batch in costs.batches else {})
    needed[batch] = {f"{name}, k = {k}": "none" if math.isnan(alpha := at.break_even_alpha(k)) else f"{alpha:.2f}"
                     for name, at in machines.items() for k in (1, 2, 4)}
pd.DataFrame(needed).T.rename_axis("batch").fillna("")

# %% [markdown]
# By the roofline a draft with α = 0.3 pays on an idle H100, and at 192 rows it no longer does. On this CPU the α that k = 1 needs doubles from
# batch 2 to batch 4.
# "Is this α good enough?" is a question about load. (A blank: that batch was not measured.)
#
# ### 4. Tight memory
#
# The draft takes room twice: its weights, and its cache in every row.
#
# **Exercise 9.6** · easy · 5 minutes. How many rows fit? `memory` bytes are there for weights and caches together. `models` is a list of pairs (bytes of the weights, cache bytes for each token),
# one for the target alone, two with a draft. Every row has `context` tokens. Whole rows; 0 if not even the weights fit.

# %% tags=["exercise"]
def rows_in_memory(memory, models, context):
    # solution
    left = memory - sum(weights for weights, _ in models)
    row = context * sum(cache for _, cache in models)
    return max(0, int(left // row))
    # end


check(rows_in_memory)

# %% [markdown] tags=["hints"]
# - Take the weights of all models from the memory. What is left is for rows.
# - A row keeps a cache of `context` tokens in *each* model. Round down, and never below 0.

# %%
rows = []
for key, context in (("l4", 500), ("l4", 2000), ("l4", 8000), ("h100", 2000), ("h100", 8000), ("h200", 8000)):
    chip, alone, both = DEVICES[key], rows_that_fit(PAIR[:1], DEVICES[key], context), rows_that_fit(PAIR, DEVICES[key], context)
    plain_rate = alone / forward_seconds(PAIR[0], chip, alone, 1, context)
    found = roofline_costs(*PAIR, chip, max(both, 1), context, max_k=6)
    k, gain = found.best_k(ALPHA, 6)
    rate = both * expected_tokens(ALPHA, k) / found.round_seconds(k)
    rows.append({"chip": chip.name, "context": context, "rows, plain": alone, "rows with draft": both, "gain at that batch": gain,
                 "tokens/s, plain": plain_rate, "tokens/s with draft": rate, "all in all": rate / plain_rate})
memory = pd.DataFrame(rows).set_index(["chip", "context"])
worst = memory["all in all"].idxmin()
case = memory.loc[worst]
print(f"4. {worst[0]}, context {worst[1]:,}: a gain of {case['gain at that batch']:.2f}× for each row that fits, but "
      f"{case['rows with draft']:.0f} rows instead of {case['rows, plain']:.0f}: {case['all in all']:.2f}× all in all")
memory.astype({"tokens/s, plain": int, "tokens/s with draft": int}).round(2)

# %% [markdown]
# "Gain at that batch" compares equal batches, as speedups do. But a full server without the draft would run *more* rows. On the small L4 that loses more than speculation gains. On a chip with room
# to spare it takes a small part of the gain.

# %% [markdown]
# ## Quiz

# %%
quiz("9.a")

# %%
quiz("9.b")

# %%
quiz("9.c")

# %%
quiz("9.d")

# %%
quiz("9.e")

# %%
quiz("9.f")

# %% [markdown]
# ## Recap
#
# - A round yields the same at every batch and costs more at a larger one. Never quote a speedup without its load.
# - Tokens in flight, batch × (k + 1), against the ridge (295 on an H100, far fewer on a CPU) say where drafts stop being free.
# - A long context moves the end back: caches are read once for all drafts of a row. Then memory is full first. It also makes the draft dearer: choose the
#   draft by its cache.
# - A roofline is a bound. It shows where things turn. It does not give the digits of a speedup, and its quotients may err to either side.
# - k belongs to a load: give the engine a table with "off" in it. Do not speculate for very short answers, on a full GPU, with an α below the break-even of that load, or where the draft drives out
#   rows.
#
# **Next.** Notebook 10 reads load and acceptance from a running engine.
