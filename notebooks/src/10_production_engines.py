# %% [markdown]
# # 10 · Production engines
#
# - **You will do:** read a running engine's counters by hand and by code, put a misread dashboard right, convict an
#   engine whose counters look ordinary while its text is broken, and lay the k sweep of a real vLLM beside what one
#   pass over the text had predicted.
# - **You will learn:** which of four definitions each engine calls "acceptance rate", why counters are believed last,
#   what an engine's clock adds to its counters, how to measure drafts that you have not deployed, and which alarms to
#   set.
# - **You need:** notebook 04 (the definitions), 05 (one pass, every k) and 08 (prices). No GPU and no engine. If you
#   have a server that speculates, give its address in the environment variable `COURSE_ENGINE` before Jupyter starts.
# - **Minutes:** 80

# %% [markdown]
# So far acceptance came from our own decoder. Yours lives in vLLM, SGLang, TensorRT-LLM or llama.cpp, and reaches you
# as one number on a dashboard: **acceptance rate**. Is that α?
#
# We ask a real engine. vLLM ran on a CPU with the course's own pair, k = 3, at temperature 0. Its `/metrics` page was
# read before and after some requests. (Engines print hundreds of lines there. These are the ones that matter.)

# %%
import ast
import json
import os
import re
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rich.console import Console

from course_lib.costs import CostTable
from course_lib.course import notebook
from course_lib.engines import called, decision, implied_alpha, ledger, promql, read_all, read_metrics, sweep
from course_lib.engines import check as comparison
from course_lib.engines.client import ask, ask_all, connect, served_model
from course_lib.engines.scrape import fetch_text
from course_lib.intervals import Interval, ratio_interval
from course_lib.lookup import Lookup
from course_lib.manifest import DATA
from course_lib.pairs import load_encoder
from course_lib.plots import banner, show, style
from course_lib.prompts import load_prompts
from course_lib.recordings import provenance, recording
from course_lib.replay import position_rates, tokens_per_round
from course_lib.served import refuse_unseen
from course_lib.settings import settings
from course_lib.sweep import decide
from course_lib.theory import expected_tokens
from course_lib.traces import Trace, add_lookup

check, quiz = notebook("10")
style()


def text_of(name):
    return recording(name).read_text(encoding="utf-8")


before, after = (text_of(f"engine-vllm-metrics-{when}.txt") for when in ("before", "after"))
banner("recorded", **provenance("engine-vllm-metrics-after.txt"), k=3, temperature=0)
print("\n".join(line for line in after.splitlines() if line.startswith("vllm:spec_decode")))

# %% [markdown]
# ## By hand
#
# A *draft* in these names is a round. So there are three counters (rounds, drafted tokens, accepted tokens), and the
# accepted ones once more by position, counted from 0. What ends in `_created` is a date. It looks like a large count,
# and people have added it up.
#
# All of them count since the engine started. What your traffic did is the difference of two scrapes.

# %%
def counters(text):
    """The counters of speculation in one scrape: what is counted (with its position) -> how often."""
    lines = re.findall(r"^vllm:spec_decode_num_(\w+)_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    place = {labels: re.search(r'position="(\d+)"', labels) for _, labels, _ in lines}
    return {name + (f" {place[labels][1]}" if place[labels] else ""): float(value) for name, labels, value in lines}


scrapes = pd.DataFrame({"before": counters(before), "after": counters(after)})
scrapes["between"] = scrapes.after - scrapes.before
R, D, A = (int(scrapes.between[name]) for name in ("drafts", "draft_tokens", "accepted_tokens"))
POSITIONS = [int(scrapes.between[name]) for name in scrapes.index if name.startswith("accepted_tokens_per_pos ")]
K = len(POSITIONS)
print(f"the dashboard shows {A} / {D} = {A / D:.2f}; with the counters since the start it would be {scrapes.after.accepted_tokens / scrapes.after.draft_tokens:.2f}")
scrapes.astype(int)

# %% [markdown]
# **Exercise 10.1** · easy · 4 minutes. `before` and `after` are two scrapes, each a dictionary with the keys
# `"drafts"`, `"draft_tokens"` and `"accepted_tokens"`. Return what happened in between: tokens per round (the target's
# own token included) and the acceptance rate, accepted ÷ drafted.

# %% tags=["exercise"]
def between(before, after):
    # solution
    rounds, drafted, accepted = (after[name] - before[name] for name in ("drafts", "draft_tokens", "accepted_tokens"))
    return 1 + accepted / rounds, accepted / drafted
    # end


check(between)

# %% [markdown] tags=["hints"]
# - First three differences: rounds, drafted and accepted in between.
# - A round emits its accepted drafts and one more. Engines call this the mean acceptance length.

# %% [markdown]
# The rate by position, as every engine prints it, is **unconditional**: it divides by all rounds, those that never came
# so far included. So it must fall from position to position, and says nothing about a draft that gets worse.
#
# **Exercise 10.2** · easy · 4 minutes. `positions[i]` rounds accepted their draft at position i, of `rounds` rounds in
# all. Return the **conditional** rates: of the rounds that came to a position, how many accepted there?

# %% tags=["exercise"]
def conditional(positions, rounds):
    # solution
    came = [rounds, *positions[:-1]]
    return [accepted / there for accepted, there in zip(positions, came, strict=True)]
    # end


check(conditional)

# %% [markdown] tags=["hints"]
# - All rounds come to position 0.
# - A round comes to position 2 if it accepted at position 1.

# %%
came = [R, *POSITIONS[:-1]]
pd.DataFrame({"rounds that came": came, "accepted": POSITIONS, "unconditional": np.divide(POSITIONS, R), "conditional": np.divide(POSITIONS, came)},
             index=pd.Index(range(K), name="position")).round(3)

# %% [markdown]
# The conditional rates are what α stands for, if there is one α. (That they need not be equal was notebook 06.)
#
# Often there are no positions, only the rate. Then α is the number which, the same for every draft, would give this
# rate: rate = (α + α² + … + αᵏ) ÷ k.
#
# **Exercise 10.3** · medium · 7 minutes. Find α from the rate and k.

# %% tags=["exercise"]
def alpha_of(rate, k):
    # solution
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(1, k + 1)) < k * rate else (low, middle)
    return (low + high) / 2
    # end


check(alpha_of)

# %% [markdown] tags=["hints"]
# - There is no handy formula for it beyond k = 2. But the right side grows with α, so you can halve an interval: too small or
#   too large?
# - Start with 0 and 1. If the sum at the middle is below k × rate, α lies above the middle. Sixty times.

# %% [markdown]
# ## By code
#
# `read_metrics` recognises the engine and gives every definition at once, with the engine's own names and a PromQL
# expression for each. (PromQL is the query language of Prometheus, the program that collects such pages and draws
# dashboards from them.) In a terminal: `python -m course_lib metrics after.txt --since before.txt`, or with an address
# instead of a file, and `--watch 60` for a line a minute. It reads pasted log lines too, a response's own counts, and
# the JSON that the engines' benchmarks save.

