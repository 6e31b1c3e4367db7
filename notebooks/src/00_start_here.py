# %% [markdown]
# # 00 · Start here
#
# - **You will do:** check your machine, meet two language models, and watch one guess what the other
#   is about to write.
# - **You will learn:** what a round is, which guesses survive it, and why the text stays the same
#   whoever guesses.
# - **You need:** a working installation. No GPU.
# - **Minutes:** 15

# %% [markdown]
# ## The question
#
# A large language model writes one token at a time. For each token it must read all of its weights, and
# most of the time goes into reading them.
#
# *Speculative decoding* uses that. A small model, the **draft**, guesses the next k tokens. The large
# model, the **target**, reads all k guesses in one step, and for one step it reads its weights once. It
# keeps the guesses up to the first one it would not have written, and adds one token of its own. That is
# one **round**.
#
# Such a wide step costs more than a step over one token, and less than k + 1 of them. How much more depends on the
# machine: on a GPU hardly at all, on a laptop noticeably. Notebook 03 puts that into the bill.
#
# Many guesses can save many steps. Most of them can also be thrown away. So:
#
# **How many tokens should the draft propose?**
#
# This course answers that by measuring. In this notebook you see a round with your own eyes.

# %% [markdown]
# ## Is this machine ready?
#
# Each line says what was found. If something must be fixed, the last column says how.

# %% tags=["nbval-ignore-output"]
import pandas as pd
from IPython.display import display

from course_lib.doctor import examine, usable

found = examine()
pd.set_option("display.max_colwidth", None)
display(pd.DataFrame(found).set_index("check"))
print("Ready." if usable(found) else "Not ready: do what the last column says, then run this cell again.")

# %% [markdown]
# ## Meet the pair
#
# Without a GPU the course uses a pair that fits any laptop. The target is SmolLM2-135M-Instruct, a small but
# real chat model of the Llama architecture. The draft was made for this course: four of the target's
# thirty layers, trained to say what the target says. To use another pair, set the environment variable
# `COURSE_PAIR` (for example to `h100`) before you start Jupyter.

# %%
import os
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from course_lib.course import notebook
from course_lib.course.rounds import count_rounds, show_rounds, show_text
from course_lib.course.same_text import compare_texts
from course_lib.pairs import load_pair, with_untrained_draft
from course_lib.plots import banner, show, style
from course_lib.prompts import load_prompts
from course_lib.roofline import Model
from course_lib.speculate import decode, decode_plain

check, quiz = notebook("00")
style()

# %% tags=["nbval-ignore-output"]
pair = load_pair(os.environ.get("COURSE_PAIR", "smol"))
banner("live", pair=pair.name, device=pair.device, dtype=str(pair.dtype).removeprefix("torch."), torch=torch.__version__)

# %% tags=["nbval-ignore-output"]
def shape(model):
    return Model.from_config(model.config.to_dict())


def size(model):
    return shape(model).parameters / 1e6


def in_layers(model):
    words = shape(model).vocab * shape(model).hidden * (1 if shape(model).tied else 2)
    return (shape(model).parameters - words) / 1e6


pd.DataFrame([
    {"layers": len(model.model.layers), "width": model.config.hidden_size,
     "vocabulary": model.config.vocab_size, "million parameters": round(size(model), 1),
     "of these in layers": round(in_layers(model), 1)}
    for model in (pair.target, pair.draft)
], index=["target", "draft"])

# %% [markdown]
# Two things to see here.
#
# - **The vocabulary is shared.** The target checks guesses token by token, so both models must cut text
#   into the same tokens. Loading a pair compares the two vocabularies and refuses a pair that differs.
# - **The draft has fewer layers.** Layers are what takes time: each token passes through all of them, one
#   after the other. The rest is the table of words. Every model needs that, and in small models it is
#   large.

# %% tags=["nbval-ignore-output"]
print(f"The draft has {size(pair.draft) / size(pair.target):.0%} of the target's parameters, "
      f"{in_layers(pair.draft) / in_layers(pair.target):.0%} of those in layers.")

