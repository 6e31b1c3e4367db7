# %% [markdown]
# # 12 · Your traffic
#
# - **You will do:** put a file of prompts in and take a report out: for each route and load, speculate with this k, or
#   leave it off. Then you test the rule that decides, and set an alarm for the day the decision goes out of date.
# - **You will learn:** what can be wrong with a file, how many prompts are enough, what it costs to decide by the mean
#   alone, and which number to watch afterwards.
# - **You need:** notebook 03 (break-even), 04 (intervals), 05 (replay) and 09 (load). No GPU. A file of your own
#   prompts, if you have one.
# - **Minutes:** 80

# %% [markdown]
# Everything in the course so far was about our prompts. This notebook is about yours.
#
# Put the name of your file into `PROMPTS`, or start Jupyter with the environment variable `COURSE_PROMPTS` set to it. With
# neither, the notebook takes a few of the course's held-out prompts of each route. With a file of your own, also set
# `PER_ROUTE = None`: then all of its prompts are measured. All else stays the same.

# %%
import os
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Markdown
from scipy.stats import t as student

from course_lib import report
from course_lib.costs import CostTable
from course_lib.course import notebook
from course_lib.intervals import ratio_interval
from course_lib.measure import choose_prompts
from course_lib.pairs import load_pair
from course_lib.plots import banner, show, style
from course_lib.prompts import Prompt, read_prompts
from course_lib.recordings import recording
from course_lib.replay import replay_rounds
from course_lib.sampling import Sampling
from course_lib.sweep import decide, predict, texts_of
from course_lib.traces import Trace, encode_prompts, measure_trace

check, quiz = notebook("12")
style()

PROMPTS = os.environ.get("COURSE_PROMPTS", "")  # your file; empty: the course's own prompts
PER_ROUTE = 4  # prompts of each route to measure here; None: all of them
NEW_TOKENS = 48  # tokens the target writes for each
SAMPLING = Sampling(0.0)  # how you serve: Sampling(temperature, top_k, top_p)
KS = (1, 2, 3, 4, 5, 8)
LOADS = (1, 4, 16)  # requests decoded together
OUT = None  # a folder for report.html, report.md and report.json; None: shown here only

# %% [markdown]
# ## The file
#
# Prompts come from logs, and logs come from everywhere. So here is a file with nearly everything in it: a byte-order
# mark, Windows line ends, a blank line, a repeated prompt, and four ways to write a request (a plain `prompt`, OpenAI's
# `messages`, ShareGPT's `conversations`, MT-Bench's `turns`). `route` says which kind of traffic a line is.

# %%
folder = tempfile.TemporaryDirectory()


def written(name, text):
    path = Path(folder.name) / name
    path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
    return path


messy = "\ufeff" + "\r\n".join([
    '{"prompt": "Name three rivers."}',
    "",
    '{"route": "chat", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": '
    '[{"type": "text", "text": "Why is the sky blue?"}]}]}',
    '{"route": "chat", "conversations": [{"from": "human", "value": "A haiku, please."}, {"from": "gpt", "value": "Old pond"}]}',
    '{"route": "code", "turns": ["Reverse a list in Python.", "Now in place."]}',
    '{"prompt": "Name three rivers."}',
])
for prompt in read_prompts(written("messy.jsonl", messy), say=print):
    print(f"{prompt.id:15} {prompt.route:5} {' / '.join(message['content'] for message in prompt.messages)}")

# %% [markdown]
# Four requests are left of six lines. Each is known by its line, so an odd result can be traced back to it. The old
# answer is gone: the target will write its own. Of several `turns` only the first is asked. The repeated prompt is left out **and said so**. We come to why that
# matters.
#
# What cannot be read is refused, by number, with what to do:

# %%
for name, text in {
    "cut off": '{"prompt": "Hello"}\n{"prompt": "Hel',
    "another name": '{"prompt": "Hello"}\n{"text": "Hello"}',
    "a picture": '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x.png"}]}]}',
    "asks nothing": '{"messages": [{"role": "system", "content": "Be brief."}]}',
    "one array": '[{"prompt": "Hello"}]',
    "Latin-1": '{"prompt": "Grüezi"}'.encode("latin-1"),
    "empty": "\n\n",
}.items():
    try:
        read_prompts(written("prompts.jsonl", text))
    except ValueError as error:
        print(f"{name:13} {error}")

# %% [markdown]
# A file with one bad line in a thousand should not stop you. But leaving lines out is your choice, and they are named:

# %%
kept = read_prompts(written("prompts.jsonl", '{"prompt": "Hello"}\n{"prompt": "Hel\n{"prompt": "Bye"}'), skip_bad=True, say=print)
print("kept:", ", ".join(prompt.id for prompt in kept))