# %%
found = read_metrics(after).since(read_metrics(before))
console = Console(width=120, force_jupyter=False, color_system=None)
ledger.show(found, console=console)

# %%
print(f"The dashboard's rate is {found.prefix_rate:.2f}. α is {found.alpha:.2f}, tokens per round {found.tokens_per_round:.2f}, and the first draft of a round "
      f"is accepted with {found.per_position[0]:.2f}.")
mistaken = expected_tokens(found.prefix_rate, K)
print(f"Who takes the rate for α expects {mistaken:.2f} tokens per round where the engine emits {found.tokens_per_round:.2f}.")
print(f"The PromQL line of α is another estimate of it, accepted ÷ judged: {A / (A + R - POSITIONS[-1]):.2f} here.")

# %% [markdown]
# (In the ledger, tokens per target step are a little fewer than tokens per round: each answer's first token comes from
# reading the prompt, a step in which nothing is drafted.)
#
# Why another estimate? The ledger solves the equation of exercise 10.3. PromQL can only add and divide. So its line
# takes the accepted drafts, divided by all that were judged (notebook 04): accepted ones and first rejected ones. If
# all drafts are alike, both tend to the same α.

# %% [markdown]
# **Claim.** The rate on the dashboard is no property of a draft. For the same draft and the same texts it falls with k.
# α, read from it together with k, moves much less.
#
# The same engine was started with several k and answered the same prompts. (More of that sweep below.)

# %%
meta, cells = sweep.read(recording("engine-vllm-sweep.jsonl"))
ROUTES = list(meta["settings"]["prompts"])
banner("recorded", **provenance("engine-vllm-sweep.jsonl"), temperature=meta["settings"]["temperature"], prompts={route: len(ids) for route, ids in meta["settings"]["prompts"].items()},
       new_tokens=meta["settings"]["new_tokens"])
counted = pd.DataFrame([{"route": route, "k": k, **cell["counters"]} for (route, load, k), cell in cells.items() if k and load == 1]).sort_values("k")
counted["α"] = [implied_alpha(row.accepted / row.rounds, row.k) for row in counted.itertuples()]
rates = counted.pivot(index="route", columns="k", values=["prefix_rate", "α"]).rename(columns={"prefix_rate": "rate on the dashboard"}).loc[ROUTES]
SHORTEST, LONGEST = (int(end(counted.k)) for end in (min, max))
for name in ("rate on the dashboard", "α"):
    moved = rates[name][LONGEST] / rates[name][SHORTEST] - 1
    print(f"{name}: from k = {SHORTEST} to k = {LONGEST} it changes by {', '.join(f'{change:+.0%} on {route}' for route, change in moved.items())}")
rates.round(2)

# %% [markdown]
# **It could have failed.** If the rate *were* α, the rate at the smallest k would tell the tokens per round at the
# largest. Let both try:

# %%
for route in ROUTES:
    lines = counted[counted.route == route].set_index("k")
    print(f"{route}: k = {LONGEST} emits {lines.tokens_per_round[LONGEST]:.2f} tokens per round; from k = {SHORTEST}, the rate says "
          f"{expected_tokens(lines.prefix_rate[SHORTEST], LONGEST):.2f}, α says {expected_tokens(lines['α'][SHORTEST], LONGEST):.2f}")

# %% [markdown]
# What is still missing on code has two causes. The larger: the engine counts tokens beyond the end of the text (we see
# that below). The smaller: drafts are not all alike (notebook 06). Replay, further down, needs no such assumption.
#
# ## Ten seconds at a time
#
# Where nobody scrapes, people read the log. vLLM writes a line for each interval in which it drafted. Here is
# such a log, of a server with k = 3.

# %%
log = text_of("engine-vllm-log.txt")
banner("recorded", **provenance("engine-vllm-log.txt"), k=3)
lines = log.splitlines()
print("\n".join(line.partition("] ")[2] for line in lines[:3]))
counts = [tuple(int(re.search(rf"{what}: (\d+) tokens", line)[1]) for what in ("Accepted", "Drafted")) for line in lines]
print(f"… {len(lines)} lines, with {min(drafted for _, drafted in counts)} to {max(drafted for _, drafted in counts)} drafted tokens each")

# %% [markdown]
# **Exercise 10.4** · easy · 3 minutes. `lines` is a list of pairs (accepted, drafted), one for each line of the log.
# What was the acceptance rate of the whole time?

# %% tags=["exercise"]
def whole_time(lines):
    # solution
    return sum(accepted for accepted, _ in lines) / sum(drafted for _, drafted in lines)
    # end


check(whole_time)

# %% [markdown] tags=["hints"]
# - A quiet interval with three rounds must not weigh as much as a busy one with a hundred.
# - Add the counts first. Divide once.

# %%
mean_of_rates = np.mean([accepted / drafted for accepted, drafted in counts])
pooled = read_metrics(log)
last = read_metrics(text_of("engine-vllm-metrics-mixed.txt"))
print(f"mean of the lines' rates {mean_of_rates:.3f}; pooled by counts {pooled.prefix_rate:.3f}; the same server's counters at the end {last.prefix_rate:.3f}")
print(f"the mean of rates is {mean_of_rates / pooled.prefix_rate - 1:+.0%} off")
print(f"of the lines, {sum(accepted / drafted < found.prefix_rate / 2 for accepted, drafted in counts)} have less than half the rate at the top of this notebook ({found.prefix_rate:.2f})")

# %% [markdown]
# Pooled by counts, log and counters agree (but for the last seconds, whose line was not yet written). Averaged, quiet
# intervals count as much as busy ones.
#
# And how low many of these lines are! They are of the same engine and the same draft as the scrapes at the top. Keep the
# question in mind. The answer comes two sections down.
#
# ## One draft, many dashboards
#
# Back to the rounds of the first scrape. How would other engines have shown *these* rounds? We write the lines that
# each of them prints, from the same counts. What people read as "the acceptance rate" is, of each:
#
# | engine | people read | it is |
# |---|---|---|
# | vLLM V1 | `Avg Draft acceptance rate` (until 0.9 without `Avg`), or the counters | the **prefix rate**: accepted ÷ drafted |
# | vLLM V0 | `Draft acceptance rate` | every position judged by itself, so near **α** |
# | vLLM V0 | `System efficiency` | emitted ÷ (rounds × (k + 1)): the **filled share** of the most a round could emit |
# | SGLang, older builds | `accept rate` | the **filled share** too |
# | SGLang, newer builds | `accept rate` | the **prefix rate** |
# | TensorRT-LLM | `acceptance_rate` of a response | the **prefix rate** |
# | llama.cpp, a request | `draft acceptance` | the **prefix rate** |
# | llama.cpp, statistics | `#acc drafts` ÷ `#gen drafts` | the chance that the **first** draft is accepted |
#
# (V0 judged positions that V1 never looks at. We let those be accepted like the ones that were reached.)

