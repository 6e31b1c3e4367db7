# %% [markdown]
# # 01 · One round
#
# - **You will do:** write draft, verify, accept and resample yourself, first on four words, then on a toy
#   language, then on two real models.
# - **You will learn:** why the text follows the target's law exactly, whatever the draft; what breaks that;
#   and how a cache forgets rejected words.
# - **You need:** notebook 00, probabilities, a little Python. The last part takes a real pair.
# - **Minutes:** 70

# %% [markdown]
# Notebook 00 showed rounds of a real pair, always with the likeliest token. There the rule is simple:
# keep a guess if the target would have written it. But chat models usually *draw* their next token by chance.
# Then "would have written it" has no answer: the target might have.
#
# There is a rule for this case, and it is exact. Not nearly the target's law: the target's law. It was published
# twice, by Leviathan and others and by Chen and others (both 2023; see the end). You will build that rule here and
# prove it by counting every possible course of events, in fractions.

# %%
from collections import defaultdict
from fractions import Fraction as F
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from course_lib.course import notebook
from course_lib.plots import banner, show, style

check, quiz = notebook("01")
style()
banner("simulated", vocabulary="3 to 6 words", arithmetic="exact fractions", seeds="fixed, in each cell")

# %% [markdown]
# ## Two laws for the next word
#
# Somebody wrote "I look at the". The target would go on with one of four words, with the chances p. The
# draft has its own opinion, q. Such a list of chances is called a *law* here.

# %%
words = ["sea", "sky", "sun", "fog"]
p = [F(4, 10), F(3, 10), F(2, 10), F(1, 10)]
q = [F(5, 10), F(1, 10), F(1, 10), F(3, 10)]

pd.DataFrame({"p (target)": map(float, p), "q (draft)": map(float, q)}, index=words)

# %% [markdown]
# The draft likes "fog" three times too much, "sky" three times too little. We want to use its
# guesses and still end with p.
#
# **Step 1, draft.** Draw a word d from q.
#
# **Step 2, verify.** The target works out p at the same place. For k drafts it works out k + 1 laws, all in
# one step.
#
# ## Step 3: accept
#
# Keep the drafted word d with the chance min(1, p(d) / q(d)).
#
# - The draft proposes "fog" with chance 3/10 and it should appear with 1/10. So one time in three is right.
# - It proposes "sky" with 1/10 and it should appear with 3/10. Keep it always. It is still too rare; step 4
#   will repair that.

# %% [markdown]
# **Exercise 1.1** · easy · 4 minutes. Return a list: for each word, the chance that it is accepted once the draft
# has proposed it. `p` and `q` are lists, and no q is 0.

# %% tags=["exercise"]
def accept_chance(p, q):
    # solution
    return [min(1, pd / qd) for pd, qd in zip(p, q, strict=True)]
    # end

check(accept_chance)

# %% [markdown] tags=["hints"]
# - How much of what the draft proposes may stay? Divide what should appear by what is proposed.
# - A chance is never above 1. What does `min` do for "sky"?

# %% [markdown]
# ## How often is a draft accepted?
#
# Add it up over all words the draft may propose: Σ q(d) · min(1, p(d)/q(d)). Each term has a simpler form. Which?

# %% [markdown]
# **Exercise 1.2** · easy · 4 minutes. Write the chance that one draft is accepted, for any two laws.
# Either may hold zeros.

# %% tags=["exercise"]
def overlap(p, q):
    # solution
    return sum(min(pd, qd) for pd, qd in zip(p, q, strict=True))
    # end

check(overlap)

# %% [markdown] tags=["hints"]
# - What is q · min(1, p/q) when p < q? And when p > q?
# - Add up the smaller of the two chances, word by word.

# %%
accepted_one_by_one = sum(qd * min(1, pd / qd) for pd, qd in zip(p, q, strict=True))
shared = sum(min(pd, qd) for pd, qd in zip(p, q, strict=True))
distance = sum(abs(pd - qd) for pd, qd in zip(p, q, strict=True)) / 2

print(f"chance to be accepted   {accepted_one_by_one}")
print(f"Σ min(p, q)             {shared}")
print(f"1 − TV(p, q)            {1 - distance}")

# %% [markdown]
# Three ways to the same number, 7/10. The last is a well-known measure: the *total variation distance* TV says how
# far two laws lie apart, and the chance to accept is what is left of 1. Nothing else about the draft
# matters here: not its size, not how it was trained.

