"""Sliders over a figure, and a still of it where nobody can move them: on a page, in a test."""

import base64
import io
from collections.abc import Callable
from html import escape

from matplotlib.figure import Figure

LIVE = "application/vnd.jupyter.widget-view+json"


def explore(draw: Callable[..., tuple[Figure, str]], **sliders: tuple[float, float, float, float]) -> None:
    """Show `draw` with one slider for each of its arguments.

    draw: given a value for each slider, returns a figure and its alternative text, as for `plots.show`.
    sliders: name=(least, most, step, start); whole numbers make a slider of whole numbers.
    What is displayed holds both the sliders and a still of the start, and each reader takes what it can:
    a running notebook the sliders; a page, a printer, nbval and a screen reader the still and its text.
    """
    import ipywidgets as widgets
    from IPython.display import display

    controls = {
        name: (widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider)(
            start, min=least, max=most, step=step, description=name, continuous_update=False
        )
        for name, (least, most, step, start) in sliders.items()
    }
    picture = widgets.HTML()

    def renew(_=None) -> tuple[bytes, str]:
        png, alt = _png(*draw(**{name: control.value for name, control in controls.items()}))
        source = base64.b64encode(png).decode()
        picture.value = f'<img src="data:image/png;base64,{source}" alt="{escape(alt)}"><p>{escape(alt)}</p>'
        return png, alt

    png, alt = renew()
    for control in controls.values():
        control.observe(renew, "value")
    live = widgets.VBox([*controls.values(), picture])._repr_mimebundle_()[LIVE]
    display({LIVE: live, "image/png": png, "text/plain": alt}, metadata={"image/png": {"alt": alt}}, raw=True)


def _png(figure: Figure, alt: str) -> tuple[bytes, str]:
    from matplotlib import pyplot

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    pyplot.close(figure)
    return buffer.getvalue(), " ".join(alt.split())
