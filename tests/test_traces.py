"""Protects the trace: each column against one uncached forward a position, replay against the real decoder,
bounded memory, and a file that comes back as it was or is refused with the reason."""

import json
import math
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny import Branches, next_logits, target_law, tiny_llama, tiny_pair, warped, with_lookup, with_noise

from course_lib import scoring, speculate
from course_lib.intervals import ratio_interval
from course_lib.prompts import Prompt
from course_lib.replay import replay_rounds
from course_lib.sampling import GREEDY, Sampling
from course_lib.speculate import decode
from course_lib.traces import FORMAT, KEY, SCHEMA, Trace, add_lookup, measure_trace, score_trace

WORDS = ["5 3 7 7 2 19", "4", "1 2 3 4 5 6 7 8 9 10 11", "9 8", "22 22 22", "6 1 6", "13 12 11 10"]
PROMPTS = [Prompt(f"p{i}", "ab"[i % 2], "own", [{"role": "user", "content": text}])
           for i, text in enumerate(WORDS)]
LAWS = {"T=1": Sampling(1.0), "T=.7": Sampling(0.7), "top-k": Sampling(1.2, top_k=5),
        "top-p": Sampling(1.0, top_p=0.85), "T=0": GREEDY}


def pair_of(target, draft, eos=(20,), context=256):
    pair = tiny_pair(target, draft, eos, context)
    pair.encode = lambda messages: [int(word) for word in messages[-1]["content"].split()]
    return pair


@pytest.fixture(scope="module")
def pair():
    target = tiny_llama(seed=3)
    return pair_of(target, with_noise(target, 0.3))


def ids_of(pair, prompts):
    return [pair.encode(prompt.messages) for prompt in prompts]


# The columns


def one_token(pair, prefix, token, sampling, draft_mode):
    """The row of one token, from a forward of each model over just its prefix."""
    draft_logits = next_logits(pair.draft, prefix)[:24]
    guess = int(draft_logits.argmax())
    if sampling.temperature == 0:
        p = np.eye(24)[int(next_logits(pair.target, prefix).argmax())]
    else:
        p = warped(next_logits(pair.target, prefix)[None], sampling)[0].numpy()
    if sampling.temperature == 0 or draft_mode == "greedy":
        q = np.eye(24)[guess]
    else:
        q = warped(draft_logits[None], sampling)[0].numpy()
    # Drafted with chance q(x), accepted with min(1, p(x)/q(x)), given that the text has x (chance p(x)).
    accept = q[token] * min(1, p[token] / q[token]) / p[token] if q[token] else 0.0
    return {"logp": math.log(p[token]), "logq": math.log(q[token]) if q[token] else -math.inf,
            "match": guess == token, "overlap": np.minimum(p, q).sum(), "accept": accept,
            "entropy": -sum(x * math.log(x) for x in p if x > 0)}


@pytest.mark.parametrize("draft_vocabulary", [24, 32])
@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
@pytest.mark.parametrize("law", LAWS)
def test_every_column_is_what_one_uncached_forward_a_position_says(law, draft_mode, draft_vocabulary):
    target = tiny_llama(seed=3)
    draft = with_noise(target, 0.3)
    draft.resize_token_embeddings(draft_vocabulary, mean_resizing=False)
    pair = pair_of(target, draft, eos=(20, 17, 11, 6))
    trace = measure_trace(pair, PROMPTS, LAWS[law], 9, draft_mode, batch=3, seed=1)
    assert list(trace.rows) == SCHEMA.names and trace.meta["near_ties"] == 0
    texts = trace.column("token")
    assert {len(text) for text in texts} - {9}, "no text met its end: the test is weaker than meant"
    wanted = [one_token(pair, [*ids, *text[:t].tolist()], int(text[t]), LAWS[law], draft_mode)
              for ids, text in zip(ids_of(pair, PROMPTS), texts, strict=True) for t in range(len(text))]
    for name, values in pd.DataFrame(wanted).items():
        found = trace.rows[name].to_numpy(float)
        np.testing.assert_allclose(found, values.to_numpy(float), rtol=1e-6, atol=1e-6, err_msg=name)
    assert 0 < trace.rows.accept.mean() < 1
    expected = [(prompt.route, prompt.id, t) for prompt, text in zip(PROMPTS, texts, strict=True)
                for t in range(len(text))]
    assert list(zip(trace.rows.route, trace.rows.prompt, trace.rows.t, strict=True)) == expected