# %%
place = np.arange(4)
pf, qf, both = (np.array([float(x) for x in law]) for law in (p, q, map(min, p, q)))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
left.bar(place, both, width=0.8, color="#cccccc", label="accepted: min(p, q)")
left.bar(place - 0.2, pf, width=0.4, color="none", edgecolor="#0072B2", linewidth=2, label="p, target")
left.bar(place + 0.2, qf, width=0.4, color="none", edgecolor="#D55E00", linewidth=2, linestyle="--", label="q, draft")
right.bar(place, both, width=0.8, color="#cccccc", label="min(p, q)")
right.bar(place, pf - both, bottom=both, width=0.8, color="#0072B2", hatch="//", edgecolor="white", label="missing: p − min(p, q)")
left.set(title=f"accepted: {both.sum():.1f} of 1", ylabel="chance", ylim=(0, 0.72))
right.set(title=f"missing: {1 - both.sum():.1f} of 1")
for axes in (left, right):
    axes.set_xticks(place, words)
    axes.legend(loc="upper right", fontsize=11)
show(figure, "Left: the laws p and q of four words as bars and, filled, the smaller of each two: sea .4, sky .1, sun .1, "
     f"fog .1, {both.sum():.1f} in all; that is accepted. Right: what is missing to p: sky .2 and sun .1, "
     f"{1 - both.sum():.1f} in all, nothing for sea and fog.")

# %% [markdown]
# Left, the grey part is what acceptance delivers. Right, the hatched part is what is then missing to p.
# It is missing where the draft proposes too little, and it is as large as the chance of a rejection, 3/10.
#
# ## Step 4: resample
#
# So after a rejection the target draws from exactly the missing part: max(p − q, 0), scaled up to a law. It
# is called the *residual*.

# %% [markdown]
# **Exercise 1.3** · medium · 6 minutes. Write the residual, as a list. If p equals q nothing can be rejected, and the
# residual is never used; return p then.

# %% tags=["exercise"]
def residual(p, q):
    # solution
    missing = [max(pd - qd, 0) for pd, qd in zip(p, q, strict=True)]
    total = sum(missing)
    return [m / total for m in missing] if total else list(p)
    # end

check(residual)

# %% [markdown] tags=["hints"]
# - For each word: how much of p did acceptance not deliver? Never less than 0.
# - The chances of a law add up to 1. Divide by what they add up to now; mind p = q.

# %% [markdown]
# ## The proof, by counting everything
#
# **Claim.** A drafted word that went through accept and resample follows p exactly, whatever q is.
#
# Each way to a word has a chance. Add the chances of all ways that end in the same word, and you have the law
# of the emitted word. With fractions nothing is rounded, so we can ask for *equal*, not for *close*.

# %% [markdown]
# **Exercise 1.4** · medium · 8 minutes. Return the law of the emitted word, as a list, by going through every
# drafted word d: it is accepted, or it is rejected and any word x comes from the residual. Some q may be 0 here, and
# p may equal q. Use only `p` and `q`; helpers may be written inside.

# %% tags=["exercise"]
def emitted_law(p, q):
    # solution
    missing = [max(pd - qd, 0) for pd, qd in zip(p, q, strict=True)]
    total = sum(missing)
    law = [0] * len(p)
    for d in range(len(p)):
        if q[d] == 0:
            continue
        accepted = min(1, p[d] / q[d])
        law[d] += q[d] * accepted
        for x in range(len(p)):
            if total:
                law[x] += q[d] * (1 - accepted) * missing[x] / total
    return law
    # end

check(emitted_law)

# %% [markdown] tags=["hints"]
# - The way "draft d, accepted" has the chance q(d) · min(1, p(d)/q(d)) and ends in d.
# - The way "draft d, rejected, then x" has the chance q(d) · (1 − min(1, p(d)/q(d))) · residual(x) and ends in x.

# %% [markdown]
# Here is the course's version. It has two switches, so that we can break it on purpose: the law the draft was
# really drawn from, and the law used after a rejection.

# %%
def left_over(p, q):
    """The residual: max(p − q, 0) as a law; p itself when the two are equal."""
    missing = [max(pd - qd, 0) for pd, qd in zip(p, q, strict=True)]
    return [m / sum(missing) for m in missing] if any(missing) else p


def law_of_token(p, q, drawn_from=None, after_rejection=None):
    """Exact law of the emitted word. q: the law in the test; drawn_from: the law the draft was drawn from."""
    drawn_from = drawn_from or q
    after_rejection = after_rejection or left_over(p, q)
    law = [F(0)] * len(p)
    for d, chance in enumerate(drawn_from):
        if chance == 0:
            continue  # never drafted
        accepted = min(F(1), p[d] / q[d])
        law[d] += chance * accepted
        for x, again in enumerate(after_rejection):
            law[x] += chance * (1 - accepted) * again
    return law