# %%
LENGTH, PREFIX = 1 + A / R, A / D
judged = round(R * sum(np.divide(POSITIONS, came)))
each = ", ".join(f"{n / R:.3f}" for n in POSITIONS)
batch = "Decode batch. #running-req: 1, #token: 2048, token usage: 0.02, accept len: {:.2f}, accept rate: {:.2f}, cuda graph: True, gen throughput (token/s): 99.10, #queue-req: 0,"
v0 = (f"Speculative metrics: Draft acceptance rate: {judged / D:.3f}, System efficiency: {LENGTH / (K + 1):.3f}, Number of speculative tokens: {K}, "
      f"Number of accepted tokens: {judged}, Number of draft tokens: {D}, Number of emitted tokens: {A + R}.")
histogram = [R - POSITIONS[0], *(a - b for a, b in zip(POSITIONS, [*POSITIONS[1:], 0], strict=True))]
printed = {
    "vLLM V1": (PREFIX, f"SpecDecoding metrics: Mean acceptance length: {LENGTH:.2f}, Accepted throughput: 9.10 tokens/s, Drafted throughput: 30.00 tokens/s, "
                f"Accepted: {A} tokens, Drafted: {D} tokens, Per-position acceptance rate: {each}, Avg Draft acceptance rate: {PREFIX:.1%}"),
    "vLLM V0, draft acceptance rate": (judged / D, v0),
    "vLLM V0, system efficiency": (LENGTH / (K + 1), v0),
    "SGLang, older": (LENGTH / (K + 1), batch.format(LENGTH, LENGTH / (K + 1))),
    "SGLang, newer": ((LENGTH - 1) / K, batch.format(LENGTH, (LENGTH - 1) / K)),
    "TensorRT-LLM": (PREFIX, json.dumps({"speculative_decoding": {
        "acceptance_rate": PREFIX, "total_accepted_draft_tokens": A, "total_draft_tokens": D, "num_spec_steps": R, "acceptance_histogram": histogram, "num_spec_tokens": K}})),
    "llama.cpp, a request": (PREFIX, f"draft acceptance = {PREFIX:.5f} ( {A} accepted / {D} generated), mean len = {LENGTH:.2f}, acceptance rate per position = ({each})"),
    "llama.cpp, statistics": (POSITIONS[0] / R, f"statistics draft-simple: #calls(b,g,a) = 9 {R} {R}, #gen drafts = {R}, #acc drafts = {POSITIONS[0]}, #gen tokens = {D}, "
                  f"#acc tokens = {A}, #mean acc len = {LENGTH:.2f}, #acc rate/pos = ({each})"),
}
banner("recorded", **provenance("engine-vllm-metrics-after.txt"), lines="written here from the recorded counts, in each engine's format")
read = {name: read_metrics(text, k=K) for name, (_, text) in printed.items()}
dashboards = pd.DataFrame({"people read": {name: shown for name, (shown, _) in printed.items()},
                           **{words: {name: getattr(one, field) for name, one in read.items()} for words, field in
                              (("tokens per round", "tokens_per_round"), ("prefix rate", "prefix_rate"), ("α", "alpha"))}})
dashboards.round(2)

# %% [markdown]
# The first column is what different teams see of one and the same draft. The others are what `read_metrics` makes of
# the same lines: one answer. (Where a line has two digits, so has the answer.)