# %% [markdown]
# ## One answer, twice
#
# **Claim.** Speculative decoding does not change what the target says.
#
# We ask a question and let the target answer it alone, one token a step. Then the pair answers the same
# question in rounds of k = 4 guesses. Both are *greedy*: always the likeliest token, no chance involved.

# %% tags=["nbval-ignore-output"]
chosen = {"chat": "chat-h001", "code": "code-h003", "json": "json-h008"}
prompts = {prompt.route: prompt for prompt in load_prompts() if prompt.id in chosen.values()}
ids = {route: pair.encode(prompts[route].messages) for route in chosen}
print(prompts["chat"].messages[-1]["content"], "\n")

alone = decode_plain(pair, [ids["chat"]], max_new_tokens=48)
answer = decode(pair, [ids["chat"]], k=4, max_new_tokens=48)
print(pair.tokenizer.decode(answer.tokens[0]), "\n")
print("target alone and pair:", compare_texts(pair, ids["chat"], alone.tokens[0], answer.tokens[0]))

# %% [markdown]
# The last line compares the two texts token by token. It says that they are the same, or where two
# tokens were so close that rounding decided between them. Such a *near-tie* is the only difference
# allowed: reading five tokens at once adds up the same numbers in another order than reading them one by one.

# %% [markdown]
# ## One round in colour
#
# Here are the first rounds of that answer. Each box is one token, with a mark that says what became of it.

# %% tags=["nbval-ignore-output"]
show_rounds(pair.tokenizer, answer, limit=8)

# %% [markdown]
# Read a line from left to right:
#
# - **✓ kept.** The target would have written this token too.
# - **✗ rejected.** The first guess that the target would not have written.
# - **– thrown away.** Guesses behind a rejected one. They continue a text that does not exist, so it
#   does not matter how good they are.
# - **＋ the target's own.** What it writes in place of the rejected guess.
# - **★ bonus token.** If all guesses are kept, the target has already read the last one and knows what comes
#   next. It writes that too.
#
# So every round, however bad the guesses, adds at least one token.

# %% [markdown]
# **Exercise 0.1** · easy · 1 minute. A round drafts k tokens. What are the fewest and the most
# tokens it can add to the text? Return the two numbers.

# %% tags=["exercise"]
def least_and_most(k):
    # solution
    return 1, k + 1
    # end

check(least_and_most)

# %% [markdown] tags=["hints"]
# - Fewest: the very first guess is rejected. What does the target write then?
# - Most: all k guesses are kept. Which mark stands at the end of such a round?

# %% [markdown]
# **Exercise 0.2** · easy · 2 minutes. Here is, for each guess of a round, whether the target would have
# written it: `[True, False, True, True]`. How many tokens does the round add to the text? Write it for any
# such list.

# %% tags=["exercise"]
def emitted(flags):
    # solution
    kept = 0
    for flag in flags:
        if not flag:
            break
        kept += 1
    return kept + 1
    # end

check(emitted)

# %% [markdown] tags=["hints"]
# - The third and fourth guess stand behind a token that is not in the text.
# - Kept guesses, and one more: who writes it?

# %% [markdown]
# **Exercise 0.3** · easy · 2 minutes. Predict a round with k = 5: the draft proposes `drafts`, the third
# is rejected, and the target writes `own` instead. Which tokens does the text get? Return them as a list, for
# any `flags`; the target's token `own` is given in either case, as replacement or as bonus.

# %% tags=["exercise"]
def written(drafts, flags, own):
    # solution
    kept = flags.index(False) if False in flags else len(drafts)
    return drafts[:kept] + [own]
    # end

check(written)

# %% [markdown] tags=["hints"]
# - Find the place of the first `False`; if there is none, all drafts are kept.
# - The target's token goes where the first rejected draft stood, and nothing comes after it.