def test_a_draft_with_fewer_tokens_is_scored_and_never_proposes_what_it_lacks():
    target = tiny_llama(seed=3)
    draft = with_noise(target, 0.3)
    draft.resize_token_embeddings(12, mean_resizing=False)
    rows = measure_trace(pair_of(target, draft, eos=()), PROMPTS, Sampling(1.0), 9, batch=3, seed=1).rows
    lacking = rows.token >= 12
    assert 0 < lacking.sum() < len(rows)
    assert (rows.accept[lacking] == 0).all() and (rows.logq[lacking] == -np.inf).all()
    assert (rows.accept[~lacking] > 0).all()


def test_the_text_does_not_depend_on_which_prompts_share_a_batch(pair):
    together = measure_trace(pair, PROMPTS, GREEDY, 12, batch=16)
    alone = measure_trace(pair, PROMPTS, GREEDY, 12, batch=1)
    pd.testing.assert_frame_equal(together.rows, alone.rows, rtol=1e-6)


def test_a_given_text_scores_as_it_did_when_it_was_written(pair):
    written = measure_trace(pair, PROMPTS, LAWS["T=1"], 12, seed=2)
    again = score_trace(pair, PROMPTS, written.column("token"), LAWS["T=1"])
    pd.testing.assert_frame_equal(written.rows, again.rows)
    other = score_trace(pair_of(pair.target, pair.target), PROMPTS, written.column("token"), LAWS["T=1"])
    assert (other.rows.accept == 1).all() and (other.rows.logp == written.rows.logp).all()


def test_the_target_does_not_read_what_it_wrote(pair, monkeypatch):
    read, states = [], scoring.hidden_states
    monkeypatch.setattr(scoring, "hidden_states",
                        lambda model, *more: (read.append(model), states(model, *more))[1])
    trace = measure_trace(pair, PROMPTS, LAWS["T=1"], 12, batch=3)
    assert read and all(model is pair.draft for model in read)
    assert sorted(trace.meta["seconds"]) == ["score_draft", "score_target", "write"]


def test_the_same_seed_writes_the_same_text_and_another_another(pair):
    traces = [measure_trace(pair, PROMPTS, LAWS["T=1"], 12, seed=seed) for seed in (1, 1, 2)]
    first, same, other = (trace.rows.token.tolist() for trace in traces)
    assert first == same != other


def test_a_text_of_somebody_else_is_believed_and_counted(pair):
    texts = [[7, 7, 7, 7]] * len(PROMPTS)
    trace = score_trace(pair, PROMPTS, texts, GREEDY)
    targets = [int(next_logits(pair.target, [*ids, *[7] * t]).argmax())
               for ids in ids_of(pair, PROMPTS) for t in range(4)]
    assert trace.meta["near_ties"] == sum(token != 7 for token in targets) > 0
    assert (trace.rows.logp == 0).all() and (trace.rows.accept == trace.rows.match).all()
    # Cut off by top-k: a chance of 0 must not become nan.
    narrow = score_trace(pair, PROMPTS, texts, Sampling(1.0, top_k=2))
    assert narrow.meta["near_ties"] > 0 and narrow.rows.accept.between(0, 1).all()


def test_no_tensor_ever_holds_the_vocabulary_of_every_position(pair, monkeypatch):
    whole = measure_trace(pair, PROMPTS, LAWS["T=1"], 16, seed=2)
    monkeypatch.setattr(scoring, "CHUNK", 8)
    positions = []

    def note(_module, _inputs, output):
        positions.append(output.shape[:-1].numel())

    hooks = [model.lm_head.register_forward_hook(note) for model in (pair.target, pair.draft)]
    chunked = measure_trace(pair, PROMPTS, LAWS["T=1"], 16, seed=2)
    for hook in hooks:
        hook.remove()
    assert len(whole.rows) > 8 * 4 and max(positions) == 8
    pd.testing.assert_frame_equal(whole.rows, chunked.rows, rtol=1e-6)


def test_batches_hold_similar_lengths_and_stay_narrow(monkeypatch):
    monkeypatch.setattr(scoring, "MOST_TOKENS", 100)
    groups = list(scoring.batches([10, 90, 11, 300, 12, 45, 50, 10], most_rows=3))
    assert groups == [[0, 7, 2], [4, 5], [6], [1], [3]]


# Replay and the decoder


@pytest.mark.parametrize("noise, prompts, batch, draft_mode, lookup",
                         [(0.1, PROMPTS, 7, "sample", None), (0.3, PROMPTS, 4, "greedy", None),
                          (0.3, PROMPTS[:2], 1, "sample", None), (0.1, PROMPTS, 7, "sample", "first"),
                          (0.1, PROMPTS, 3, "greedy", "only"), (0.3, PROMPTS[:2], 1, "sample", "first")])