# %%
figure, axes = plt.subplots(figsize=(8, 4.4))
shown = dashboards["people read"]
axes.barh(range(len(shown)), shown, color="#56B4E9", edgecolor="black")
for place, value in enumerate(shown):
    axes.text(value + 0.01, place, f"{value:.2f}", va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
axes.axvline(found.alpha, color="black", linestyle="--", linewidth=1.5, label=f"α = {found.alpha:.2f}")
axes.axvline(PREFIX, color="#D55E00", linestyle=":", linewidth=2, label=f"prefix rate = {PREFIX:.2f}")
axes.set(yticks=range(len(shown)), yticklabels=shown.index, xlabel='what people read as "acceptance rate"', xlim=(0, max(shown) + 0.12))
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
figure.legend(loc="outside lower right", ncols=2)
show(figure, f"Bars: the acceptance rate that people read for the same {R} rounds with k = {K}. " + ", ".join(f"{name} {value:.2f}" for name, value in shown.items())
     + f". Lines mark α, {found.alpha:.2f}, and the prefix rate, {PREFIX:.2f}.")

# %% [markdown]
# **A misread dashboard, put right.** A team moves from an older SGLang to vLLM. The rate on the dashboard drops, as from
# the fourth bar to the first. They suspect the new engine, or the draft, and roll back. Nothing happened: the old
# number had the bonus token above the line and k + 1 below. It can never be under 1 ÷ (k + 1), however bad the draft
# is. The pair (length, rate) gives it away, since only one of the definitions fits.
#
# **Exercise 10.5** · medium · 6 minutes. `length` is the printed mean acceptance length (bonus included) and `rate` the
# printed rate, both rounded to two digits. Return `"prefix rate"` if the rate is accepted ÷ drafted, `"filled share"`
# if it is emitted ÷ (k + 1), or else `"neither"`. Let a difference of up to 0.01 pass for rounding.

# %% tags=["exercise"]
def which(length, rate, k):
    # solution
    if abs((length - 1) / k - rate) <= 0.01:
        return "prefix rate"
    return "filled share" if abs(length / (k + 1) - rate) <= 0.01 else "neither"
    # end


check(which)

# %% [markdown] tags=["hints"]
# - Of `length` tokens a round, `length` − 1 were drafts. At most k could have been.
# - Compare with `abs(… - rate) <= 0.01`, never with `==`: both numbers were rounded.

# %% [markdown]
# What each engine calls what, here and elsewhere in its output:

# %%
names = pd.DataFrame({one.engine: called(one) for one in read.values()}).reindex(["tokens_per_round", "prefix_rate", "per_position", "alpha"])
for engine, column in names.items():
    print(engine)
    for definition, name in column.dropna().items():
        print(f"    {definition:16} {name}")

# %% [markdown]
# One rule survives all of them: take **tokens per round** and k. All else follows from these two, and every engine of
# today has the first, under some name with "len" in it. (vLLM V0 had it as a share: its system efficiency is tokens per
# round ÷ (k + 1).)
#
# ## Ordinary counters, broken text
#
# A rate can be read rightly and still be worthless: if the engine is wrong. Speculation promises that the text is the
# target's own. Nobody sees it from the counters. So compare texts, before any counter is believed:
#
# - **Greedy.** The same prompt with and without speculation must give the same tokens. Where they part, ask the
#   engine *without* speculation how much it preferred its own token. A tiny margin is a near-tie: other widths round
#   otherwise. Anything larger is an error.
# - **Sampled.** Two random texts differ anyway. So take prompts whose continuation has few likely beginnings, sample
#   each many times on both sides, and test whether the counts can come from one law.
#
# **Exercise 10.6** · medium · 7 minutes. `ours` are the tokens without speculation, `theirs` those with it, both lists.
# `margins[i]` is the log-probability of our token at i less that of theirs, as the engine without speculation sees
# them. Where they first part, return `"near-tie"` (margin at most `tie`) or `"different"`. If they never part, return
# `"same"`, or `"different"` if one is shorter.

# %% tags=["exercise"]
def verdict(ours, theirs, margins, tie=0.1):
    # solution
    for a, b, margin in zip(ours, theirs, margins, strict=False):
        if a != b:
            return "near-tie" if margin <= tie else "different"
    return "same" if len(ours) == len(theirs) else "different"
    # end


check(verdict)

# %% [markdown] tags=["hints"]
# - After the first difference the two engines continue different texts. What follows proves nothing.
# - So find the first place where they differ, and ask for the margin there. No such place? Then the lengths decide.

# %% [markdown]
# `python -m course_lib engine check --base URL --spec URL` does both. Here is what it said of vLLM 0.32.0 on this CPU,
# first at temperature 0 alone:

# %%
cold, hot = (json.loads(text_of(f"engine-vllm-check-{name}.json")) for name in ("t0", "t1"))
banner("recorded", **provenance("engine-vllm-check-t0.json"), k=3)
print(cold["greedy"]["reason"])
for each in cold["greedy"]["differences"]:
    margin = "unknown" if each["margin"] is None else f"{each['margin']:.3f} nats"
    print(f"  prompt {each['prompt']} parts after {each['at']} tokens, {each['tokens'][0]!r} or {each['tokens'][1]!r}, margin {margin}: {each['kind']}")
print("verdict:", cold["greedy"]["verdict"])

# %% [markdown]
# And with sampled texts. Each prompt was sampled 20 times on each side. Most texts begin in one of a few likely ways; the
# columns "any other" count those that do not. p is the chance of counts at least so unequal if both sides followed one
# law.

# %%
banner("recorded", **provenance("engine-vllm-check-t1.json"), k=3)
print(hot["sampled"]["reason"])
print("verdict:", hot["sampled"]["verdict"])
tests = [each for each in hot["sampled"]["prompts"] if each["usable"]]
pd.DataFrame([{"prompt ends with": each["prompt"].strip()[-32:].replace("\n", " "), "tokens compared": each["length"], "likely beginnings": len(each["outcomes"]) - 1,
               "any other, without": each["outcomes"][-1]["base"], "any other, with": each["outcomes"][-1]["spec"], "p": f"{each['p']:.4f}"} for each in tests]).set_index("prompt ends with")

# %%
worst = max(tests, key=lambda each: each["outcomes"][-1]["spec"] - each["outcomes"][-1]["base"])
sides = {"without speculation": "base", "with": "spec"}
total = {side: sum(each[side] for each in worst["outcomes"]) for side in sides.values()}
spelled = [re.findall(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"", each["outcome"]) for each in worst["outcomes"]]  # tokens, as Python writes them
labels = ["".join(map(ast.literal_eval, tokens)).replace("\n", "↵").strip() or each["outcome"] for tokens, each in zip(spelled, worst["outcomes"], strict=True)]
labels = [label if len(label) <= 30 else label[:29] + "…" for label in labels]
figure, axes = plt.subplots(figsize=(8, 1.6 + 0.55 * len(labels)))
for number, (name, side) in enumerate(sides.items()):
    axes.barh(np.arange(len(labels)) + 0.38 * (number - 0.5), [100 * each[side] / total[side] for each in worst["outcomes"]], height=0.38, edgecolor="black", label=name,
              **({"color": "0.8"}, {"color": "#D55E00", "hatch": "///"})[number])
axes.set(yticks=range(len(labels)), yticklabels=labels, xlabel="texts, %", xlim=(0, 105))
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.legend()
show(figure, f"How {total['base']} and {total['spec']} sampled texts begin (prompt ending in {worst['prompt'].strip()[-20:]!r}), in percent without and with speculation: "
     + "; ".join(f"{label} {100 * each['base'] / total['base']:.0f} and {100 * each['spec'] / total['spec']:.0f}" for label, each in zip(labels, worst["outcomes"], strict=True)) + ".")

# %% [markdown]
# The cause was found in the source. To verify a sampled request, vLLM copies its temperature to each drafted position.
# On this build that copy ran through a replacement that, for floating-point numbers, returned memory that nobody had
# written. So the target's logits were divided by whatever lay there. The first token of an answer comes from the
# prefill and is fine. Then come rounds, and the text falls apart.
#
# **It could have failed.** A check that fails every engine is worth nothing. So give it right engines: both sides
# sampled from the law that the first engine showed, 100 times.

# %%
banner("simulated", engines=100, prompts=len(tests), seed=0)
random = np.random.default_rng(0)
failed = 0
for _ in range(100):
    smallest = 1.0
    for each in tests:
        law = np.array([one["base"] for one in each["outcomes"]]) / sum(one["base"] for one in each["outcomes"])
        table = random.multinomial([sum(one[side] for one in each["outcomes"]) for side in ("base", "spec")], law)
        smallest = min(smallest, comparison.permutation_p(table, random))
    failed += smallest <= hot["sampled"]["level_each"]
print(f"{failed} of 100 right engines fail; the level allows about {100 * hot['sampled']['level']:.0f}")

# %% [markdown]
# ### What the counters said meanwhile

# %%
sampled_trace = Trace.load(recording("engine-served-t1.parquet"))
banner("recorded", **provenance("engine-served-t1.parquet"), texts=int((sampled_trace.rows.t == 0).sum()), temperature=1)
# vLLM proposes the draft's likeliest token, also at temperature 1. It is accepted where it is the text's token.
favourite = [each.astype(float) for each in sampled_trace.column("match")]
healthy = position_rates(favourite, K).unconditional.tolist()
kinds = {"greedy, counted": hot["greedy"]["counters"], "sampled, counted": hot["sampled"]["counters"]}
seen = pd.DataFrame({name: one["per_position"] for name, one in kinds.items()} | {"sampled, to be expected": healthy}).T.rename(columns="position {}".format)
seen["tokens per round"] = [1 + row.sum() for row in seen.to_numpy()]
print("warnings on the sampled counters:", "; ".join(hot["sampled"]["counters"]["warnings"]) or "none")
print(f"position 0 of the sampled rounds accepts {seen['position 0']['sampled, counted']:.3f}; in an engine that is right it would be about {healthy[0]:.2f}")
seen.round(3)

# %% [markdown]
# "To be expected" is a replay of text that this target wrote at temperature 1, read by this draft, each in a vLLM server
# of its own, without speculation. (It is of other prompts, so no exact yardstick. It need not be.) The counters count on
# as usual: rounds, drafts, now and then an accepted one. On a dashboard that looks like a **bad draft**, which is a
# common thing, and not like a broken engine.
#
# In production it is worse still, as greedy and sampled requests share the counters. That is what the last lines of the
# log were. Here are the counters of all the check's requests together:

# %%
mixed = last.since(read_metrics(after))
shares = {"greedy": hot["greedy"]["counters"]["alpha"], "sampled, to be expected": implied_alpha(sum(healthy), K), "mixed, on the dashboard": mixed.alpha}
print("; ".join(f"α {name}: {value:.2f}" for name, value in shares.items()))
more = [name for name in ("greedy", "sampled, to be expected") if shares[name] > mixed.alpha]
print(f"The mixed counters imply an α of {mixed.alpha:.2f}. In an engine that is right {['neither kind has', 'one kind of traffic has', 'both kinds of traffic have'][len(more)]} more than that.")
print("warnings of read_metrics:", "; ".join(mixed.warnings) or "none")

# %% [markdown]
# Whoever tunes by this number switches the draft off, or trains a better one. The draft is fine. Three habits would
# have caught it: compare text before counters, keep greedy and sampled traffic apart, and hold tokens per round against
# a prediction.
#
# ## The sweep of a real engine
#
# At temperature 0 this engine has passed. So its counters may be believed there, and its clock. For each k one was
# started. All were up together and took turns with the same prompts, one request at a time and four at a time:
#
# ```
# python -m course_lib engine sweep --engine vllm --pair smol --ks 0,3,5,7,9 --at-once --concurrency 1,4 --out FILE
# ```
#
# First the counters. Beside them stands what one pass over the text predicts, without any engine that speculates: replay
# on the *same* prompts. Two details make it exact. The engine's first token comes from the prefill, so we drop the first
# position. And its draft proposes from all 49,152 tokens, while the course's faster draft looks at the frequent ones
# only. So target and draft were served each by itself, and both read the text. (More of that further down.)

# %%
served = Trace.load(recording("engine-served-t0.parquet"))
costs = CostTable.load(recording("costs-cpu.json"))


def as_served(trace, meta):
    """The texts of a sweep's prompts, as long as the engine wrote them, without the token of the prefill."""
    asked = {(route, prompt) for route, ids in meta["settings"]["prompts"].items() for prompt in ids}
    wanted = np.array([pair in asked for pair in zip(trace.rows.route, trace.rows.prompt, strict=True)])
    rows = trace.rows[wanted & trace.rows.t.between(1, meta["settings"]["new_tokens"] - 1).to_numpy()]
    names = {role: costs.meta[role] for role in ("target", "draft")}  # the servers call both of them "smol"
    return Trace(rows.assign(t=rows.t - 1), trace.meta | names)


document = decision.document(meta, cells, [as_served(served, meta)], costs)


def flat(document):
    return pd.DataFrame([{"route": route, "load": int(load), **row} for route, found in document["routes"].items()
                         for load, one in found["loads"].items() for row in one["table"]])


rows = flat(document)
banner("recorded", **provenance("engine-vllm-sweep.jsonl"), predicted_from="one pass through two servers")
spec = rows[rows.k > 0]
written = {key: sum(each["tokens"] - 1 for each in cell["answers"] if not each["error"]) for key, cell in cells.items()}
spec = spec.assign(emitted=[written[row.route, row.load, row.k] / row.rounds for row in spec.itertuples()])
for words, values in (("the engine's counters", spec.tokens_per_round), ("tokens that came, by the engine's rounds", spec.emitted)):
    inside, apart = values.between(spec.predicted_tokens_low, spec.predicted_tokens_high), (values / spec.predicted_tokens - 1).abs()
    print(f"{words}: {inside.sum()} of {len(spec)} cells lie inside replay's interval; off by {apart.median():.1%} in the median, {apart.max():.1%} at most")
compared = spec.assign(counted=spec.tokens_per_round.map("{:.2f}".format), came=spec.emitted.map("{:.2f}".format), replay=[
    f"{Interval(*row):.2f}" for row in spec[["predicted_tokens", "predicted_tokens_low", "predicted_tokens_high"]].to_numpy(float)])
columns = pd.MultiIndex.from_product([sorted(spec.k.unique()), ["counted", "came", "replay"]])
compared.pivot(index=["route", "load"], columns="k", values=["counted", "came", "replay"]).swaplevel(axis=1)[columns].loc[ROUTES]

# %% [markdown]
# Why do *counted* and *came* differ? A round drafts k tokens to the very end, and the engine counts those, too, that
# lie beyond the last token it may send. With answers as short as these that is seen, and more so at a large k. Replay
# stops where the text stops. In long answers nobody would notice.

# %%
figure, panels = plt.subplots(1, len(ROUTES), figsize=(3.4 * len(ROUTES), 3.9), sharey=True)
said = []
for axes, route in zip(panels, ROUTES, strict=True):
    line = spec[(spec.route == route) & (spec.load == 1)].sort_values("k")
    axes.plot(line.k, line.predicted_tokens, marker="", label="replay")
    axes.fill_between(line.k, line.predicted_tokens_low.astype(float), line.predicted_tokens_high.astype(float), alpha=0.15)
    axes.plot(line.k, line.tokens_per_round, linestyle="", marker="s", color="#D55E00", fillstyle="none", markersize=9, label="engine, counted")
    axes.plot(line.k, line.emitted, linestyle="", marker="^", color="#000000", label="engine, came")
    axes.set(title=route, xlabel="k", xticks=line.k)
    said.append(f"{route}: " + ", ".join(f"k {row.k} counted {row.tokens_per_round:.2f}, came {row.emitted:.2f}, replay {row.predicted_tokens:.2f}" for row in line.itertuples()))
panels[0].set_ylabel("tokens per round")
panels[0].legend()
show(figure, "Tokens per round against k by route at load 1, as vLLM counts (squares), tokens that came by its rounds (triangles), and predicted by replay (line; band: 95 % interval over prompts). " + "; ".join(said) + ".")

# %% [markdown]
# No engine ran for the line, and one pass gave all of its points. (Here nothing is left between line and triangles. A
# near-tie would leave something: it makes another text.)
#
# Load makes no difference to the tokens per round. It does to the clock. TTFT is the time to the first token, TPOT the
# time of each token after it:

# %%
timed = rows.assign(ttft=[1e3 * each["p50"] for each in rows.ttft], tpot=[1e3 * each["p50"] for each in rows.tpot])
clock = timed.pivot(index=["route", "load"], columns="k", values=["ttft", "tpot", "tokens_per_second"]).loc[ROUTES]
clock.rename(columns={"ttft": "TTFT, ms (median)", "tpot": "TPOT, ms (median)", "tokens_per_second": "tokens/s, all requests"}).astype(float).round(1)

# %%
speed = [f"{Interval(*row):.2f}" for row in spec[["speedup", "speedup_low", "speedup_high"]].to_numpy(float)]
here = [f"{Interval(*row):.2f}" for row in spec[["predicted", "predicted_low", "predicted_high"]].to_numpy(float)]
print("decoding speed against k = 0: measured in vLLM, and what our own decoder's prices would make of it")
pairs = spec.assign(vLLM=speed, ours=here).pivot(index=["route", "load"], columns="k", values=["vLLM", "ours"]).swaplevel(axis=1)
pairs.sort_index(axis=1).loc[ROUTES]

# %% [markdown]
# The acceptance carries over to the engine. The **price does not**: look at load 1. (At load 4 the two happen to lie
# close. Nothing says they must.)
#
# Where does the time go? A plain step takes TPOT at k = 0, and a round takes as many TPOTs as it emits tokens. The two
# columns of milliseconds are of two machines, so compare the *plain steps* that a round takes:

# %%
alone = timed[timed.load == 1].assign(ms=lambda lines: lines.tpot * lines.tokens_per_round.fillna(1).where(lines.k > 0, 1)).groupby("k").ms.mean()
mine = costs.at(1)
seconds = pd.DataFrame({"vLLM, ms": alone, "our decoder, ms": {k: 1e3 * mine.round_seconds(k) for k in alone.index}}).rename(index={0: "plain step"})
steps_of = (seconds / seconds.loc["plain step"]).rename(columns=lambda name: name.replace("ms", "in plain steps"))
banner("recorded", what="our decoder", **{name: costs.meta[name] for name in ("machine", "date", "command")})
for name, column in steps_of.items():
    print(f"{name.split(',')[0]}: a round with k = {K} takes {column[K]:.2f} plain steps, and {(column[LONGEST] - column[K]) / (LONGEST - K):.2f} more for each further draft")
pd.concat([seconds.round(1), steps_of.round(2)], axis=1).rename_axis("k")

# %% [markdown]
# A price belongs to the engine: its kernels, its scheduler, and the way it runs the draft (here nothing is compiled, all is
# float32 on one thread of a CPU, and each draft step computes all 49,152 logits). Neither column says anything about a
# GPU. What carries over is the method: get the engine's own prices, from one sweep.
#
# A round's price follows from what was measured outside, with no clock inside the engine: tokens per round ÷ speedup.
#
# **Exercise 10.7** · easy · 4 minutes. An engine emits `length` tokens per round. Its time per output token is `tpot`
# with speculation and `plain` without. How many tokens per round are break-even?

# %% tags=["exercise"]
def break_even(length, tpot, plain):
    # solution
    return length * tpot / plain
    # end


check(break_even)

# %% [markdown] tags=["hints"]
# - How long does a round take? It emits `length` tokens, each in `tpot`.
# - Break-even: in that time plain decoding emits just as many.

# %% [markdown]
# If prices belong to the engine and yields to the text, then the price found on *other* routes and the yield from
# replay must give the speed of a route that the engine's clock has not seen. (Speed against a plain step: the median of
# all answers at that load without a draft, so that one answer that stalled does not move everything.)

# %%
def answers(route, load, k):
    return [each for each in cells[route, load, k]["answers"] if not each["error"]]


step = {load: np.median([each["decode"] / (each["tokens"] - 1) for route in ROUTES for each in answers(route, load, 0)]) for load in sorted(spec.load.unique())}
priced = []
for row in spec.itertuples():
    own = answers(row.route, row.load, row.k)
    price = np.mean([sum(each["decode"] for each in answers(route, row.load, row.k)) / cells[route, row.load, row.k]["counters"]["rounds"]
                     for route in ROUTES if route != row.route]) / step[row.load]
    priced.append([*ratio_interval([step[row.load] * (each["tokens"] - 1) for each in own], [each["decode"] for each in own]), row.predicted_tokens / price])
spec[["speed", "speed_low", "speed_high", "from others"]] = priced
off = {"other routes' prices": spec["from others"], "our decoder's prices": spec.predicted}
print("speed predicted, against the engine's clock: " + "; ".join(f"with {name} {(value / spec.speed - 1).abs().median():.0%} off in the median, {(value / spec.speed - 1).abs().max():.0%} at most"
                                                                   for name, value in off.items()))
figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
said = []
looks = [("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#000000", "D", ":")]
for axes, load in zip(panels, sorted(spec.load.unique()), strict=False):
    for beside, ((colour, marker, line_style), route) in enumerate(zip(looks, ROUTES, strict=False)):
        line = spec[(spec.route == route) & (spec.load == load)].sort_values("k")
        ends = np.abs(line[["speed_low", "speed_high"]].to_numpy(float).T - line.speed.to_numpy(float))
        axes.errorbar(line.k + 0.2 * (beside - 1), line.speed, yerr=ends, color=colour, marker=marker, linestyle="", capsize=3, label=f"{route}, measured")
        axes.plot(line.k, line["from others"], color=colour, linestyle=line_style, marker="", linewidth=1.5, label=f"{route}, predicted")
        said.append(f"load {load} {route}: " + ", ".join(
            f"k {k} {measured:.2f} ({predicted:.2f})" for k, measured, predicted in zip(line.k, line.speed, line["from others"], strict=True)))
    axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
    axes.set(title=f"load {load}", xlabel="k", xticks=sorted(spec.k.unique()))
panels[0].set_ylabel("decoding speed against k = 0")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ROUTES), fontsize=11)
show(figure, "Decoding speed in vLLM against k = 0, measured with 95 % intervals over prompts, and in brackets predicted from replay and the prices found on the other routes. "
     + "; ".join(said) + ".")

