"""Protects round costs: planted times come back exactly, and the rounds that are timed are the right ones."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from tiny import letter_pair

from course_lib.costs import CostTable
from course_lib.prompts import Prompt
from course_lib.sampling import GREEDY, Sampling
from course_lib.speculate import decode
from course_lib.timing import costs_from_times, measure_costs, time_rounds

KS = [1, 2, 4, 8]


def planted(ks, draft=0.01, once=0.002, step=0.1, token=0.003, judge=0.004, plain_rest=0.001):
    """Rounds whose parts are known: a line a round."""
    lines = [(0, 0.0, step, plain_rest)]
    lines += [(k, once + k * draft, step + k * token, plain_rest + judge) for k in ks]
    return pd.DataFrame([(*line, sum(line[1:])) for line in lines],
                        columns=["k", "draft", "verify", "other", "seconds"])


def test_planted_costs_come_back():
    costs = costs_from_times(planted(KS))
    assert costs.t_draft == pytest.approx(0.01)
    assert costs.overhead == pytest.approx(0.002 + 0.004)
    for k in (0, *KS):
        assert costs.verify_seconds(k + 1) == pytest.approx(0.1 + k * 0.003 + 0.001)


def test_the_parts_add_up_to_the_measured_round_of_every_k():
    times = planted(KS)
    times.loc[times.k == 4, ["draft", "seconds"]] += 0.007  # off the line
    times.loc[times.k == 2, ["other", "seconds"]] += 0.005
    costs = costs_from_times(times)
    for k, seconds in zip(times.k, times.seconds, strict=True):
        assert costs.round_seconds(k) == pytest.approx(seconds)


def test_a_stall_now_and_then_changes_nothing():
    times = pd.concat([planted(KS)] * 5, ignore_index=True)
    stalled = times.copy()
    stalled.loc[:4, ["draft", "seconds"]] += 10.0  # one of five rounds of each k
    assert costs_from_times(stalled) == costs_from_times(times)


def test_one_k_is_enough_and_no_plain_round_is_not():
    assert costs_from_times(planted([4], once=0.0)).round_seconds(4) == pytest.approx(
        planted([4], once=0.0).seconds.iloc[1])
    for times in (planted([]), planted(KS)[1:]):
        with pytest.raises(ValueError, match="both"):
            costs_from_times(times)


def test_noise_never_makes_a_step_free_or_a_cost_negative():
    times = planted(KS, draft=0.5, step=0.001, token=0.0)
    times.loc[times.k == 8, ["draft", "seconds"]] -= 2.0
    costs = costs_from_times(times)
    assert min(costs.t_verify.values()) > 0 and costs.overhead >= 0 and costs.t_draft > 0


@pytest.fixture(scope="module")
def pair():
    return letter_pair()


PROMPTS = [Prompt(str(i), "chat", "own", [{"role": "user", "content": text}])
           for i, text in enumerate(["tell me", "why is it so that", "a list"])]


def test_every_round_of_a_decoding_is_timed(pair):
    found = decode(pair, [[1, 2, 3], [4, 5]], 3, 20)
    times = found.times
    rounds = found.rounds.groupby("round").agg(rows=("row", "size"), k=("drafted", "max"))
    assert times["round"].tolist() == rounds.index.tolist()
    assert times.rows.tolist() == rounds.rows.tolist() and times.k.tolist() == rounds.k.tolist()
    assert times.seconds.to_numpy() == pytest.approx((times.draft + times.verify + times.other).to_numpy())
    assert (times[["draft", "verify", "other"]] >= 0).all(axis=None)
    assert times.seconds.sum() <= found.seconds - found.prefill_seconds


def test_rounds_count_where_all_rows_take_part_and_the_draft_is_not_behind(pair):
    generator, random = torch.Generator().manual_seed(0), np.random.default_rng(0)
    times = time_rounds(pair, [[1, 2, 3], [4, 5, 6]], [2, 5], 60, Sampling(1.0), "sample", generator, random)
    assert set(times.rows) == {2} and {0, 2, 5} <= set(times.k)
    assert times.context.iloc[0] >= 3 and times.context.is_monotonic_increasing
    kept = times.set_index("round").k
    for number, k in kept.items():
        if k:  # the round before had drafts too, so it was kept or came after plain rounds itself
            assert number > 0 and kept.get(number - 1, 1) > 0


def test_a_table_has_every_batch_and_width_and_survives_a_file(pair, tmp_path):
    said = []
    table = measure_costs(pair, PROMPTS, [1, 4], [1, 2, 4], GREEDY, new_tokens=30, rounds=2, command="costs",
                          progress=lambda *line: said.append(line))
    for batch in (1, 4):
        assert set(table.at(batch).t_verify) == {1, 2, 4}
        rounds = table.meta["rounds"][str(batch)]
        assert set(rounds) == {"0", "1", "3"}
        assert all(one["count"] >= (2 if batch == 1 else 1) for one in rounds.values())
        low, middle, high = rounds["3"]["seconds"]
        assert low <= middle <= high and table.at(batch).round_seconds(3) == pytest.approx(middle)
        assert set(table.meta["forwards"][str(batch)]["verify"]) == {"1", "2", "4"}
    assert set(table.meta["peaks"]) == {"bandwidth", "flops", "bytes_per_number"}
    assert min(table.meta["peaks"].values()) > 0
    assert [line[1:] for line in said] == [(1, 2), (2, 2)]
    table.save(tmp_path / "costs.json")
    again = CostTable.load(tmp_path / "costs.json")
    assert again == table and again.meta["threads"] == torch.get_num_threads()
    json.dumps(again.document(), allow_nan=False)


@pytest.mark.parametrize("change, words", [
    ({"batches": []}, "at least one batch"), ({"batches": [0]}, "batch is 0"),
    ({"widths": [1]}, "width above 1"),
    ({"rounds": 0}, "rounds is 0"), ({"new_tokens": 4, "widths": [1, 9]}, "ask for more tokens"),
    ({"new_tokens": 5000}, "no room"),
])
def test_what_cannot_be_measured_is_refused(pair, change, words, monkeypatch):
    monkeypatch.setattr("course_lib.timing.MOST_GROUPS", 6)  # it gives up sooner
    with pytest.raises(ValueError, match=words):
        measure_costs(pair, PROMPTS, **{"batches": [1], "widths": [1, 2], **change})