def test_greedy_rounds_of_the_decoder_are_those_of_the_trace(noise, prompts, batch, draft_mode, lookup):
    target, new_tokens = tiny_llama(seed=3), 16
    pair = with_lookup(pair_of(target, with_noise(target, noise), eos=(20, 17)), lookup)
    trace = measure_trace(pair, prompts, GREEDY, new_tokens)
    ids, accepts = ids_of(pair, prompts), trace.accepts()
    for k in range(1, 9):
        rounds = {}
        for first in range(0, len(ids), batch):
            done = decode(pair, ids[first:first + batch], k, new_tokens, GREEDY, draft_mode)
            assert done.tokens == [text.tolist() for text in trace.column("token")[first:first + batch]]
            for row, own in done.rounds.groupby("row"):
                rounds[first + row] = list(zip(own.start, own.emitted, strict=True))
        for row, accept in enumerate(accepts):
            start, wanted = 0, []
            while start < len(accept):
                drafts = min(k, new_tokens - start - 1)
                kept = next((j for j, a in enumerate(accept[start:start + drafts]) if not a),
                            len(accept[start:start + drafts]))
                emitted = min(kept + 1, len(accept) - start)  # fewer where the text ends in a draft
                wanted.append((start, emitted))
                start += emitted
            assert rounds[row] == wanted, (k, row)
        assert replay_rounds(accepts, [k])[:, 0].tolist() == [len(rounds[row]) for row in range(len(ids))]


@pytest.mark.parametrize("lookup", ["first", "only"])
def test_a_lookup_can_be_added_to_a_greedy_trace_afterwards(lookup):
    target = tiny_llama(seed=3)
    plain = pair_of(target, with_noise(target, 0.1), eos=(20, 17))
    pair = with_lookup(plain, lookup)
    measured, trace = (measure_trace(each, PROMPTS, GREEDY, 16) for each in (pair, plain))
    added = add_lookup(trace, plain.encode, PROMPTS, pair.lookup, draft=lookup == "first")
    pd.testing.assert_frame_equal(added.rows, measured.rows)
    assert {2} < set(added.rows.drafter) and added.rows.accept.nunique() == 2
    assert {name: added.meta[name] for name in ("draft", "lookup")} == \
        {name: measured.meta[name] for name in ("draft", "lookup")}
    for wrong, prompts, error in ((added, PROMPTS, "with a lookup"), (trace, PROMPTS[:2], "not among"),
                                  (Trace(trace.rows, trace.meta | {"temperature": 0.5}), PROMPTS, "above 0")):
        with pytest.raises(ValueError, match=error):
            add_lookup(wrong, plain.encode, prompts, pair.lookup)


def expected_rounds_of_the_decoder(monkeypatch, pair, prompt, k, new_tokens, sampling, draft_mode):
    """Exact, by walking every branch of chance in the real decoder."""
    walk, total, original = Branches(monkeypatch), 0.0, speculate.decode

    def counting(*arguments):
        nonlocal total
        done = original(*arguments)
        total += sum(done.rounds.groupby("row").size() * walk.chance)
        return done

    monkeypatch.setattr(speculate, "decode", counting)
    law = walk.law(pair, prompt, k, new_tokens, sampling, draft_mode, rows=1000)
    assert sum(law.values()) == pytest.approx(1)
    return total


@pytest.mark.parametrize("draft_mode, lookup", [("sample", None), ("greedy", None), ("sample", "first"),
                                                ("sample", "only")])