# %%
for route, values in document["routes"].items():
    for load, one in values["loads"].items():
        with_k = f" with k = {one['best_k']}" if one["best_k"] else ""
        print(f"{route}, load {load}: {one['decision']}{with_k}. {one['reason']}")

# %% [markdown]
# That is the decision for this engine on this machine, whatever our own decoder made of the same draft.
#
# ## Drafts from the text
#
# vLLM can also draft without a model: `"method": "ngram"`. It was swept the same way. Here is one more name to be
# careful with. Where nothing in the text matches, no round takes place. So "mean acceptance length" speaks of the rounds
# that drafted, while users feel **tokens per step**, plain steps included.

# %%
meta_ngram, cells_ngram = sweep.read(recording("engine-vllm-ngram-sweep.jsonl"))
prompts = load_prompts()
copied = add_lookup(served, load_encoder("smol"), prompts, Lookup(), draft=False)
predicted = tokens_per_round(as_served(copied, meta_ngram), sorted({k for _, _, k in cells_ngram if k})).set_index(["route", "k"])
banner("recorded", **provenance("engine-vllm-ngram-sweep.jsonl"), predicted_from="lookup of runs of 2 to 4 tokens, here")
steps = []
for (route, load, k), cell in cells_ngram.items():
    answered = [each for each in cell["answers"] if not each["error"]]
    if k:
        decoded, accepted = sum(each["tokens"] - 1 for each in answered), cell["counters"]["accepted"] or 0
        line = predicted.loc[route, k]
        steps.append({"route": route, "load": load, "k": k, "ms": 1e3 * sum(each["decode"] for each in answered) / (decoded - accepted), "length on the dashboard": cell["counters"]["tokens_per_round"], "tokens per step": decoded / (decoded - accepted),
                      "our lookup": f"{Interval(line['mean'], line['low'], line['high']):.2f}"})