print("emitted", *law_of_token(p, q))
print("target ", *p)
print("equal  ", law_of_token(p, q) == p)

# %% [markdown]
# Equal, to the last fraction. But these are two laws we made up. Let us try a thousand pairs of random
# ones, of 2 to 6 words, zeros included.

# %%
rng = np.random.default_rng(0)


def random_law(size):
    parts = [int(n) for n in rng.integers(0, 10, size)]
    parts[int(rng.integers(size))] += 1  # not all of them zero
    return [F(n, sum(parts)) for n in parts]


pairs = []
for size in rng.integers(2, 7, 1000):
    pairs.append((random_law(size), random_law(size)))
equal = sum(law_of_token(a, b) == a for a, b in pairs)
print(f"{equal} of {len(pairs)} random pairs: the emitted law equals p exactly")

# %% [markdown]
# All of them. And the reason fits in three lines:
#
# - accepted: word x appears with chance min(p(x), q(x));
# - rejected: that happens with chance 1 − Σ min(p, q), which is also Σ max(p − q, 0);
# - so resampling adds exactly max(p(x) − q(x), 0), and min(p, q) + max(p − q, 0) = p.

# %% [markdown]
# ## Three ways to get it wrong
#
# **It could have failed.** Each of these looks reasonable. The second, and a relative of the third, were found in
# transformers, a library that very many use
# ([issue 32867](https://github.com/huggingface/transformers/issues/32867),
# [issue 47932](https://github.com/huggingface/transformers/issues/47932)).
#
# 1. After a rejection, draw from p. "It is the target's law, after all."
# 2. The draft always proposes its likeliest word (it is *greedy*), but the test divides by the chance q(d) that
#    the draft's *softmax* gave that word. The softmax is the law a model works out before anything is drawn.
# 3. The draft is drawn at one *temperature* and the test uses q at another.
#
# Temperature: a model gives every word a score, its *logit*, and the softmax turns logits into chances. Before that they
# are divided by the temperature. Below 1 the likeliest words gain, above 1 they lose; 0 stands for greedy.

# %%
wrong = {"1 resampled from p": law_of_token(p, q, after_rejection=p)}

likeliest = [F(int(x == max(q))) for x in q]
wrong["2 greedy draft, softmax q"] = law_of_token(p, q, drawn_from=likeliest)

colder = [x**2 / sum(y**2 for y in q) for x in q]  # temperature 1/2 squares the chances
wrong["3 q of another temperature"] = law_of_token(p, colder, drawn_from=q)

table = pd.DataFrame({"target": p, **wrong}, index=words).T.map(str)
table["TV from p"] = ["0"] + [str(sum(abs(a - b) for a, b in zip(law, p, strict=True)) / 2) for law in wrong.values()]
table

# %% [markdown]
# None of them is p. The first gives every word a second chance, also "fog", which had enough. The second
# and third test with a law that the word was not drawn from. The texts still look fluent, so nobody
# notices by reading. Only a test like this one tells.

# %% [markdown]
# ## A greedy draft
#
# The second mistake deserves a closer look, because vLLM, SGLang and llama.cpp let the draft be greedy while
# the target draws, unless told otherwise. That is fine if q is taken for what it is: the draft proposes one word d with
# certainty, so q(d) = 1, and q is 0 elsewhere.

# %%
p2, softmax = [F(6, 10), F(4, 10)], [F(8, 10), F(2, 10)]
certain = [F(1), F(0)]

print("target             ", *map(float, p2))
print("test with softmax q", *map(float, law_of_token(p2, softmax, drawn_from=certain)))
print("test with q(d) = 1 ", *map(float, law_of_token(p2, certain)))

# %% [markdown]
# With the softmax chance in the test, the text leans to the draft: .75 in place of .60. With q(d) = 1 it is
# exact again.

# %% [markdown]
# **Exercise 1.5** · medium · 6 minutes. A greedy draft, done right. Given the target's `p` and the draft's
# softmax `q`, return two things: the chance that the drafted word is accepted, and the law after a
# rejection (a list). q has one largest entry, and p of that word is below 1.

# %% tags=["exercise"]
def greedy_round(p, q):
    # solution
    d = max(range(len(q)), key=lambda x: q[x])
    rest = [0 if x == d else px for x, px in enumerate(p)]
    return p[d], [px / sum(rest) for px in rest]
    # end

check(greedy_round)

# %% [markdown] tags=["hints"]
# - Which word is drafted? Put q(d) = 1 into min(1, p(d)/q(d)).
# - The residual is max(p − q, 0), scaled. What does it say for d, and what for the other words?

