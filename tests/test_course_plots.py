"""Protects what a reader gets besides the picture: its sentence, and how real its numbers are."""

import matplotlib.pyplot as plt
import pytest

from course_lib.plots import banner, show, style


def test_a_figure_needs_a_sentence():
    with pytest.raises(ValueError, match="says too little"):
        show(plt.figure(), "A plot.")


def test_show_displays_one_image_with_its_sentence_and_closes_it(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **kw: shown.append((data, kw)))
    style()
    figure, axes = plt.subplots()
    lines = [axes.plot([0, 1], [i, i])[0] for i in range(6)]
    show(figure, "Six flat lines at the\n  heights 0, 1, 2, 3, 4 and 5.")
    ((data, options),) = shown
    assert data["text/plain"] == options["metadata"]["image/png"]["alt"]
    assert data["text/plain"] == "Six flat lines at the heights 0, 1, 2, 3, 4 and 5."
    assert data["image/png"].startswith(b"\x89PNG") and len(data["image/png"]) < 60_000
    assert not plt.fignum_exists(figure.number)
    # Without colour they are still told apart.
    assert len({line.get_marker() for line in lines}) == 6


def test_banner_is_one_line_and_a_recording_says_where_it_is_from(capsys):
    banner("live", pair="smol", prompts=24, tokens=20_000)
    assert capsys.readouterr().out == (
        "LIVE: measured now, on this machine · pair smol · prompts 24 · tokens 20,000\n"
    )
    banner("computed", costs="roofline")
    assert capsys.readouterr().out == "COMPUTED: from formulas, nothing was run · costs roofline\n"
    with pytest.raises(ValueError, match="needs its date, command"):
        banner("recorded", machine="H100")
    with pytest.raises(ValueError, match="'guessed' is unknown"):
        banner("guessed")