every = pd.DataFrame(steps).sort_values("k")
steps = every[every.load == 1]
gap = (steps["length on the dashboard"].astype(float) / steps["tokens per step"]).median()
print(f"the length on the dashboard is {gap:.2f} times the tokens per step, in the median")
steps.drop(columns=["ms", "load"]).set_index(["route", "k"]).loc[ROUTES].round(2)

# %%
rows_ngram = flat(decision.document(meta_ngram, cells_ngram))
both = pd.concat([rows.assign(draft="draft model"), rows_ngram.assign(draft="n-gram")], ignore_index=True)
both = both[both.k > 0]
best = both.loc[both.groupby(["route", "load", "draft"]).speedup.idxmax()]
best["cell"] = [f"{Interval(*row[:3]):.2f}× at k = {row[3]:.0f}" for row in best[["speedup", "speedup_low", "speedup_high", "k"]].to_numpy(float)]
best = best.merge(every[["route", "load", "k", "tokens per step"]], on=["route", "load", "k"], how="left")
table = best.pivot(index=["route", "load"], columns="draft", values="cell").loc[ROUTES]
at_most = best[best.draft == "n-gram"].set_index(["route", "load"])[["tokens per step", "speedup"]].loc[ROUTES].astype(float)
good = {route: [each for each in cells_ngram[route, 1, 0]["answers"] if not each["error"]] for route in ROUTES}
own = [1e3 * sum(each["decode"] for each in good[route]) / sum(each["tokens"] - 1 for each in good[route]) for route in ROUTES]
print(f"load 1: a step of the n-gram engine takes {steps.ms.min():.0f} to {steps.ms.max():.0f} ms, a plain step of the same sweep {min(own):.0f} to {max(own):.0f} ms; in the sweep above a plain step took {1e3 * step[1]:.0f} ms")
print(f"in {(at_most.speedup > at_most['tokens per step']).sum()} of {len(at_most)} rows the n-gram's speedup is above its tokens per step")
print("the fastest k of each, against k = 0 of its own sweep")
table.assign(**{"n-gram, tokens per step": at_most["tokens per step"].round(2)})