# %% [markdown]
# A greedy draft is accepted with chance p(d), not with Σ min(p, q). Which of the two is larger depends on the
# laws. Above, p(d) was 6/10 and Σ min(p, q) was 8/10.
#
# ## A whole round
#
# Now k drafts in a row. We need a toy language: three words, where each word only depends on the one before.
# `P["la"]` is the target's law after "la", `Q["la"]` the draft's.

# %%
la, di, da = range(3)
song = ["la", "di", "da"]
P = [[F(1, 2), F(1, 4), F(1, 4)],  # after la
     [F(1, 6), F(1, 6), F(2, 3)],  # after di
     [F(3, 5), F(1, 5), F(1, 5)]]  # after da
Q = [[F(1, 3), F(1, 3), F(1, 3)],
     [F(1, 2), F(0), F(1, 2)],
     [F(4, 5), F(1, 10), F(1, 10)]]

# %% [markdown]
# This is the round as one would run it, with a random number for each choice. The four steps from above
# are its four paragraphs.

# %%
def draw(law, rng):
    return int(np.searchsorted(np.cumsum(law), rng.random() * np.sum(law), side="right"))


def one_round(last, k, P, Q, rng, after_rejection):
    # 1. Draft k words, one after the other, each from the draft's law after the word before.
    drafts = [last]
    for _ in range(k):
        drafts.append(draw(Q[drafts[-1]], rng))

    # 2. Verify: the target's law behind each of them, k + 1 laws. A real target gets them in one step.
    laws = [P[word] for word in drafts]

    # 3. Accept, up to the first that fails.
    for j in range(k):
        p, q, d = laws[j], Q[drafts[j]], drafts[j + 1]
        if rng.random() >= min(1, p[d] / q[d]):
            # 4. Resample at the rejected place. What was drafted behind it is forgotten.
            return drafts[1:j + 1] + [draw(after_rejection(p, q), rng)]

    # 4. Or, when all were kept, the bonus word: nothing was rejected, so it comes from p itself.
    return drafts[1:] + [draw(laws[k], rng)]


rng = np.random.default_rng(3)
Pf, Qf = np.array(P, float), np.array(Q, float)
for _ in range(6):
    print(*(song[word] for word in one_round(la, 3, Pf, Qf, rng, left_over)))

# %% [markdown]
# Six rounds at k = 3 after "la", between one and four words long. The word after the kept ones is the target's:
# the replacement, or the *bonus*.
#
# Is the text of such rounds a text of the target? Counting again. For every possible list of drafts, follow
# what may happen.

# %%
def law_of_round(last, k, bonus=P):
    """Every outcome of one round after the word `last`, as {words: chance}."""
    law = defaultdict(F)
    for drafts in product(range(3), repeat=k):
        chance, before = F(1), last
        for d in drafts:
            chance, before = chance * Q[before][d], d  # the chance that exactly these are drafted
        if chance == 0:
            continue
        before = last
        for j, d in enumerate(drafts):
            p, q = P[before], Q[before]
            accepted = min(F(1), p[d] / q[d])
            for x, again in enumerate(left_over(p, q)):
                law[(*drafts[:j], x)] += chance * (1 - accepted) * again
            chance, before = chance * accepted, d
        for x, again in enumerate(bonus[before]):
            law[(*drafts, x)] += chance * again
    return law


for outcome, chance in sorted(law_of_round(la, 1).items()):
    if chance:
        print(f"{' '.join(song[x] for x in outcome):6} {chance}")
print("sum   ", sum(law_of_round(la, 1).values()))

# %% [markdown]
# Outcomes have different lengths, so they cannot be compared with P at once. We let rounds follow each other
# until there are three words, and compare the law of the first three words.

# %%
def law_of_text(length, k, **how):
    """The law of the first `length` words after "la", written in rounds of k drafts."""
    done, going = defaultdict(F), {(): F(1)}
    while going:
        longer = defaultdict(F)
        for text, chance in going.items():
            for new, more in law_of_round(text[-1] if text else la, k, **how).items():
                text_now = (text + new)[:length]
                (done if len(text_now) == length else longer)[text_now] += chance * more
        going = longer
    return done


def law_of_target(length):
    law = {}
    for text in product(range(3), repeat=length):
        law[text] = F(1)
        for before, word in zip((la, *text), text, strict=False):
            law[text] *= P[before][word]
    return law


wanted = law_of_target(3)
for k in range(5):
    made = law_of_text(3, k)
    mean = sum(len(outcome) * chance for outcome, chance in law_of_round(la, k).items())
    print(f"k = {k}: all {len(wanted)} texts of three words exactly right: {all(made[t] == wanted[t] for t in wanted)}"
          f"   words in the first round: {float(mean):.3f}")