# %% [markdown]
# ## Three kinds of text
#
# Now three requests at once: a plan in words, a piece of code, an invoice as JSON. The course calls such kinds
# of traffic *routes*.

# %% tags=["nbval-ignore-output"]
k = 4
batch = [ids[route] for route in chosen]
plain = decode_plain(pair, batch, max_new_tokens=64)
decoded = decode(pair, batch, k=k, max_new_tokens=64)

for row, route in enumerate(chosen):
    print(f"\n{route}: {compare_texts(pair, batch[row], plain.tokens[row], decoded.tokens[row])}")
    show_text(pair.tokenizer, decoded, row)

# %% [markdown]
# This is each answer as a reader sees it. Underlined tokens were guessed by the draft. Bold ones the target
# wrote itself. A bar starts a new round. Long underlined stretches are where guessing pays.

# %% tags=["nbval-ignore-output"]
count_rounds(decoded, labels=chosen)

# %% [markdown]
# - **kept share** = kept ÷ drafted. It says how much of the draft's work was used.
# - **tokens per round** = tokens ÷ rounds. Each round is one step of the target, which alone would need
#   one step for each token. So it says how many steps one step has become.
#
# Tokens are the kept ones and one of the target's own a round. (One less, where a text ends with a kept draft: nothing
# comes after its end.)
#
# The two are not the same thing, and neither is a speedup yet: the draft's own work is not in them, nor what it
# costs the target to read five tokens in place of one.

# %% tags=["nbval-ignore-output"]
figure, panels = plt.subplots(3, 1, figsize=(7.5, 5.2), sharex=True, sharey=True)
for row, (route, axes) in enumerate(zip(chosen, panels, strict=True)):
    rounds = decoded.rounds[decoded.rounds.row == row]
    axes.bar(rounds["round"] + 1, rounds.drafted, color="white", edgecolor="#888888", label="drafted")
    axes.bar(rounds["round"] + 1, rounds.accepted, color="#0072B2", label="kept")
    axes.set_title(f"{route}: kept {rounds.accepted.sum()} of {rounds.drafted.sum()}", loc="left")
    axes.set_yticks(range(0, k + 1, 2))
panels[1].set_ylabel("tokens")
panels[2].set_xlabel("round")
panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1.0), ncols=2)
counts = count_rounds(decoded, labels=chosen)
show(figure, f"Drafted and kept tokens of each round, k = {k}, one answer a route. " + "; ".join(
    f"{route}: {line['kept']} of {line['drafted']} drafted tokens kept in {line['rounds']} rounds"
    for route, line in counts.to_dict("index").items()) + f". Single rounds keep between {decoded.rounds.accepted.min()} and {decoded.rounds.accepted.max()}.")

# %% [markdown]
# Each bar is a round; its filled part was kept. (The answer is cut at 64 tokens. So the last rounds may draft less, or
# nothing at all, and then there is no bar.) Even within one answer the rounds differ, because some words are easy
# to guess and some are not. One answer a route proves nothing about the route. Notebook 04 measures it on
# many prompts and says how sure it is.

# %% [markdown]
# ## What if the draft is useless?
#
# **It could have failed.** Perhaps the text only stayed the same because the draft is good. So we take a
# draft that knows nothing: the same shape, with random weights. And, at the other end, the best
# guesser there is: the target itself.

# %% tags=["nbval-ignore-output"]
def timed(decoded, name):
    seconds = decoded.seconds - decoded.prefill_seconds  # without reading the question
    counts = count_rounds(decoded, labels=[name])
    return counts.assign(seconds=round(seconds, 2), **{"ms a round": 1000 * seconds / counts.rounds})


torch.manual_seed(0)
pairs = {"random weights": with_untrained_draft(pair), "the draft": pair,
         "the target itself": replace(pair, draft=pair.target)}
lines = [timed(alone, "nobody: target alone")]
for name, guessing in pairs.items():
    tried = decode(guessing, [ids["chat"]], k=k, max_new_tokens=48)
    print(f"{name}: {compare_texts(pair, ids['chat'], alone.tokens[0], tried.tokens[0])}")
    lines.append(timed(tried, name))