# %% [markdown]
# **Exercise 12.1** · easy · 6 minutes. `text` is a plain file, one prompt a line, just as it came from the disk. It may
# begin with a byte-order mark (`"\ufeff"`) and have Windows line ends (`"\r\n"`). White space at either end of a line
# does not count. Leave out blank lines, and lines that came before. Return the list of the others, in order.

# %% tags=["exercise"]
def usable(text):
    # solution
    lines = [line.strip() for line in text.removeprefix("\ufeff").split("\n")]
    return list(dict.fromkeys(line for line in lines if line))
    # end


check(usable)

# %% [markdown] tags=["hints"]
# - `strip()` takes a `"\r"` away, but not a byte-order mark. What is left of a blank line?
# - `dict.fromkeys(lines)` keeps the first of equal lines, and the order.

# %% [markdown]
# ## How many prompts are enough?
#
# The decision will compare a lower end with 1. So the question is how wide the interval is. A recording tells: it has
# many prompts of each route, and we can draw small samples from it as if it were the whole traffic.
#
# Two recordings are needed. One is of text: which drafts the target would keep. The other is of time: what a round costs on
# the machine that recorded it.

# %%
trace = Trace.load(recording("smol-t0.parquet"))
costs = CostTable.load(recording("costs-cpu.json"))
PROVENANCE = ("machine", "date", "command")
banner("recorded", what="text", pair=trace.meta["pair"], temperature=trace.meta["temperature"], answers=len(trace.accepts()),
       **{name: trace.meta[name] for name in PROVENANCE})
banner("recorded", what="round costs", threads=costs.meta.get("threads", "?"), **{name: costs.meta[name] for name in PROVENANCE})

# %% [markdown]
# For each prompt and k the replay gives two times: decoding plainly, and in rounds. A route's speedup is one sum
# divided by the other. The interval is over prompts, the `ratio_interval` of notebook 04. Below it is written for many
# samples at once.

# %%
def times_of(texts, load):
    """{route: (plain seconds [prompts], seconds in rounds [prompts, ks])}."""
    tables = [predict(texts, costs.at(load), k) for k in KS]
    of_route = {route: (tables[0].route == route).to_numpy() for route in tables[0].route.unique()}
    return {route: (tables[0].plain.to_numpy()[here], np.stack([table.seconds.to_numpy()[here] for table in tables], axis=1))
            for route, here in of_route.items()}


def intervals(plain, seconds):
    """Speedup and half-width of its 95 % interval, over the prompts along the last axis."""
    n, total = plain.shape[-1], seconds.sum(axis=-1)
    ratio = plain.sum(axis=-1) / total
    pull = plain - ratio[..., None] * seconds
    return ratio, student.ppf(0.975, n - 1) * np.sqrt(n / (n - 1) * (pull**2).sum(axis=-1)) / total


at_one = times_of(texts_of([trace]), 1)
truth = {route: plain.sum() / seconds.sum(axis=0) for route, (plain, seconds) in at_one.items()}  # a speedup for each k
best = {route: int(speedups.argmax()) for route, speedups in truth.items()}
for route, (plain, seconds) in at_one.items():
    mean, half = intervals(plain, seconds[:, best[route]])
    same = ratio_interval(plain, seconds[:, best[route]])
    print(f"{route:5} {len(plain):3} prompts, load 1, k = {KS[best[route]]}: {mean:.2f} ± {half:.2f}   (ratio_interval: {same:.2f})")

# %% [markdown]
# Now 400 samples of each size, drawn from these prompts with replacement. How wide is the interval, and how often does it
# hold the value of the whole recording?

# %%
SIZES = (4, 8, 16, 32, 64, 128)
random = np.random.default_rng(12)
widths, covered = {}, {}
for route, (plain, seconds) in at_one.items():
    for n in SIZES:
        drawn = random.integers(len(plain), size=(400, n))
        mean, half = intervals(plain[drawn], seconds[drawn, best[route]])
        widths.setdefault(route, []).append(float(np.median(half)))
        covered.setdefault(route, []).append(float((abs(mean - truth[route][best[route]]) <= half).mean()))

figure, axes = plt.subplots(figsize=(7, 4.4))
for route, width in widths.items():
    axes.plot(SIZES, width, label=route)
middle = float(np.mean([width[3] for width in widths.values()]))
axes.plot(SIZES, [middle * np.sqrt(32 / n) for n in SIZES], color="grey", linewidth=1, linestyle=":", marker="", label="1/√n")
axes.set(xscale="log", yscale="log", xlabel="prompts of a route", ylabel="half-width of the speedup")
axes.set_xticks(SIZES, [str(n) for n in SIZES])
ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if min(map(min, widths.values())) / 1.5 < tick < 1.5 * max(map(max, widths.values()))]
axes.set_yticks(ticks, [f"±{tick:g}" for tick in ticks])
axes.minorticks_off()
axes.legend(ncols=2)
show(figure, "Median half-width of the 95 % interval of the speedup at the best k, load 1, against the number of prompts from 4 to 128, "
     "both axes logarithmic. " + ". ".join(f"{route}: " + ", ".join(f"±{w:.3f} at {n}" for n, w in zip(SIZES, width, strict=True))
                                          for route, width in widths.items()) + ". A dotted line falls as 1 over root n.")
