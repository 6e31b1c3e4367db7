"""Protects the roofline: parameter counts to the last one, its two regimes, what batch and context do."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.fetch import ROOT
from course_lib.roofline import (
    DEVICES,
    MODELS,
    Device,
    Model,
    forward_seconds,
    roofline_costs,
    rows_that_fit,
    scaled_costs,
)

H100 = DEVICES["h100"]
TARGET, DRAFT = MODELS["llama-3.1-8b"], MODELS["llama-3.2-1b"]
TOY = Model("toy", layers=2, hidden=8, ffn=16, heads=4, kv_heads=2, vocab=32, tied=False)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("llama-3.2-1b", 1_235_814_400), ("llama-3.2-3b", 3_212_749_824), ("llama-3.1-8b", 8_030_261_248),
     ("llama-3.1-70b", 70_553_706_496), ("smollm2-135m", 134_515_008)],
)  # fmt: skip
def test_parameters_to_the_last_one(name, parameters):
    assert MODELS[name].parameters == parameters


def test_a_toy_model_counted_by_hand():
    attention = 8 * 8 + 2 * 8 * 4 + 8 * 8  # q, then k and v of two heads of two, then o
    layer = attention + 3 * 8 * 16
    assert TOY.matrices == 2 * layer + 32 * 8
    assert TOY.weights_read == TOY.matrices + (2 + 2 + 1) * 8
    assert TOY.parameters == TOY.weights_read + 32 * 8  # its embedding, of which a step reads single rows
    assert TOY.cache_numbers == 2 * 2 * 2 * 2


def test_shapes_come_from_a_hugging_face_config():
    config = {
        "model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
        "tie_word_embeddings": True,
    }  # fmt: skip
    assert Model.from_config(config, "Llama-3.2-1B") == DRAFT
    every_head = {key: value for key, value in config.items() if key != "num_key_value_heads"}
    assert Model.from_config(every_head).kv_heads == 32  # the default of transformers
    wide = Model.from_config({**config, "head_dim": 128})
    assert wide.matrices > DRAFT.matrices and wide.cache_numbers == 2 * DRAFT.cache_numbers
    with pytest.raises(ValueError, match="num_local_experts"):
        Model.from_config({**config, "num_local_experts": 8})
    with pytest.raises(ValueError, match="lacks 'hidden_size'"):
        Model.from_config({"num_hidden_layers": 12, "n_embd": 768})
    with pytest.raises(ValueError, match="must divide"):
        Model.from_config({**config, "num_key_value_heads": 5})


def test_the_embedded_target_has_its_shape():
    config = ROOT / "data" / "models" / "smollm2-135m-instruct" / "config.json"
    if not config.exists():
        pytest.skip("the target is not fetched: python -m course_lib fetch")
    read = Model.from_config(json.loads(config.read_text()), MODELS["smollm2-135m"].name)
    assert read == MODELS["smollm2-135m"]


def test_ridges():
    found = {name: round(device.ridge) for name, device in DEVICES.items()}
    assert found == {"h100": 295, "h200": 206, "a100": 153, "l4": 403, "mi300x": 247}


def test_one_token_takes_the_time_of_reading_everything_once():
    seconds = forward_seconds(TARGET, H100, batch=1, width=1, context=0)
    read = 2 * (TARGET.weights_read + TARGET.cache_numbers)
    assert seconds == pytest.approx(read / 3.35e12) == pytest.approx(4.48e-3, abs=5e-6)
    # A cache of 1000 tokens in 64 rows: 64,000 * 131,072 bytes more.
    more = forward_seconds(TARGET, H100, batch=64, width=1, context=1000) - seconds
    assert more == pytest.approx((64 * 1001 - 1) * 131_072 / 3.35e12)


def test_many_tokens_take_the_time_of_their_arithmetic():
    seconds = forward_seconds(TARGET, H100, batch=1024, width=8, context=0)
    matrices = 2 * TARGET.matrices * 8192 / 989e12
    assert matrices < seconds < 1.05 * matrices


def test_arithmetic_counted_by_hand_where_reading_is_free():
    device = Device("any bandwidth", bandwidth=1e30, flops=1.0)
    # Each of 3 rows: its first new token looks at 5 + 1 tokens, its second at 5 + 2. A score and a weighted
    # sum for each, a multiplication and an addition in either, for each of 4 heads of 2, in 2 layers.
    attention = 3 * (6 + 7) * (2 * 2 * 4 * 2 * 2)
    assert forward_seconds(TOY, device, batch=3, width=2, context=5) == 2 * TOY.matrices * 6 + attention


def test_width_is_free_until_the_ridge_and_paid_in_full_beyond_it():
    step = forward_seconds(TARGET, H100, batch=8)
    assert forward_seconds(TARGET, H100, batch=8, width=8) / step < 1.01  # 64 tokens in flight
    assert forward_seconds(TARGET, H100, batch=8, width=36) / step < 1.02  # 288
    assert forward_seconds(TARGET, H100, batch=8, width=74) / step == pytest.approx(2.0, rel=0.02)  # 592
    full = forward_seconds(TARGET, H100, batch=512)
    assert forward_seconds(TARGET, H100, batch=512, width=8) / full == pytest.approx(8, rel=0.02)


def test_arithmetic_of_the_matrices_does_not_hide_behind_the_cache():
    """Matrices and attention wait for each other: at 512 rows of 1000 tokens both count in full."""
    cache = 512 * 1000 * 131_072 / 3.35e12
    matrices = 2 * TARGET.matrices * 512 * 4 / 989e12
    assert forward_seconds(TARGET, H100, 512, 4, 1000) > 0.99 * (cache + matrices)


@given(st.integers(1, 64), st.integers(1, 16), st.integers(0, 5000), st.sampled_from([1, 2, 4, 8]))
def test_more_of_anything_never_takes_less(batch, width, context, tp):
    here = forward_seconds(TARGET, H100, batch, width, context, tp)
    assert forward_seconds(TARGET, H100, batch + 1, width, context, tp) > here
    assert forward_seconds(TARGET, H100, batch, width + 1, context, tp) > here
    assert forward_seconds(TARGET, H100, batch, width, context + 1, tp) > here
    # Two rows of one token never beat one row of two: the row's cache would be read twice.
    assert forward_seconds(TARGET, H100, 2 * batch, width, context, tp) >= forward_seconds(
        TARGET, H100, batch, 2 * width, context, tp
    ) * (1 - 1e-9) or context < 2 * width


def test_tensor_parallel_shares_the_work_but_copies_kv_heads_past_their_number():
    alone = forward_seconds(TARGET, H100, batch=4, context=2000)
    assert forward_seconds(TARGET, H100, batch=4, context=2000, tp=4) == pytest.approx(alone / 4)
    cache = 4 * 2001 * 131_072 / 3.35e12
    sixteen = forward_seconds(TARGET, H100, batch=4, context=2000, tp=16)
    assert sixteen == pytest.approx((alone - cache) / 16 + cache / 8)
    with pytest.raises(ValueError, match="tp=3 does not divide the 32 heads"):
        forward_seconds(TARGET, H100, tp=3)


def test_the_8b_and_1b_pair_on_an_h100_stops_paying_with_load_and_later_with_long_context():
    def best(batch, context):
        return roofline_costs(TARGET, DRAFT, H100, batch, context, max_k=12).best_k(0.74, 12)

    assert best(1, 100)[0] in (3, 4) and best(1, 100)[1] == pytest.approx(1.80, abs=0.01)
    assert best(256, 100) == (0, 1.0)
    assert best(256, 1000)[1] > 1.1  # the cache, read once for all drafts of a row, pays for them
    speedups = [best(batch, 1000)[1] for batch in (1, 8, 32, 64, 128, 256)]
    assert speedups == sorted(speedups, reverse=True)


def test_roofline_costs_are_the_forwards_of_both_models():
    costs = roofline_costs(TARGET, DRAFT, H100, batch=16, context=500, max_k=4, tp=2)
    assert costs.t_draft == forward_seconds(DRAFT, H100, 16, 1, 500, 2) and costs.overhead == 0
    assert costs.t_verify == {w: forward_seconds(TARGET, H100, 16, w, 500, 2) for w in (1, 2, 3, 4, 5)}
    with pytest.raises(ValueError, match="largest width is 5"):
        costs.round_seconds(5)


def test_a_draft_on_one_device_takes_its_time_alone():
    alone = roofline_costs(TARGET, DRAFT, H100, batch=4, context=500, max_k=2, tp=4, draft_tp=1)
    assert alone.t_draft == forward_seconds(DRAFT, H100, 4, 1, 500)
    assert alone.t_verify == roofline_costs(TARGET, DRAFT, H100, 4, 500, 2, tp=4).t_verify


def test_rows_that_fit_counted_by_hand():
    """A draft takes room twice: for its weights once, and for its cache in every row."""
    l4 = DEVICES["l4"]  # 24 GB, 21.6 of them for weights and caches
    weights, draft = 2 * 8_030_261_248, 2 * 1_235_814_400
    row, draft_row = 2 * 32 * 8 * 128 * 2 * 2000, 2 * 16 * 8 * 64 * 2 * 2000  # bytes of 2,000 tokens
    assert rows_that_fit([TARGET], l4, 2000) == (21_600_000_000 - weights) // row == 21
    both = (21_600_000_000 - weights - draft) // (row + draft_row)
    assert rows_that_fit([TARGET, DRAFT], l4, 2000) == both == 9
    assert rows_that_fit([TARGET], l4, 2000, share=1.0) == (24_000_000_000 - weights) // row
    big = MODELS["llama-3.1-70b"]  # 141 GB: over two cards, barely; each row's eight KV heads over all four
    assert rows_that_fit([big], H100, 1000) == 0
    assert rows_that_fit([big], H100, 1000, tp=4) == (4 * 72_000_000_000 - 2 * big.parameters) // 327_680_000
    # Sixteen devices copy the KV heads: half of each device's share of a row is a copy.
    assert rows_that_fit([TARGET], l4, 2000, tp=16) == int((21.6e9 - weights / 16) // (row / 8))


def test_rows_are_refused_where_memory_is_unknown():
    with pytest.raises(ValueError, match="nobody said how much memory"):
        rows_that_fit([TARGET], Device("mine", 1e11, 1e13), 100)
    with pytest.raises(ValueError, match="1 or more"):
        rows_that_fit([TARGET], H100, 0)
    with pytest.raises(ValueError, match="above 0"):
        Device("none", 1e11, 1e13, memory=0)


def test_numbers_of_four_bytes_take_twice_as_long_to_read():
    half = Device("cpu, bf16", 20e9, 1e12)
    full = Device("cpu, float32", 20e9, 1e12, bytes_per_number=4)
    assert forward_seconds(TOY, full) == pytest.approx(2 * forward_seconds(TOY, half))
    with pytest.raises(ValueError, match="above 0"):
        Device("none", 0.0, 1e12)
    with pytest.raises(ValueError, match="1 or more"):
        forward_seconds(TOY, full, batch=0)


@pytest.mark.parametrize("load", [1, 8, 32, 64, 256])
def test_scaled_costs_are_the_roofline_without_attention(load):
    step = forward_seconds(TARGET, H100)
    bound = roofline_costs(TARGET, DRAFT, H100, load, context=0, max_k=16)
    scaled = scaled_costs(forward_seconds(DRAFT, H100) / step, load, ridge=H100.ridge)
    assert scaled.t_draft == pytest.approx(bound.t_draft / step, rel=0.02)
    for width, seconds in bound.t_verify.items():
        assert scaled.t_verify[width] == pytest.approx(seconds / step, rel=0.02)


def test_scaled_costs_by_hand():
    one = scaled_costs(0.1, per_token=0.02, overhead=0.05, max_k=4)
    assert one.round_seconds(4) == pytest.approx(4 * 0.1 + 1 + 4 * 0.02 + 0.05)
    crowd = scaled_costs(0.1, load=10, per_token=0.02, overhead=0.05, ridge=20, max_k=4)
    assert crowd.t_draft == pytest.approx(0.1 * (1 + 9 * 0.02))  # 10 tokens in flight: below the ridge
    assert crowd.t_verify[1] == pytest.approx(1 + 9 * 0.02)
    assert crowd.t_verify[5] == pytest.approx(50 / 20 + 49 * 0.02)  # 50: above it
    assert crowd.overhead == 0.05
    for bad in ({"c": -0.1}, {"load": 0}, {"ridge": 0}, {"per_token": -1}, {"overhead": float("nan")}):
        with pytest.raises(ValueError):
            scaled_costs(**{"c": 0.1, **bad})