# %% [markdown]
# For every k the law of the text is exactly the target's. k = 0 is plain decoding. Only the number of
# words in a round depends on k: **k decides the speed, never the text.**
#
# **It could have failed.** Take the bonus word from the draft, "because it has just been right k times".

# %%
made = law_of_text(3, 2, bonus=Q)
off = sum(abs(made[t] - wanted[t]) for t in wanted) / 2
print(f"bonus from the draft: {sum(made[t] == wanted[t] for t in wanted)} of {len(wanted)} texts right, TV {float(off):.3f}")

# %% [markdown]
# Nothing verified that word, so the draft's law leaks into the text.
#
# The same can be seen by running it, without any counting. Below are 20,000 texts of two words, written by the
# sampler above, right and with a resampling from p.

# %%
def two_words(after_rejection, n=20_000, k=2):
    rng, counts = np.random.default_rng(1), np.zeros((3, 3))
    for _ in range(n):
        text = []
        while len(text) < 2:
            text += one_round(text[-1] if text else la, k, Pf, Qf, rng, after_rejection)
        counts[text[0], text[1]] += 1
    return counts.ravel() / n


def missing_part(p, q):
    missing = np.maximum(p - q, 0)
    return missing / missing.sum()


exact = np.array([float(x) for x in law_of_target(2).values()])
texts = [" ".join(song[x] for x in text) for text in law_of_target(2)]
right_way, wrong_way = two_words(missing_part), two_words(lambda p, q: p)
error = np.sqrt(exact * (1 - exact) / 20_000)
print(f"largest distance from the target's law, in standard errors: right {np.abs((right_way - exact) / error).max():.1f}, "
      f"resampled from p {np.abs((wrong_way - exact) / error).max():.1f}")

# %%
place = np.arange(9)
figure, axes = plt.subplots(figsize=(8.5, 4))
axes.bar(place, exact, color="#dddddd", label="target, exact")
axes.errorbar(place - 0.12, right_way, yerr=2 * error, fmt="o", color="#0072B2", capsize=3, label="rounds, right")
axes.plot(place + 0.16, wrong_way, "s", color="#D55E00", label="rounds, resampled from p")
axes.set_xticks(place, texts, rotation=30)
axes.set(ylabel="share of texts", ylim=(0, 0.3))
axes.legend(loc="upper center", ncols=3, fontsize=11)
worst = int(np.abs(wrong_way - exact).argmax())
show(figure, f"Share of each of the nine texts of two words, 20,000 texts. Rounds done right lie within {np.abs(right_way - exact).max():.3f} of the "
     f"target's exact shares. Resampled from p they are off by up to {np.abs(wrong_way - exact).max():.3f}: "
     f'"{texts[worst]}" comes out at {wrong_way[worst]:.3f} in place of {exact[worst]:.3f}.')

# %% [markdown]
# The round points sit on the grey bars. The squares do not. Coins agree with the count. But coins alone would
# never have shown *exactly*: a small mistake would hide in their noise.

# %% [markdown]
# ## The text ends inside a draft
#
# A model ends its answer with a special token, here `EOS`. The draft may propose it too, and then some more
# behind it. If the target accepts all of that, the text still ends at `EOS`. What lies behind was never said.

# %% [markdown]
# **Exercise 1.6** · easy · 4 minutes. `new` are the tokens of a round, kept drafts and the target's own;
# `eos` is a set of tokens that end a text (Llama-3 has three). Return what is really emitted; the ending token
# itself stays.

# %% tags=["exercise"]
def cut_at_end(new, eos):
    # solution
    for place, token in enumerate(new):
        if token in eos:
            return new[:place + 1]
    return new
    # end

check(cut_at_end)

# %% [markdown] tags=["hints"]
# - Go through the tokens from the left and stop at the first that is in `eos`.
# - A slice `new[:n]` has n tokens. The ending token should be its last one.

# %% [markdown]
# ## The cache, and how to forget
#
# A model looks back at every token before. To spare itself reading them all again, it stores two vectors for
# each token and layer, a *key* and a *value*. That store is the **KV cache**. After a round, it holds tokens that were
# rejected. They must go, or the model reads a text that does not exist.
#
# A toy shows it. Six words have a vector each; a reader appends the vector of each word to its cache and
# sees a weighted mean of all that is there.

# %%
vectors = np.random.default_rng(0).normal(size=(6, 4))