pd.DataFrame(covered, index=pd.Index(SIZES, name="prompts")).map("{:.0%}".format)

# %% [markdown]
# The lines fall like 1/√n: **four times the prompts, half the width.** Only at the left do they fall faster: with 4 prompts
# you pay extra for not knowing how much prompts differ.
#
# The table says how often the 95 % interval kept its word. With 4 or 8 prompts it may fall short. Prompts are not
# bell-shaped, and a few of them cannot show it.

# %% [markdown]
# ### More prompts, or longer answers?
#
# Both cost the same time. We take half of the prompts, then half of each answer: the same number of tokens.

# %%
lines, texts = {}, texts_of([trace])
halved = times_of([text._replace(accept=text.accept[: text.room // 2], room=text.room // 2) for text in texts], 1)
for route, (plain, seconds) in at_one.items():
    _, everything = intervals(plain, seconds[:, best[route]])
    drawn = np.array([random.permutation(len(plain))[: len(plain) // 2] for _ in range(400)])
    _, fewer = intervals(plain[drawn], seconds[drawn, best[route]])
    _, shorter = intervals(halved[route][0], halved[route][1][:, best[route]])
    lines[route] = {"all": f"±{everything:.3f}", "half of the prompts": f"±{np.median(fewer):.3f} ({np.median(fewer) / everything:.2f}×)",
                    "half of each answer": f"±{shorter:.3f} ({shorter / everything:.2f}×)"}
pd.DataFrame(lines).T

# %% [markdown]
# Half of the prompts costs a factor of √2 = 1.41, and a little more where few are left. If it were only for the luck of
# single tokens, half of each answer would cost as much. What it costs *less* is how much prompts differ among
# themselves: that no longer answer can make up for. (Where it costs more, beginnings of answers behave unlike the rest.
# Then do not cut them.)
#
# Prompts are the safer way to spend tokens. And the *same* prompt again buys nothing.

# %% [markdown]
# **Exercise 12.2** · easy · 6 minutes. A pilot with `pilot` prompts gave an interval of ± `half_width`. How many
# prompts, all in all, does ± `wished` take? The smallest whole number that suffices.

# %% tags=["exercise"]
def prompts_needed(pilot, half_width, wished):
    # solution
    return int(np.ceil(pilot * (half_width / wished) ** 2))
    # end


check(prompts_needed)

# %% [markdown] tags=["hints"]
# - The half-width goes with 1/√n. To make it three times as small, n must be … times as large.
# - Round up: part of a prompt does not suffice.

# %% [markdown]
# A plan is only as good as its pilot. Here are 400 pilots of 8 prompts, and the plan that each would make for ± 0.05.

# %%
WISHED = 0.05
for route, (plain, seconds) in at_one.items():
    drawn = random.integers(len(plain), size=(400, 8))
    _, half = intervals(plain[drawn], seconds[drawn, best[route]])
    plans = np.ceil(8 * (half / WISHED) ** 2)
    low, median, high = (int(np.ceil(share)) for share in np.quantile(plans, (0.1, 0.5, 0.9)))
    drawn = random.integers(len(plain), size=(400, max(median, 2)))
    _, got = intervals(plain[drawn], seconds[drawn, best[route]])
    print(f"{route:5} middle plan {median} prompts (one pilot in ten says {low} or fewer, one in ten {high} or more); with {max(median, 2)}: "
          f"±{np.median(got):.3f}")

# %% [markdown]
# Two pilots of the same traffic can differ by a factor of several. So plan, measure, look at the interval you got, and plan
# once more. (The plans are a little too large, for the t-interval of 8 prompts pays extra.)
#
# Which width should you wish for? **Half the distance from 1 is plenty.** A route at 1.60 is safe with ± 0.3. A route at
# 1.04 needs ± 0.02, which may take more prompts than it is worth.

# %% [markdown]
# ## Measure
#
# Now your prompts, or ours. The target answers, the draft reads the answers.

# %% tags=["nbval-ignore-output"]
pair = load_pair(os.environ.get("COURSE_PAIR", "smol"))
file = Path(PROMPTS) if PROMPTS else None
there = Counter(prompt.route for prompt in choose_prompts(file, None, None, say=print))
prompts = choose_prompts(file, None, PER_ROUTE, say=lambda text: None)
mine = measure_trace(pair, prompts, SAMPLING, NEW_TOKENS, seed=0, command="notebook 12")
banner("live", pair=pair.name, prompts=f"{len(prompts)} from {'your file' if PROMPTS else 'the held-out ones'}", temperature=SAMPLING.temperature,
       tokens=len(mine.rows), machine=mine.meta["machine"])
for route, n in Counter(prompt.route for prompt in prompts).items():
    print(f"{route}: {n} of {there[route]} prompts" + (f" (PER_ROUTE = {PER_ROUTE})" if n < there[route] else ""))

# %% [markdown]
# One thing only shows when a tokenizer looks: a prompt can be too long. It is refused by name. Cutting it, from its
# beginning, is your choice (`cut=True`, `--cut`), since a prompt without its beginning is another prompt.

# %% tags=["nbval-ignore-output"]
long = Prompt("prompts.jsonl:17", "mine", "own", [{"role": "user", "content": "again and " * 20_000}])
try:
    encode_prompts(pair, [long], NEW_TOKENS, cut=False)
except ValueError as error:
    print(error)

# %% [markdown]
# What the measurement found: tokens per round at two k, and how many prompts the speedup at load 1 would need for ± 0.05.

# %% tags=["nbval-ignore-output"]
lines = {}
my_times = times_of(texts_of([mine]), 1)
for route, (plain, seconds) in my_times.items():
    answers = mine.accepts(route)
    lengths = [len(answer) for answer in answers]
    line = {"prompts": len(plain), "tokens": sum(lengths)}
    for k in (1, 4):
        line[f"tokens per round, k = {k}"] = f"{ratio_interval(lengths, replay_rounds(answers, [k])[:, 0]):.2f}"
    k = int((plain.sum() / seconds.sum(axis=0)).argmax())
    found = ratio_interval(plain, seconds[:, k])
    line[f"prompts for ± {WISHED}"] = int(np.ceil(len(plain) * (found.half_width / WISHED) ** 2)) if len(plain) > 1 else "?"
    lines[route] = line
pd.DataFrame(lines).T

# %% [markdown]
# The last column is a rough plan. From so few prompts it can be off by a factor of several, either way (above).
#
# ## Costs
#
# The other half. A round with k drafts must emit as many tokens as it costs in target steps: its break-even (notebook
# 03). Costs depend on the pair, the machine, the engine and the load, not on your prompts. So they come from a
# recording here. (At a temperature above that of the recording a round costs a little more, for the sampling.) For your
# own machine or pair, measure them with `python -m course_lib costs --out my-costs.json` and load that file above, where
# `costs` is loaded. Costs of another pair are refused.

# %%
banner("recorded", what="round costs", temperature=costs.meta.get("temperature", "?"), **{name: costs.meta[name] for name in PROVENANCE})
must = pd.DataFrame({f"load {load}": {k: costs.at(load).break_even_tokens(k) for k in KS} for load in LOADS}).rename_axis("k")
must.round(2)

# %%
cheapest = {load: int(must[f"load {load}"].idxmin()) for load in LOADS}
print("; ".join(f"load {load}: with k = {k} a round must emit {must.loc[k, f'load {load}']:.2f} tokens" for load, k in cheapest.items()))
print(f"with k = 8: {'; '.join(f'{must.loc[8, column]:.2f} at {column}' for column in must)}. The most it can emit is 9.")

# %% [markdown]
# ## Decide
#
# `decide` puts the two together for each route and load. The rule: take the k that predicts the most. Speculate if the
# **lower end** of its interval is above 1. Else leave it off, and say why. First from your few prompts.

# %% tags=["nbval-ignore-output"]
document = decide(mine, costs, KS, LOADS) | {"fidelity": {"traces": "live", "costs": "recorded"}}
banner("live", pair=pair.name, prompts=len(prompts), costs="recorded")
for route, found in document["routes"].items():
    print("-", report.decision(route, found))

# %% [markdown]
# (Where several loads are off together, the reason given is that of the lowest.) And from the recording, which has more
# prompts and longer answers:

# %%
banner("recorded", pair=trace.meta["pair"], answers=len(trace.accepts()), **{name: trace.meta[name] for name in PROVENANCE})
larger = decide(trace, costs, KS, LOADS)
for route, found in larger["routes"].items():
    print("-", report.decision(route, found))

# %% tags=["nbval-ignore-output"]
lines = []
for name, each in (("live", document), ("recorded", larger)):
    for route, found in each["routes"].items():
        for load, one in found["loads"].items():
            low, high = one["speedup_interval"]
            why = "one prompt" if low is None else "slower" if high < 1 else "not shown"
            lines.append({"route": route, "load": int(load), "from": name, "prompts": found["prompts"],
                          "speedup": f"{one['speedup']:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None else ""), "decision": f"k = {one['best_k']}" if one["best_k"] else "off",
                          "why off": "" if one["best_k"] else why})
pd.DataFrame(lines).sort_values(["route", "load"], kind="stable").set_index(["route", "load"])

# %% [markdown]
# Look at the last column. "Off" has three reasons. **Slower**: the whole interval lies below 1. More prompts will not
# help; a better draft or a lower load would. **Not shown**: the interval holds 1. More prompts would tell. **One
# prompt**: there is no interval at all.

# %% [markdown]
# **Exercise 12.3** · medium · 8 minutes. Write the rule. `rows` is the table of one route at one load, a dictionary for
# each k, in no order:
#
# ```
# {"k": 2, "tokens_per_round": 1.8, "predicted": 1.3, "predicted_low": 1.1, "predicted_high": 1.5}
# ```
#
# With one prompt the two ends are `None`. Return the k to use, 0 for off.

# %% tags=["exercise"]
def choose(rows):
    # solution
    row = max(rows, key=lambda row: row["predicted"])
    low = row["predicted_low"]
    return row["k"] if low is not None and low > 1 else 0
    # end


check(choose)

# %% [markdown] tags=["hints"]
# - Two steps. Which k predicts the most? And: is it safe to switch on?
# - `None > 1` is an error in Python. One prompt is no proof: off.

# %% [markdown]
# ## Why the lower end?
#
# Notebook 07 drew samples from a case where the draft brings exactly nothing at one k. Here is the whole story: the
# best of six k is chosen, as it really is, and the truth runs from a loss to a gain.
#
# The recorded prompts of a route are the traffic. The cost of a round is scaled so that the *true* speedup of the best
# k is what we want. Then many engineers measure n prompts each, and decide by one of two rules: **the mean** is above
# 1, or **the lower end** is.

# %%
def engineers(route, true_best, n, copies=1, times=4_000, seed=0):
    """Many samples of n prompts: which k predicts the most, its mean, its lower end, and its true speedup.

    copies: each prompt stands in the file so many times, and the interval believes that these are different prompts.
    """
    plain, seconds = at_one[route]
    seconds = seconds * truth[route].max() / true_best  # dearer or cheaper rounds
    drawn = np.random.default_rng(seed).integers(len(plain), size=(times, n))
    drawn = np.tile(drawn, copies)
    mean, half = intervals(plain[drawn][:, None, :], seconds[drawn].transpose(0, 2, 1))  # [times, ks]
    k = mean.argmax(axis=1)
    pick = np.arange(times), k
    return mean[pick], (mean - half)[pick], (plain.sum() / seconds.sum(axis=0))[k]


banner("simulated", traffic="the recorded prompts", costs="scaled to a known truth", engineers=4_000)
nothing = {}
for route in at_one:
    mean, low, _ = engineers(route, 1.0, 12)
    _, more, _ = engineers(route, 1.0, 48)
    _, pasted, _ = engineers(route, 1.0, 12, copies=8)
    nothing[route] = {"mean, 12": (mean > 1).mean(), "lower end, 12": (low > 1).mean(), "lower end, 48": (more > 1).mean(),
                      "lower end, 12 pasted 8 times": (pasted > 1).mean(), "mean, 12, promises": mean[mean > 1].mean()}
nothing = pd.DataFrame(nothing).T
shares = list(nothing.columns[:4])
pd.concat([nothing[shares].map("{:.1%}".format), nothing["mean, 12, promises"].map("{:.2f}×".format)], axis=1)

# %% [markdown]
# **Claim.** A draft that never helps, whose best k is worth exactly 1.00, comes out "off" in about 97.5 % of the
# samples or more, if the lower end decides.
#
# The table has the shares of engineers who switch it *on*. Hold the two columns of the lower end against the claim:

# %%
for route, line in nothing.iterrows():
    for n in (12, 48):
        off = 1 - line[f"lower end, {n}"]
        error = 1.96 * np.sqrt(off * (1 - off) / 4_000)
        print(f"{route:5} {n} prompts: off in {off:.1%} of the samples (± {error:.1%}): " + (
            "as claimed" if off >= 0.975 - error else f"{0.975 - off:.1%} short: few prompts are not bell-shaped, and the best of six k was picked"))

# %% [markdown]
# Where a route falls short, it is by about one sample in a hundred or fewer, still so with 48 prompts. Elsewhere the
# claim holds.
#
# **It could have failed.** In the other columns it does, by far. By the mean, a draft that brings nothing is switched on about
# as often as a coin shows heads. (More often, if several k come close: the best of six is picked *because* it looks
# good.) And those who switch it on promise their users the last column.
#
# Pasting the same prompts eight times gives a narrow interval that believes in 96 prompts. It knows 12. That is why
# repeated prompts are left out.
#
# One more control, with the tool itself: a draft of which the target keeps nothing at all.

# %%
useless = Trace(trace.rows.assign(accept=0.0), trace.meta)
for route, found in decide(useless, costs, KS, LOADS)["routes"].items():
    print("-", report.decision(route, found))

# %% [markdown]
# ### What each rule costs
#
# Caution is not free either: a draft that does help may stay off. So let the truth vary, by as much as the half-width
# of 12 prompts and more. The *loss* is the speed given up against the best one could do, which is the best k if it is
# above 1, else plain decoding.

# %%
plain_route = min(at_one, key=lambda route: abs(truth[route].max() - 1))  # the route where the question is open
mean, low, _ = engineers(plain_route, 1.0, 12)
width = float(np.median(mean - low))  # what 12 prompts cannot tell apart
true_values = 1 + width * np.linspace(-1.5, 3, 19)
rules = {"the mean, 12 prompts": ("mean", 12), "lower end, 12 prompts": ("low", 12), "lower end, 48 prompts": ("low", 48)}
on, loss = ({name: [] for name in rules} for _ in range(2))
for value in true_values:
    for name, (rule, n) in rules.items():
        mean, low, real = engineers(plain_route, value, n, times=2_000)
        decided = (mean if rule == "mean" else low) > 1
        on[name].append(100 * decided.mean())
        loss[name].append(100 * (1 - np.where(decided, real, 1.0) / max(value, 1.0)).mean())

figure, panels = plt.subplots(1, 2, figsize=(10, 4.8))
for axes, values, label in zip(panels, (on, loss), ("switched on, %", "speed lost on average, %"), strict=True):
    for name in rules:
        axes.plot(true_values, values[name], label=name)
    axes.axvline(1, color="black", linewidth=1, linestyle="-", marker="")
    axes.set(xlabel="true speedup of the best k", ylabel=label)
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
at = (2, 6, 10, 14)  # 1 width below 1, at 1, and 1 and 2 widths above
show(figure, f"Two panels over the true speedup from {true_values[0]:.2f} to {true_values[-1]:.2f}, prompts of the route {plain_route}. " + " ".join(
    f"{name}: switched on in " + ", ".join(f"{on[name][i]:.0f} % at {true_values[i]:.2f}" for i in at) + "; speed lost "
    + ", ".join(f"{loss[name][i]:.1f} % at {true_values[i]:.2f}" for i in at) + "." for name in rules))

# %%
worst = {name: int(np.argmax(values)) for name, values in loss.items()}
for name, i in worst.items():
    print(f"{name:22} worst where the truth is {true_values[i]:.2f}: {loss[name][i]:.1f} % of the speed lost, switched on in {on[name][i]:.0f} % of the cases")
bought = max(np.subtract(loss["lower end, 12 prompts"], loss["lower end, 48 prompts"]))
print(f"the half-width of 12 prompts is about {width:.3f}; 36 prompts more save the careful up to {bought:.1f} % of the speed")

# %% [markdown]
# Left of 1 the mean loses and the lower end hardly does. Right of 1 it is the other way round, and there the loss of the
# careful can be the larger one. **So the two rules ask who must prove something.** A draft is one more model to load,
# feed, update and debug, and none of that is in the speedup. So the draft should prove its worth.
#
# What makes the careful rule cheap is not courage but prompts: compare the two lines of the lower end. (A loss that stays
# at the far right is neither rule's: a k near the best was picked.)

# %% [markdown]
# ## The report
#
# All of it in one page: decisions first, then tables, settings, and how far to trust them. This is the Markdown, from
# the live measurement above.

# %% tags=["nbval-ignore-output"]
if OUT:
    print("written:", *report.write(document, OUT).values())
Markdown(report.render(document)["markdown"])

# %% [markdown]
# The same from a terminal, in one command, figures included:
#
# ```
# python -m course_lib report --prompts FILE --out FOLDER
# ```
#
# It measures acceptance and, at load 1, the costs. `--costs my-costs.json` brings other loads; `--check` decodes at
# every k and lays the clock beside the prediction (notebook 08). Read it in this order:
#
# 1. **The decision of each route.** Off? Then why? Look at the interval: all below 1 is slower, around 1 is not shown.
# 2. **The one k.** An engine has one setting for all its traffic. A route that loses much by it is worth an engine of
#    its own. The mix has more prompts than any of its routes: it may be on although no route shows its gain by itself.
# 3. **How far to trust this.** Other machine, other engine, other context length: other costs.

# %% [markdown]
# ## Settings to paste
#
# With a file of your own, this and all that follows is about your prompts. Without one it is about the recording, which
# has more prompts than the live measurement.

# %%
chosen, texts_read = larger, trace

# %% tags=["nbval-skip"]
if PROMPTS:
    chosen, texts_read = document, mine

# %% [markdown]
# For one engine. Change the name for another: `sglang`, `tensorrt_llm`, `llama_cpp`.

# %%
ENGINE = "vllm"
print(f"settings for {'your file' if PROMPTS else 'the recorded prompts of the course'}")
print(report.settings(chosen)[ENGINE])

# %% [markdown]
# The k of each range of loads is the one that decodes the whole mix fastest, and 0 where the interval's lower end is
# not above 1. Costs measured with our decoder are not the costs of that engine. The acceptance carries over; **check k
# there**, with the engine's own counters (notebook 10).

# %% [markdown]
# ## When to measure again
#
# A decision is right for the traffic it was made for. Afterwards nobody looks at it, unless something rings.
#
# What to watch is the **mean acceptance length**: tokens per round, the target's own included. Every engine prints it
# or its parts, 1 + accepted ÷ rounds. And what to compare it with is the break-even. Below it the engine is slower than
# without a draft.

# %%
places = [(one["best_k"] > 0, one["speedup"], route, int(load), max(one["table"], key=lambda row: row["predicted"])["k"])
          for route, found in chosen["routes"].items() for load, one in found["loads"].items()]
on, speedup, watched, load, k = max(places)  # what is on comes before what is off
threshold = costs.at(load).break_even_tokens(k)
answers = texts_read.accepts(watched)
tokens = np.array([len(answer) for answer in answers])
rounds = replay_rounds(answers, [k])[:, 0]
usual = tokens.sum() / rounds.sum()
print(f"best case {'of those that are on' if on else '(none is on)'}: {watched} at load {load} with k = {k}, predicted {speedup:.2f}×")
if len(answers) < 8:
    print(f"that route has {len(answers)} requests: too few to say how a window of them wobbles; below is a sketch")
print(f"usual length {usual:.2f}, break-even {threshold:.2f}: " + (f"the length may fall by {1 - threshold / usual:.0%} before it stops paying"
      if usual > threshold else "it should not be on at all"))

# %% [markdown]
# **Exercise 12.4** · medium · 8 minutes. Write the alarm. `before` and `now` are the engine's counters at two times,
# each a pair (rounds, accepted drafts), counted since the engine started. `cost` is the round's cost in target steps.
# Return True if the rounds *in between* did not pay. (There always are some.)

# %% tags=["exercise"]
def alarm(before, now, cost):
    # solution
    rounds, accepted = now[0] - before[0], now[1] - before[1]
    return 1 + accepted / rounds < cost
    # end


check(alarm)

# %% [markdown] tags=["hints"]
# - Counters only grow. What happened in between is a difference.
# - Every round emits its accepted drafts and one more token.

# %% [markdown]
# Over how long a time? In a short one the length wobbles: a few hard requests, and it rings for nothing. We try it.
# 2,000 windows of n requests of this route, as measured, count the false alarms. Then the draft gets worse. Every
# chance a_t is multiplied by the same factor, until the engine is 3 % slower than without a draft. Now it *should*
# ring.

# %%
banner("simulated", traffic=f"windows of measured requests, {watched}", windows=2_000, seed=3)
factors = np.linspace(0, 1, 21)
after = [tokens.sum() / replay_rounds([factor * answer for answer in answers], [k]).sum() for factor in factors]
factor = float(np.interp(max(0.97 * threshold, (1 + threshold) / 2), after, factors))
random = np.random.default_rng(3)
# At temperature 0 a chance is 0 or 1. To lower it, take each 1 away now and then, with 20 throws of the coins for each answer.
worse = replay_rounds([answer * (random.random(len(answer)) < factor) for answer in answers for _ in range(20)], [k])[:, 0]
slower = 20 * tokens.sum() / worse.sum()
print(f"the worse draft keeps {factor:.0%} of its chances: length {slower:.2f}, {slower / threshold:.2f}× as fast as without a draft")

WINDOWS = (1, 2, 5, 10, 20, 50, 100, 200)
rings = {"nothing changed": [], "draft worse": []}
for n in WINDOWS:
    for name, needed in (("nothing changed", rounds), ("draft worse", worse)):
        written_tokens = np.repeat(tokens, len(needed) // len(tokens))
        drawn = random.integers(len(needed), size=(2_000, n))
        rings[name].append(100 * (written_tokens[drawn].sum(axis=1) / needed[drawn].sum(axis=1) < threshold).mean())

figure, axes = plt.subplots(figsize=(7, 4.4))
for name, share in rings.items():
    axes.plot(WINDOWS, share, label=name)
axes.set(xscale="log", xlabel="requests in a window", ylabel="windows that ring, %", ylim=(-4, 104))
axes.set_xticks(WINDOWS, [str(n) for n in WINDOWS])
axes.minorticks_off()
axes.legend()
show(figure, f"Share of windows that ring against the requests in a window, {watched}, k = {k}, break-even {threshold:.2f}. Nothing changed (length {usual:.2f}): "
     + ", ".join(f"{s:.1f} % at {n}" for n, s in zip(WINDOWS, rings["nothing changed"], strict=True)) + f". Draft worse, its chances times {factor:.2f} (length "
     f"{slower:.2f}): " + ", ".join(f"{s:.1f} % at {n}" for n, s in zip(WINDOWS, rings["draft worse"], strict=True)) + ".")
quiet = [n for n, false, real in zip(WINDOWS, rings["nothing changed"], rings["draft worse"], strict=True) if false < 1 and real > 99]
print(f"smallest window that rings falsely in under 1 % and rightly in over 99 %: {f'{quiet[0]} requests' if quiet else 'none of these'}")

# %% [markdown]
# The farther the usual length lies above break-even, the shorter the window may be. Where the two lie close together no
# window helps, and the route was hardly worth switching on.
#
# This alarm is about money, and about nothing else. The first line under the banner says how much of its chances the
# draft has to lose before it rings. A draft that lost less is worse, still pays, and goes unnoticed. For that set the
# second alarm of notebook 10 as well: fewer tokens per round than predicted.

# %% [markdown]
# ### The mix moves
#
# The counter can fall though nothing got worse: the traffic can move to a harder route. What does one counter show for
# a mix?

# %% [markdown]
# **Exercise 12.5** · easy · 6 minutes. `tokens` are the tokens of each route in an hour, `lengths` the mean
# acceptance length of each. Return the one that the engine shows for all of it.

# %% tags=["exercise"]
def shown(tokens, lengths):
    # solution
    rounds = sum(n / length for n, length in zip(tokens, lengths, strict=True))
    return sum(tokens) / rounds
    # end


check(shown)

# %% [markdown] tags=["hints"]
# - Tokens per round: all tokens divided by all rounds.
# - A route that emits `length` tokens a round needs n / `length` rounds for n tokens.

# %% [markdown]
# Now mix the easiest and the hardest route, in every proportion. The engine has one k for all of it, say k = 3:

# %%
k = 3
several = texts_read if len(chosen["routes"]) > 1 else trace  # a file of one route cannot be mixed
own = {route: sum(map(len, several.accepts(route))) / replay_rounds(several.accepts(route), [k]).sum() for route in several.rows.route.unique()}
high, low = max(own, key=own.get), min(own, key=own.get)
share = np.linspace(0, 1, 101)  # tokens of the harder route
counter = 1 / (share / own[low] + (1 - share) / own[high])
limits = {each: costs.at(each).break_even_tokens(k) for each in LOADS}

figure, axes = plt.subplots(figsize=(7.5, 4.6))
axes.plot(100 * share, counter, marker="", label="the counter")
top = 1.15 * max(counter.max(), limits[LOADS[0]])
notes = []
for each, style_of_line in zip(LOADS, ("--", "-.", ":"), strict=False):
    crossing = share[counter < limits[each]]
    notes.append(f"load {each}, break-even {limits[each]:.2f}: " + ("never below" if not len(crossing) else "below at any mix" if crossing[0] == 0 else
                 f"below from {100 * crossing[0]:.0f} % {low} on"))
    if limits[each] < top:
        axes.axhline(limits[each], color="black", linewidth=1.4, linestyle=style_of_line, marker="", label=f"break-even, load {each}")
axes.set(xlabel=f"share of {low} in the tokens, % (the rest: {high})", ylabel=f"tokens per round, k = {k}", ylim=(1, top))
axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
show(figure, f"Mean acceptance length of a mix of {high} ({own[high]:.2f}) and {low} ({own[low]:.2f}) with k = {k} against the share of {low}: {counter[0]:.2f} without it, "
     f"{counter[50]:.2f} at half, {counter[-1]:.2f} at all. {'; '.join(notes)}.")
print("\n".join(notes))

# %% [markdown]
# No draft changed along this line, and yet it may cross a break-even. So when the alarm rings, first ask *which route*: one counter a route, or at least the
# share of each. Put the new shares and the *old* lengths into `shown`. If that gives what the counter shows, the mix
# has moved and no route got worse: set one k for the new mix. If it does not, measure the routes again.
#
# Measure again when …
#
# - the alarm rings, or the mix has moved;
# - target, draft, engine or device change, and with them the costs or p and q;
# - temperature, top-p or the system prompt change: these *are* other p and q (notebook 07);
# - the load or the length of contexts leaves what was measured (notebook 09);
# - three months have passed. People ask new things.

# %% [markdown]
# ## Quiz

# %%
quiz("12.a")

# %%
quiz("12.b")

# %%
quiz("12.c")

# %%
quiz("12.d")

# %%
quiz("12.e")

# %% [markdown]
# ## Recap
#
# - Prompts in: each known by its line; bad ones are named, repeated ones left out and named, too.
# - The half-width falls like 1/√n over *prompts*. Pilot, plan, measure, look again.
# - Per route and load: the k that predicts the most, and on only if the lower end is above 1. "Off" means slower, or not
#   shown.
# - Deciding by the mean switches useless drafts on about half of the time, and promises a gain that is not there. The
#   careful rule costs prompts.
# - Afterwards watch the mean acceptance length against the break-even, one line a route, over windows long enough not
#   to cry wolf.
#
# **Next.** This was the last notebook. Tomorrow: take fifty real prompts of each route, measure the costs on the machine
# that serves, and run `report` (above). Where it says "speculate", let `engine check` and `engine sweep` confirm it on
# your engine (notebook 10). Then set the alarm.