# %% [markdown]
# Our lookup and vLLM's are not the same algorithm: vLLM copies a whole run behind one match, ours looks up each token
# anew. So this prediction comes near, and is no proof.
#
# Now the speed. A step that verifies drafts cannot be cheaper than a plain one. So no speedup can be above the **tokens
# per step**. Where the table says otherwise at load 1, the clock was unsteady: the plain runs of this sweep met slower
# moments. (The first line shows how much: plain steps of two sweeps of the same engine.) At load 4 there may be one more
# cause: a request that ends early leaves fewer rows to the others, and their steps get cheaper. Believe the smaller of
# the two numbers.
#
# And see how far the prompts of one route lie apart. N-grams pay where texts repeat themselves. With so few prompts the
# intervals promise little: sweep more before you decide.
#
# ## Drafts that nobody has deployed
#
# To rank drafts you need no deployment at all. Serve the target, and serve the draft *as a model of its own*. Both
# engines read texts that the target has written, and say of each token how likely it was (`prompt_logprobs`). That is
# the one pass of notebook 05, at any size that your engines can serve, and on the log of yesterday's traffic:
#
# ```
# python -m course_lib measure --served-target http://HOST:8000 --served-draft http://HOST:8001 --log traffic.jsonl
# ```
#
# This trace predicted the sweep above. Is it the same measurement as in this process? Compare it with the recording that
# the other notebooks use.

# %%
ours = Trace.load(recording("smol-t0.parquet"))
banner("recorded", **provenance("engine-served-t0.parquet"), texts=int((served.rows.t == 0).sum()), tokens=len(served.rows))
pair = served.rows.merge(ours.rows, on=["route", "prompt", "t"], suffixes=("", "_ours"))
print(f"{(pair.token == pair.token_ours).sum()} of {len(served.rows)} tokens are the same")
print(f"at {(pair.match == pair.match_ours).sum()} of them, so is the answer to \"is it the draft's likeliest token?\"")

# %% [markdown]
# What is left is the faster draft, which looks at frequent tokens only. A stricter comparison has the full draft here as
# well, at both temperatures. At 1 it compares the log-probabilities themselves, in nats, of the target (p) and the draft
# (q). At 0 only the likeliest token counts, so there is no difference to show (NaN):

# %%
banner("recorded", **provenance("engine-served.json"))
pd.DataFrame(json.loads(text_of("engine-served.json"))).set_index("temperature")

# %% [markdown]
# What can such a pass not see? Engines tell log-probabilities at temperature 1, over the whole vocabulary. Greedy
# acceptance needs the draft's likeliest token only, and temperature 1 the two numbers. Everything else it refuses:

# %%
for temperature, top_p in ((0, 1.0), (1, 1.0), (0.7, 1.0), (1, 0.9)):
    try:
        refuse_unseen(temperature, top_p=top_p)
        print(f"temperature {temperature}, top-p {top_p}: measured")
    except ValueError as error:
        print(f"temperature {temperature}, top-p {top_p}: refused. {str(error).split(': ', 1)[1]}")

# %% [markdown]
# It cannot see either what it was not shown: the sampling settings of a log are believed, and tested. A log that
# claims temperature 1 but was written with top-p has too many likely tokens in it. Then the trace carries a sentence that says so, `doubt`, which `measure` prints above its table.
#
# ## Flags to paste
#
# From a decision to a command line, with the names that the engines have now (vLLM 0.33, SGLang 0.5.23). Tutorials often
# have others: `--num-speculative-tokens` is gone from vLLM, `--draft*` from llama.cpp, and SGLang counts k + 1 where the
# others count k.

# %%
paste = decide(ours, costs, (1, 2, 3, 5), (1, 4))
banner("recorded", **{name: ours.meta[name] for name in ("machine", "date", "command")}, prices="of our own decoder, not of the engine")
for engine, text in settings(paste).items():
    print(f"--- {engine}\n{text}\n")