def read(tokens, cache, length):
    """Append tokens after `length` places of the cache; return what the last one sees, and the new length."""
    for token in tokens:
        cache[length] = vectors[token]
        length += 1
        weights = np.exp(cache[:length] @ vectors[token])
        seen = weights @ cache[:length] / weights.sum()
    return seen, length


fresh, _ = read([0, 1, 2, 5], np.zeros((10, 4)), 0)  # the text, read at once

cache = np.zeros((10, 4))
_, length = read([0, 1, 2], cache, 0)
_, after_drafts = read([3, 4], cache, length)  # two drafts, both rejected; the target writes 5 instead

forgot, _ = read([5], cache.copy(), length)  # rolled back: the 5 is written over the first draft
kept_all, _ = read([5], cache.copy(), after_drafts)  # not rolled back

print("rolled back, same as read at once:    ", np.allclose(forgot, fresh))
print("not rolled back, same as read at once:", np.allclose(kept_all, fresh))

# %% [markdown]
# Rolling back is cheap: nothing is erased. We only say that fewer places are real; the next words are written over
# the rest. The course's `KVCache` does just that, with one length for each row: `cache.lengths`.
#
# How far back? Two facts decide it.
#
# - The last token of the text has been written but **not read** yet. So a cache of a text of n tokens holds n − 1.
# - In a round the target reads the last token and all k drafts. The draft reads the last token and
#   its own drafts **except the last one**: it proposes that one, and then the round is over.

# %% [markdown]
# **Exercise 1.7** · hard · 8 minutes. Before a round the text has n tokens and both caches hold n − 1. The round
# drafts k and accepts `accepted` of them. How many tokens may each cache keep afterwards? Return target and draft.

# %% tags=["exercise"]
def caches_after(n, k, accepted):
    # solution
    target = n + accepted
    draft = min(n + k - 1, n + accepted)
    return target, draft
    # end

check(caches_after)

# %% [markdown] tags=["hints"]
# - After the round the text has n + accepted + 1 tokens. The last of them has been read by nobody.
# - The draft cannot keep what it never read. How many tokens did it read at most?

# %% [markdown]
# Done? Then here is the whole table, for n = 10 and k = 4.

# %%
n, k = 10, 4
rows = [(a, n + a + 1, n + k, n + a, n + k - 1, min(n + k - 1, n + a)) for a in range(k + 1)]
table = pd.DataFrame(rows, columns=["accepted", "text", "target read", "target keeps", "draft read", "draft keeps"])
table["draft has to read"] = table["text"] - table["draft keeps"]
table.set_index("accepted")

# %% [markdown]
# Look at the last line. After full acceptance the draft has **two** tokens to read before it can guess
# again: its own last guess, and the target's bonus. That is easily forgotten. The mistake does not change the
# text, so no comparison of texts finds it; the guesses just get worse. Below we will catch it.

# %% [markdown]
# ## A real round, by hand
#
# Now the same four steps with two language models. We work in float32, where rounding is small.

# %% tags=["nbval-ignore-output"]
import os
from dataclasses import replace

import torch

from course_lib import sampling
from course_lib.cache import KVCache, forward
from course_lib.course.rounds import show_rounds
from course_lib.course.same_text import compare_texts
from course_lib.pairs import load_pair
from course_lib.prompts import load_prompts
from course_lib.speculate import decode, decode_plain

torch.set_grad_enabled(False)
pair = load_pair(os.environ.get("COURSE_PAIR", "smol"), dtype="float32")
word = pair.tokenizer.decode
banner("live", pair=pair.name, device=pair.device, dtype="float32", torch=torch.__version__)


def run(model, tokens, cache):
    """Let a model read tokens after its cache; return its logits behind each of them."""
    return forward(model, torch.tensor([tokens], device=pair.device), cache)[0]


text = pair.encode([{"role": "user", "content": "Write a Python function that returns the larger of two numbers."}])
target_cache, draft_cache = KVCache(1, 300, pair.device), KVCache(1, 300, pair.device)
run(pair.target, text[:-1], target_cache)  # both read the question, all but its last token
run(pair.draft, text[:-1], draft_cache)
print(f"{len(text)} tokens of text; the target has read {int(target_cache.lengths)}, the draft {int(draft_cache.lengths)}")

# %% [markdown]
# **Draft.** Four tokens, one after the other, each the likeliest.

# %% tags=["nbval-ignore-output"]
drafts, unread = [], text[-1:]
for _ in range(4):
    logits = run(pair.draft, unread, draft_cache)[-1]
    drafts.append(int(logits.argmax()))
    unread = drafts[-1:]

print("drafted:", [word([token]) for token in drafts])
print(f"the draft has read {int(draft_cache.lengths)}: all of its guesses but the last")

