"""Protects sliders: every reader gets something, and what is stored points at no kernel that has ended."""

import base64

import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.course.execute import execute
from course_lib.course.explore import LIVE, explore


@pytest.fixture
def shown(monkeypatch):
    bundles = []
    monkeypatch.setattr("IPython.display.display", lambda data, **more: bundles.append((data, more)))
    return bundles


def draw(alpha, k):
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, k], [0, alpha])
    return figure, f"""A line that ends at
        alpha {alpha} & k {k}."""


def test_the_still_and_its_text_stand_beside_the_sliders(shown):
    explore(draw, alpha=(0.0, 1.0, 0.1, 0.8), k=(0, 8, 1, 4))
    [(data, more)] = shown
    assert data["text/plain"] == "A line that ends at alpha 0.8 & k 4."
    assert more == {"metadata": {"image/png": {"alt": data["text/plain"]}}, "raw": True}
    assert data["image/png"].startswith(b"\x89PNG") and data[LIVE]["model_id"]


def test_a_moved_slider_draws_anew(shown, monkeypatch):
    import ipywidgets

    made = []
    boxed = ipywidgets.VBox
    monkeypatch.setattr(ipywidgets, "VBox", lambda children: made.append(children) or boxed(children))
    explore(draw, alpha=(0.0, 1.0, 0.1, 0.8), k=(0, 8, 1, 4))
    alpha, k, picture = made[0]
    assert isinstance(alpha, ipywidgets.FloatSlider) and isinstance(k, ipywidgets.IntSlider)
    assert base64.b64encode(shown[0][0]["image/png"]).decode() in picture.value
    k.value = 7
    assert 'alt="A line that ends at alpha 0.8 &amp; k 7."' in picture.value
    assert base64.b64encode(shown[0][0]["image/png"]).decode() not in picture.value


@pytest.mark.slow
def test_a_stored_notebook_keeps_the_still_alone(tmp_path):
    cell = new_code_cell(
        "from matplotlib.figure import Figure\n"
        "from course_lib.course.explore import explore\n"
        "explore(lambda k: (Figure(), f'Nothing, for k {k}.'), k=(0, 8, 1, 4))"
    )
    notebook = execute(new_notebook(cells=[cell]), tmp_path, "sliders")
    [output] = notebook.cells[0].outputs
    assert output.data.keys() == {"image/png", "text/plain"}
    assert output.data["text/plain"] == "Nothing, for k 4."
    assert "widgets" not in notebook.metadata