@pytest.mark.parametrize("k, sampling", [(1, Sampling(1.0)), (2, Sampling(0.8, top_k=2)), (3, Sampling(1.0))])
def test_replay_over_all_texts_is_the_decoder_over_all_coins(monkeypatch, k, sampling, draft_mode, lookup):
    shape = {"hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.6}
    target, draft = tiny_llama(3, seed=1, **shape), tiny_llama(3, seed=2, num_hidden_layers=1, **shape)
    pair = with_lookup(pair_of(target, draft, eos=(2,)), lookup)
    law = target_law(pair.target, [0, 2, 1], 4, sampling, pair.eos)
    prompts = [Prompt(str(i), "a", "own", [{"content": "0 2 1"}]) for i in range(len(law))]
    chances = np.array(list(law.values()))

    def replayed(column, sampling=sampling):
        trace = score_trace(pair, prompts, list(law), sampling, draft_mode)
        return float(chances @ replay_rounds(trace.column(column), [k])[:, 0])

    exact = expected_rounds_of_the_decoder(monkeypatch, pair, [0, 2, 1], k, 4, sampling, draft_mode)
    assert replayed("accept") == pytest.approx(exact, abs=1e-6)
    # Overlap has the right mean at each position, and along the text it is wrong all the same.
    if k > 1 and lookup is None:
        assert abs(replayed("overlap") - exact) > 1e-3
    if draft_mode == "sample" and lookup != "only":  # a point mass knows no temperature
        assert abs(replayed("accept", Sampling(1.6)) - exact) > 1e-3


@pytest.mark.parametrize("draft_mode", ["sample", "greedy"])
def test_sampled_rounds_of_the_decoder_have_the_mean_that_replay_says(draft_mode):
    target, sampling, rows, new_tokens = tiny_llama(seed=3), Sampling(0.8), 250, 12
    pair = pair_of(target, with_noise(target, 0.1))
    prompts = [Prompt(str(i), "a", "own", PROMPTS[i % 7].messages) for i in range(rows)]
    trace = measure_trace(pair, prompts, sampling, new_tokens, draft_mode, batch=rows, seed=5)
    hot = score_trace(pair, prompts, trace.column("token"), Sampling(1.6), draft_mode)
    for k in (1, 3, 8):
        generator = torch.Generator().manual_seed(100 + k)
        rounds = decode(pair, ids_of(pair, prompts), k, new_tokens, sampling, draft_mode, generator).rounds
        counts = rounds.groupby("row").emitted.agg(["sum", "size"])
        real = ratio_interval(counts["sum"], counts["size"])
        assert sigmas(real, trace, k) < 4
        if draft_mode == "sample":
            assert sigmas(real, hot, k) > 4
    assert real.mean > 1.3


def sigmas(real, trace, k):
    """How many standard errors the replay of a trace lies from what the decoder did."""
    accepts = trace.accepts()
    replayed = ratio_interval([len(accept) for accept in accepts], replay_rounds(accepts, [k])[:, 0])
    return abs(real.mean - replayed.mean) / (math.hypot(real.half_width, replayed.half_width) / 1.96)


# What is refused


@pytest.mark.parametrize("context, new_tokens, error", [
    (16, 6, "prompt p2 has 11 tokens, and with 6 new ones that exceeds the context of 16: .* pass --cut"),
    (16, 16, "16 new tokens leave no room"),
])
def test_a_prompt_that_does_not_fit_is_refused_by_name(pair, context, new_tokens, error):
    with pytest.raises(ValueError, match=error):
        measure_trace(pair_of(pair.target, pair.draft, context=context), PROMPTS, GREEDY, new_tokens)


def test_a_cut_prompt_keeps_its_end_and_is_named(pair):
    small = pair_of(pair.target, pair.draft, context=16)
    trace = measure_trace(small, PROMPTS, GREEDY, 6, cut=True)
    assert trace.meta["cut"] == ["p2"]
    ended = [Prompt("p2", "a", "own", [{"role": "user", "content": "2 3 4 5 6 7 8 9 10 11"}])]
    assert trace.column("token")[2].tolist() == measure_trace(small, ended, GREEDY, 6).rows.token.tolist()


def test_arguments_that_make_no_sense_are_refused(pair):
    with pytest.raises(ValueError, match="no prompt"):
        measure_trace(pair, [], GREEDY, 4)
    with pytest.raises(ValueError, match="prompt p0 of route a is there 2 times"):
        measure_trace(pair, [PROMPTS[0], *PROMPTS], GREEDY, 4)
    with pytest.raises(ValueError, match='"sample" or "greedy"'):
        measure_trace(pair, PROMPTS, GREEDY, 4, draft_mode="beam")
    with pytest.raises(ValueError, match="7 prompts need as many texts"):
        score_trace(pair, PROMPTS, [[1]] * 6, GREEDY)
    with pytest.raises(ValueError, match="each of at least one token"):
        score_trace(pair, PROMPTS, [[1]] * 6 + [[]], GREEDY)


# The file


@pytest.fixture(scope="module")
def trace(pair):
    return measure_trace(pair, PROMPTS, LAWS["top-k"], 8, "greedy", seed=4, command="measure --top-k 5")


def test_a_trace_comes_back_from_its_file_as_it_was(trace, tmp_path):
    path = tmp_path / "trace.parquet"
    trace.save(path)
    back = Trace.load(path)
    pd.testing.assert_frame_equal(back.rows, trace.rows)
    assert back.meta == trace.meta and np.isneginf(back.rows.logq).any()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.parquet"]
    assert {"pair", "target", "draft", "device", "dtype", "temperature", "top_k", "top_p", "draft_mode",
            "seed", "new_tokens", "versions", "machine", "date", "command", "near_ties"} <= back.meta.keys()
    assert [len(text) for text in back.accepts("a")] == [len(text) for text in trace.accepts()[::2]]
    with pytest.raises(ValueError, match="no route 'c': it has a, b"):
        back.accepts("c")


def test_a_save_that_fails_leaves_the_old_file(trace, tmp_path, monkeypatch):
    path = tmp_path / "trace.parquet"
    trace.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(pq, "write_table", lambda table, part, **options: part.write_bytes(b"PAR1") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace.save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_damage_anywhere_is_refused_or_harmless(trace, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    trace.save(good)
    whole, refused = good.read_bytes(), 0
    generator = np.random.default_rng(0)
    for _ in range(300):
        place = int(generator.integers(len(whole)))
        if generator.random() < 0.3:
            damaged = whole[:place]
        else:
            damaged = whole[:place] + bytes([whole[place] ^ (1 << generator.integers(8))]) + whole[place + 1:]
        bad.write_bytes(damaged)
        try:
            found = Trace.load(bad)
        except ValueError as error:
            assert "bad" in str(error)
            refused += 1
        else:  # a bit in the notes, not in the numbers
            pd.testing.assert_frame_equal(found.rows, trace.rows)
    assert refused > 150


def rewritten(trace, path, rows=None, meta=None, key=KEY):
    table = pa.Table.from_pandas(trace.rows if rows is None else rows, preserve_index=False)
    note = json.dumps({"format": FORMAT, **trace.meta} if meta is None else meta)
    pq.write_table(table.replace_schema_metadata({key: note}), path)
    return path


def test_what_is_no_trace_is_refused_with_the_reason(trace, tmp_path):
    path = tmp_path / "x"
    for content, error in [(b"", "not a Parquet file"), (b"prompt,accept\n1,2\n", "not a Parquet file"),
                           (b"PAR1", "truncated"), (b"PAR1" + b"\0" * 40 + b"PAR1", "damaged")]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=error):
            Trace.load(path)
    for meta, key, error in [(None, b"pandas", "a Parquet file but not a trace"),
                             ({"format": FORMAT + 1}, KEY, f"has format {FORMAT + 1}.*update"),
                             ({}, KEY, "names no format"), ([], KEY, "names no format")]:
        with pytest.raises(ValueError, match=error):
            Trace.load(rewritten(trace, path, meta=meta, key=key))
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "none")


@pytest.mark.parametrize("change, error", [
    (lambda rows: rows.drop(columns=["accept", "logq"]), "lacks the columns logq, accept"),
    (lambda rows: rows.assign(accept="high"), "wrong type"),
    (lambda rows: rows.assign(overlap=[None, *rows.overlap[1:]]), "empty cells in overlap"),
    (lambda rows: rows.assign(accept=rows.accept + 0.5), "accept .* must lie between 0 and 1"),
    (lambda rows: rows.assign(logp=rows.logp + 20), "logp .* must lie between -inf and 0"),
    (lambda rows: rows.assign(entropy=np.inf), "entropy inf"),
    (lambda rows: rows.assign(token=-1), "token -1 in row 0"),
    (lambda rows: rows.drop(index=3), "positions are not 0, 1, 2"),
    (lambda rows: rows.drop(index=0), "positions are not 0, 1, 2"),
    (lambda rows: rows[::-1], "positions are not 0, 1, 2"),
    (lambda rows: pd.concat([rows, rows]), "positions are not 0, 1, 2"),
    (lambda rows: rows.assign(prompt="p0", route="a"), "positions are not 0, 1, 2"),
    (lambda rows: rows[:0], "no rows"),
])
def test_values_that_cannot_be_are_refused(trace, tmp_path, change, error):
    path = rewritten(trace, tmp_path / "x.parquet", change(trace.rows))
    with pytest.raises(ValueError, match=f"x.parquet.*{error}"):
        Trace.load(path)


def test_a_bad_trace_is_not_written(trace, tmp_path):
    for rows in (trace.rows.assign(accept=2.0), trace.rows.drop(columns="t")):
        with pytest.raises(ValueError, match="this trace"):
            Trace(rows, trace.meta).save(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_million_rows_load_within_seconds(trace, tmp_path):
    texts = 1_000_000 // 8
    rows = trace.rows[:8].iloc[np.tile(range(8), texts)].reset_index(drop=True)
    rows["prompt"] = np.repeat([f"p{i}" for i in range(texts)], 8)
    Trace(rows, trace.meta).save(tmp_path / "big")
    started = time.process_time()
    assert len(Trace.load(tmp_path / "big").rows) == 1_000_000
    assert time.process_time() - started < 4  # 2 s of clock on a quiet machine with two cores