# %% [markdown]
# **Verify.** One step of the target over five tokens: the last of the text and the four drafts. It gives five
# opinions.

# %% tags=["nbval-ignore-output"]
logits = run(pair.target, text[-1:] + drafts, target_cache)
wanted = logits.argmax(-1).tolist()
pd.DataFrame({"drafted": [word([token]) for token in drafts] + ["(bonus)"], "the target wants": [word([token]) for token in wanted]})

# %% [markdown]
# **Accept**, up to the first difference, and add the target's own token. Then **roll back**: each cache ends
# before the last token.

# %% tags=["nbval-ignore-output"]
kept = next((j for j in range(4) if drafts[j] != wanted[j]), 4)
text += drafts[:kept] + [wanted[kept]]
print(f"kept {kept} of 4, then the target's {word([wanted[kept]])!r}")

target_cache.lengths = target_cache.lengths.clamp(max=len(text) - 1)
draft_cache.lengths = draft_cache.lengths.clamp(max=len(text) - 1)
print(f"{len(text)} tokens of text; the target keeps {int(target_cache.lengths)}, the draft {int(draft_cache.lengths)}")

# %% [markdown]
# If all four were kept, the draft is one behind: it has not read its own last guess. In the next round it
# reads `text[draft_cache.lengths:]`, one token or two. Here are the four steps as one function, and 32
# tokens written with it.

# %% tags=["nbval-ignore-output"]
def greedy_rounds(pair, prompt, k, new_tokens, forget_the_last_guess=False):
    """Rounds written by hand; returns the new tokens and the number of drafts kept in each round."""
    text, kept_each = list(prompt), []
    caches = [KVCache(1, len(prompt) + new_tokens + 2 * k, pair.device) for _ in range(2)]
    for model, cache in zip((pair.target, pair.draft), caches, strict=True):
        run(model, text[:-1], cache)
    while len(text) < len(prompt) + new_tokens and not set(text[len(prompt):]) & pair.eos:
        drafts, unread = [], text[int(caches[1].lengths):]
        for _ in range(k):
            drafts.append(int(run(pair.draft, unread, caches[1])[-1].argmax()))
            unread = drafts[-1:]
        wanted = run(pair.target, text[-1:] + drafts, caches[0]).argmax(-1).tolist()
        kept = next((j for j in range(k) if drafts[j] != wanted[j]), k)
        text += drafts[:kept] + [wanted[kept]]
        kept_each.append(kept)
        for cache in caches:
            cache.lengths = cache.lengths.clamp(max=len(text) - 1)
        if forget_the_last_guess:  # a mistake on purpose: as if the draft had read all it proposed
            caches[1].lengths = caches[1].lengths.new_tensor([len(text) - 1])
    new = text[len(prompt):][:new_tokens]
    end = next((n + 1 for n, token in enumerate(new) if token in pair.eos), None)
    return new[:end], kept_each


question = pair.encode([{"role": "user", "content": "Write a Python function that returns the larger of two numbers."}])
by_hand, kept_each = greedy_rounds(pair, question, k=4, new_tokens=32)
alone = decode_plain(pair, [question], max_new_tokens=32)
print(word(by_hand), "\n")
print("kept in each round:", *kept_each)
print("target alone and by hand:", compare_texts(pair, question, alone.tokens[0], by_hand))

# %% [markdown]
# ## Catching the silent mistake
#
# **It could have failed.** Suppose we forget that the draft never read its last guess. To see it clearly, use a trick that is worth
# keeping: **let the target be its own draft.** Then every guess must be kept. If one is not, a cache is wrong.

# %% tags=["nbval-ignore-output"]
twins = replace(pair, draft=pair.target)
for name, mistake in (("right", False), ("last guess forgotten", True)):
    made, kept_each = greedy_rounds(twins, question, k=4, new_tokens=32, forget_the_last_guess=mistake)
    print(f"{name:21} kept in each round: {' '.join(map(str, kept_each)):30} text: {compare_texts(pair, question, alone.tokens[0], made)}")

# %% [markdown]
# Done right, every guess is kept (a near-tie aside). With the mistake the target's twin reads a hole where its last guess should be,
# and what it then proposes is no longer what the target wants. The text stays the target's in both cases. That is
# why this mistake lives long: it only costs speed.

# %% [markdown]
# ## And with chance
#
# At temperature 1 both models draw. One more round by hand, now with the rule of this notebook: the chance min(1, p/q), a
# coin, and the residual. (The seed is one that brought a rejection on a processor. With another one all four may be kept;
# then the target's word comes from p. Try it.)