pd.concat(lines).round({"ms a round": 0}).astype(object).fillna("–")

# %% [markdown]
# Three guessers, one text. **Whether the text is right does not depend on the draft. What you gain does.**
# A useless draft costs time and saves next to nothing. The best possible one reaches about k + 1 = 5 tokens a round
# and still has nothing to gain: each of its guesses costs as much as a step of the target, and the wide step comes
# on top. (If your table says otherwise by a few percent, that is the clock.) A good draft is one that is right often *and* cheap.
#
# Compare the draft's seconds with those of the target alone: steps saved are not yet time saved, and at this k time
# may even be lost. The last column says why. For the target alone a round is one plain step. A round of the pair takes
# longer: it holds four steps of the draft, and the target's step is a wide one. Which k saves time is what the course
# works out.
#
# All this is one try on this machine, so do not trust it far. You can see how far: the random draft and the trained one
# do the same work in a round, so their last column should be the same. What differs is noise. The course measures time
# properly later.

# %% [markdown]
# **Exercise 0.4** · medium · 3 minutes. Four rounds at k = 4 kept 2, 0, 4 and 1 drafts. Return the kept
# share and the tokens per round, for any list `kept` and any k.

# %% tags=["exercise"]
def share_and_tokens(kept, k):
    # solution
    share = sum(kept) / (len(kept) * k)
    tokens = sum(kept) / len(kept) + 1
    return share, tokens
    # end

check(share_and_tokens)

# %% [markdown] tags=["hints"]
# - The share is about the draft's tokens alone: kept ÷ drafted. How many were drafted in all?
# - The tokens per round count everything that reached the text, also what the target wrote itself.

# %% [markdown]
# ## Quiz

# %%
quiz("0.a")

# %%
quiz("0.b")

# %%
quiz("0.c")

# %%
quiz("0.d")

# %% [markdown]
# ## Recap
#
# - A round: the draft proposes k tokens, the target reads them in one step, keeps those before the first
#   rejection and adds one of its own.
# - A round adds between 1 and k + 1 tokens.
# - The text is the target's, whatever the draft. A bad draft costs time, never quality.
# - The kept share and the tokens per round are two numbers. Neither is the speedup.
#
# ## The map
#
# | notebook | you can then |
# |---|---|
# | [01 · One round](01_one_round.ipynb) | build a round yourself and prove that it keeps the target's law |
# | [02 · The geometric formula](02_geometric_formula.ipynb) | predict tokens per round from α and k, and say when that is allowed |
# | [03 · Speedup and break-even](03_speedup_and_break_even.ipynb) | turn tokens into speedup, and say from which α on it pays |
# | [04 · Measuring acceptance](04_measuring_acceptance.ipynb) | measure acceptance on a real pair, with an interval |
# | [05 · One pass, every k](05_one_pass_every_k.ipynb) | get every k from one measurement, and check it against the decoder |
# | [06 · When i.i.d. lies](06_when_iid_lies.ipynb) | see where the formula misleads, and by how much |
# | [07 · Routes and temperature](07_routes_and_temperature.ipynb) | say what one global α hides, and switch a route off for a reason |
# | [08 · The k sweep](08_k_sweep.ipynb) | predict the speedup of each k, and check it by the clock |
# | [09 · Concurrency](09_concurrency.ipynb) | find the load at which a draft stops paying |
# | [10 · Production engines](10_production_engines.ipynb) | read an engine's counters, and catch one that is wrong |
# | [11 · Raising α](11_raising_alpha.ipynb) | train a draft, and say which draft a route deserves |
# | [12 · Your traffic](12_your_traffic.ipynb) | decide for your own prompts: this k, or off |
#
# In a hurry? 00, 02 and 04 give the vocabulary and the measurement; 03 and 05 give the choice of k; 12 decides
# for your own traffic.