# %% [markdown]
# These settings come from our decoder's prices. The sweep above says what they are worth on this engine. So before they
# go live: `engine check`, then `engine sweep` with the k around them, on your engine.
#
# ## When to wake somebody
#
# Three alarms, each a PromQL expression and a threshold that was measured. (`promql` gives the expressions for your engine
# and model.)
#
# 1. **It does not pay.** Tokens per round below the price of a round: slower than without a draft.
# 2. **Not as predicted.** Tokens per round below the lower end of the prediction: traffic, draft or engine changed. The
#    counters do not know routes and temperatures, so take the prediction for the hardest of them.
# 3. **A cliff.** Of the rounds that come to the second position, less than half as many accept there as predicted.
#    Drafts get worse gradually. An engine breaks at one place.
#
# Each is silent while hardly anything is drafted. The predictions come from the long recordings of the other notebooks,
# greedy and sampled, with a draft that proposes its likeliest token.

# %%
queries = promql(found)
second = promql(replace(found, k=2))["conditional"]  # accepted at the second position, by accepted at the first
price, expected = spec[spec.k == K].round_cost.mean(), []
for trace in (ours, Trace.load(recording("smol-t1.parquet"))):
    greedy = Trace(trace.rows.assign(accept=trace.rows.match.astype(float)), trace.meta)
    yields = tokens_per_round(greedy, [K]).set_index("route")
    expected += [{"temperature": trace.meta["temperature"], "route": route, "tokens per round": yields["mean"][route], "lower end": yields.low[route],
                  "second after first": position_rates(greedy.accepts(route), K).conditional.iloc[1]} for route in yields.index]
expected = pd.DataFrame(expected).set_index(["temperature", "route"])
lower, shape = expected["lower end"].min(), expected["second after first"].min() / 2
print(expected.round(2).to_string())
alarms = {"SpeculationDoesNotPay": (f"{queries['tokens_per_round']} < {price:.2f}", lambda one: one["tokens_per_round"] < price),
          "AcceptanceNotAsPredicted": (f"{queries['tokens_per_round']} < {lower:.2f}", lambda one: one["tokens_per_round"] < lower),
          "AcceptanceCliff": (f"{second} < {shape:.2f}", lambda one: one["per_position"][1] < shape * one["per_position"][0])}
print("groups:\n- name: speculation\n  rules:")
for name, (expression, _) in alarms.items():
    print(f"  - alert: {name}\n    expr: {expression} and {queries['rounds']} > 1\n    for: 15m")

# %% [markdown]
# Try them on everything that this engine counted with k = 3:

# %%
traffic = {f"{route}, load {load}": cell["counters"] for (route, load, k), cell in cells.items() if k == K}
traffic |= {"sampled (broken)": hot["sampled"]["counters"], "mixed (part of it broken)": mixed.as_dict()}
pd.DataFrame({name: {"tokens per round": f"{one['tokens_per_round']:.2f}", **{alarm: "rings" if rings(one) else "–" for alarm, (_, rings) in alarms.items()}}
              for name, one in traffic.items()}).T

# %% [markdown]
# Read the columns. The first is about money, and rings wherever the sweep said "off", on this engine and this machine. It
# cannot tell broken from slow. The second can, since it knows what the draft is good for. But where healthy requests
# share the counters it has little to spare. The third looks at the shape, and the mix hides the shape. So set all
# three, and **count greedy and sampled traffic apart** (two deployments, or a model name for each).
#
# For Grafana the folder `data/grafana` has a dashboard for each engine, to be imported as it is. Each panel says what
# its number is:

# %%
for path in sorted((DATA / "grafana").glob("*.json")):
    board = json.loads(path.read_text(encoding="utf-8"))
    print(f"{path.name}: {', '.join(panel['title'] for panel in board['panels'])}")
board = json.loads((DATA / "grafana" / "vllm.json").read_text(encoding="utf-8"))
print(f"\n{board['panels'][1]['title']}: {board['panels'][1]['description']}")

# %% [markdown]
# ## Your engine
#
# With `COURSE_ENGINE=http://HOST:PORT` set, the next cell scrapes that engine, sends it a few of the course's prompts at
# temperature 0, and shows what it counted meanwhile (other people's requests included). With `COURSE_ENGINE_PLAIN` as
# well, the address of the same target without speculation, it compares texts. With neither it shows the mixed scrape
# from above.

# %% tags=["nbval-ignore-output"]
ENGINE, PLAIN = os.environ.get("COURSE_ENGINE", ""), os.environ.get("COURSE_ENGINE_PLAIN", "")
if ENGINE:
    banner("live", engine=ENGINE)
    asked = [prompt.messages for prompt in load_prompts(limit=2)]
    model, then = served_model(ENGINE), read_all(fetch_text(ENGINE))
    with connect() as client:
        answers = ask_all(lambda messages: ask(client, ENGINE, model, messages, 48), asked, 1)
    print(f"{sum(not each.error for each in answers)} of {len(asked)} requests answered; failures: {[each.detail for each in answers if each.error] or 'none'}")
    for one in ledger.between(read_all(fetch_text(ENGINE)), then):
        ledger.show(one, console=console)
    if PLAIN:
        said = comparison.check(PLAIN, ENGINE, served_model(PLAIN), model, asked, samples=40)
        print("\n".join([*said["reasons"], *comparison.counted(said), said["verdict"]]))
else:
    banner("recorded", **provenance("engine-vllm-metrics-mixed.txt"), k=3)
    ledger.show(last.since(read_metrics(after)), console=console)

# %% [markdown]
# ## Quiz

# %%
quiz("10.a")

# %%
quiz("10.b")

# %%
quiz("10.c")

# %%
quiz("10.d")

# %%
quiz("10.e")

# %%
quiz("10.f")

# %%
quiz("10.g")

# %% [markdown]
# ## Recap
#
# - "Acceptance rate" is one of four things that engines print, by engine and version. Ask for tokens per round and k: all else follows.
# - Counters run since the start: subtract two scrapes. Log lines are intervals: add counts, never average rates.
# - Believe texts before counters. Greedy must be the same but for near-ties, sampled must have the same law. A broken
#   engine's counters look like a bad draft.
# - Keep greedy and sampled traffic apart, and each route. A pooled number describes nobody.
# - Replay predicts an engine's tokens per round at every k from one pass. Prices are the engine's own: one sweep, and they
#   carry over from route to route.
# - Where drafting is optional (n-gram), read tokens per step, not the length of the rounds that drafted.
# - Two servers and a log rank drafts that nobody has deployed, at temperature 0 or 1.
# - Alarm on the price, on the prediction, and on a cliff.
#
# **Next.** Notebook 11 raises α; notebook 12 puts all of it to work on your own traffic.