# %% tags=["nbval-ignore-output"]
text = question  # the Python function again
generator = torch.Generator(pair.device).manual_seed(7)
warm = sampling.Sampling(temperature=1.0)
cache = KVCache(1, 300, pair.device)

drafts, laws = [], []
unread = text
for _ in range(4):
    laws.append(sampling.probabilities(run(pair.draft, unread, cache)[-1].double(), warm))
    drafts.append(int(sampling.draw(laws[-1], generator)))
    unread = drafts[-1:]
q = torch.stack(laws)
p = sampling.probabilities(run(pair.target, text + drafts, KVCache(1, 300, pair.device))[-5:].double(), warm)

chances = sampling.accept_chance(p[:4], q, torch.tensor(drafts, device=pair.device))
coins = torch.rand(4, generator=generator, device=pair.device, dtype=torch.float64)
kept = int((coins < chances).long().cumprod(0).sum())
law = sampling.residual(p[kept], q[kept]) if kept < 4 else p[4]
own = int(sampling.draw(law, generator))

verdicts = ["kept"] * kept + ["rejected"] + ["thrown away"] * 3
table = pd.DataFrame({"drafted": map(word, drafts), "q(d)": [float(q[j, d]) for j, d in enumerate(drafts)],
                      "p(d)": [float(p[j, d]) for j, d in enumerate(drafts)], "min(1, p/q)": chances.tolist(),
                      "coin": coins.tolist(), "verdict": verdicts[:4], "Σ min(p, q)": torch.minimum(p[:4], q).sum(-1).tolist()}).round(4)
print(f"kept {kept} of 4, then {word([own])!r} from {'the residual' if kept < 4 else 'p, as bonus'}")
table

# %% [markdown]
# A draft is kept if its coin lies below min(1, p/q). The last column is the chance one would give *before* knowing which
# word is drafted: it depends on the place in the text. Its mean over a text is what this course calls
# α, and notebook 04 measures it.
#
# The proof holds for the whole vocabulary too. At the first place of this round, add up what is accepted and what is
# resampled, in 64-bit numbers:

# %% tags=["nbval-ignore-output"]
shared = torch.minimum(p[0], q[0])
law = shared + (1 - shared.sum()) * sampling.residual(p[0], q[0])
print(f"{len(law):,} words, largest difference from p: {float((law - p[0]).abs().max()):.1e}")

# %% [markdown]
# ## The course's decoder against the target alone
#
# The package's `decode` does these rounds for many prompts at once, at any temperature. In notebook 00 you saw it. Here it answers
# three requests, greedily in float32, at several k.

# %% tags=["nbval-ignore-output"]
chosen = {"chat": "chat-h007", "code": "code-h013", "json": "json-h008"}
batch = [pair.encode(prompt.messages) for prompt in load_prompts() if prompt.id in chosen.values()]
plain = decode_plain(pair, batch, max_new_tokens=32)
for k in (1, 4, 8):
    decoded = decode(pair, batch, k=k, max_new_tokens=32)
    for row, route in enumerate(chosen):
        print(f"k = {k}  {route}: {compare_texts(pair, batch[row], plain.tokens[row], decoded.tokens[row])}")

# %% tags=["nbval-ignore-output"]
show_rounds(pair.tokenizer, decoded, row=2, limit=6)

# %% [markdown]
# The texts are the target's at each k. Look at how many of the eight guesses survive in each round. A small k cuts
# good stretches short; a large k throws guesses away. Which k is best is the question of this course, and the next
# notebooks put numbers on it.

# %% [markdown]
# ## Quiz

# %%
quiz("1.a")

# %%
quiz("1.b")

# %%
quiz("1.c")

# %%
quiz("1.d")

# %%
quiz("1.e")

# %%
quiz("1.f")

# %% [markdown]
# ## Recap
#
# - **Accept** a drafted word with min(1, p/q); after a rejection draw from the **residual**, max(p − q, 0)
#   scaled; after k kept drafts draw the **bonus** from p.
# - The text then follows p exactly. We counted it in fractions, for one word and for whole rounds.
# - A draft is accepted with chance Σ min(p, q) = 1 − TV(p, q); a greedy draft with p(d).
# - q must be the law that the word was really drawn from: same temperature, and q(d) = 1 for a greedy draft.
# - After a round both caches end before the last token of the text. After full acceptance the draft has two tokens
#   to read.
#
# **Sources.** Leviathan et al. 2023, arXiv 2211.17192, algorithm 1 and appendix A.1; Chen et al. 2023, arXiv
# 2302.01318, theorem 1.
#
# **Next.** You know how a round works. How many tokens does it yield, for a given k?
# [Notebook 02](02_geometric_formula.ipynb) turns that into a formula.
