"""Figures with the sentence a screen reader says, and the banner that says how real a number is."""

import io
import warnings
from typing import Any

from matplotlib.figure import Figure

from course_lib.files import replacing

# Okabe and Ito's colours, ordered so that neighbours also differ in grey; each comes with its own
# line and marker, because a printed page and one reader in twelve do not see the colours.
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00"]
_LINES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1))]
_MARKERS = ["o", "s", "^", "D", "v", "P"]

_FIDELITY = {
    "simulated": "SIMULATED: coins and toy distributions, no language model",
    "recorded": "RECORDED: measured earlier, read from a file",
    "live": "LIVE: measured now, on this machine",
    "computed": "COMPUTED: from formulas, nothing was run",
}


def style() -> None:
    """Set matplotlib up for the course: legible at half size, readable in grey, small files."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=_COLOURS) + cycler(linestyle=_LINES) + cycler(marker=_MARKERS),
            "figure.figsize": (7.0, 4.0),
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "font.size": 13,
            "axes.titlesize": 14,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "lines.linewidth": 2.0,
            "lines.markersize": 6,
            "legend.frameon": False,
        }
    )


def show(figure: Figure, alt: str) -> None:
    """Display a figure with its alternative text, then close it.

    alt: one or two sentences that say what is plotted and what it shows, with the numbers. It is
        the image's alt attribute in HTML and the output's plain text, which is what nbval
        compares (the picture itself differs from machine to machine).
    Raises ValueError when alt is too short to say that.
    """
    from IPython.display import display
    from matplotlib import pyplot

    alt = " ".join(alt.split())
    if len(alt) < 20:
        raise ValueError(
            f"the figure's alt text says too little ({alt!r}): what is plotted, and what does it show?"
        )
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    pyplot.close(figure)  # or the notebook would draw it a second time, without alt text
    display({"image/png": png.getvalue(), "text/plain": alt}, metadata={"image/png": {"alt": alt}}, raw=True)


def banner(fidelity: str, **facts: Any) -> None:
    """Print one line that says how real the numbers below are.

    fidelity: "simulated", "recorded", "live" or "computed". facts: what a reader needs to judge or repeat
    them, in the order given: the seed, the pair, the device. A recording must name its
    `machine`, `date` and `command`.
    Raises ValueError for another fidelity or a recording without those three.
    """
    if fidelity not in _FIDELITY:
        raise ValueError(f"fidelity {fidelity!r} is unknown: use {', '.join(_FIDELITY)}.")
    missing = [
        name for name in ("machine", "date", "command") if fidelity == "recorded" and not facts.get(name)
    ]
    if missing:
        raise ValueError(f"a recorded number needs its {', '.join(missing)}: pass them to banner().")
    print(" · ".join([_FIDELITY[fidelity], *(f"{name} {_fact(value)}" for name, value in facts.items())]))


def _fact(value: Any) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000
        else str(value)
    )


def tokens_per_round_figure(table) -> tuple[Figure, str]:
    """Tokens per round against k, a line a route with its interval, and what i.i.d. acceptance would give.

    table: what `replay.tokens_per_round` returns. The dashed line of a route is the geometric formula
    with the α that explains its smallest k, so the two start together and part where acceptance is not
    independent. Returns the figure and its alternative text, for `show` or a page.
    """
    from matplotlib import pyplot

    from course_lib.theory import alpha_from_tokens, expected_tokens

    ks, prompts = sorted(table["k"].unique()), sorted(table["prompts"].unique())
    figure, axes = pyplot.subplots()
    sentences = []
    for number, (route, rows) in enumerate(table.groupby("route", sort=False)):
        rows = rows.sort_values("k")
        look = {"color": _COLOURS[number % len(_COLOURS)]}
        mark = {"marker": _MARKERS[number % len(_MARKERS)], "linestyle": _LINES[number % len(_LINES)]}
        k, mean = rows["k"].to_numpy(), rows["mean"].to_numpy()
        axes.plot(k, mean, label=route, **look, **mark)
        axes.fill_between(k, rows["low"], rows["high"], alpha=0.15, **look)
        alpha = alpha_from_tokens(float(mean[0]), int(k[0]))
        formula = [expected_tokens(alpha, int(each)) for each in k]
        axes.plot(k, formula, linestyle=(0, (4, 2)), linewidth=1, marker="", **look)
        sentences.append(f"{route} goes from {mean[0]:.2f} to {mean[-1]:.2f} (formula {formula[-1]:.2f})")
    axes.plot([], [], linestyle=(0, (4, 2)), linewidth=1, color="grey", marker="", label="i.i.d. formula")
    axes.set(xlabel="k, drafts a round", ylabel="tokens per round", xticks=ks)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)  # above: inside it would cover a band
    over = f"{prompts[0]} prompts" if len(prompts) == 1 else f"{prompts[0]} to {prompts[-1]} prompts"
    routes = _listed(list(table["route"].unique()))
    bands = f"Shaded bands are 95 % intervals over {over}"
    if prompts[0] == 1:
        bands = "One prompt gives no interval" if prompts[-1] == 1 else \
            f"Shaded bands are 95 % intervals over up to {prompts[-1]} prompts (none over a single one)"
    alt = (f"Tokens per round against k for {routes}, k from {ks[0]} to {ks[-1]}: {'; '.join(sentences)}. "
           f"{bands}; dashed lines are the i.i.d. formula with the α "
           f"that fits k = {ks[0]}.")
    return figure, alt


def speedup_by_k_figure(document: dict, load: int, most: int = 6) -> tuple[Figure, str]:
    """Speedup against k at one load, a line a route: predicted with its interval, and measured where it is.

    document: what `sweep.decide` or `sweep.check` returns, None where a number is unknown. most: how many
    routes are drawn, those with most tokens; more lines cannot be told apart. Returns the figure and its
    alternative text, with every number drawn.
    """
    figure, said = _speedups(
        [(route, [(row["k"], row["predicted"], row["predicted_low"], row["predicted_high"], row["measured"])
                  for row in found["loads"][str(load)]["table"]])
         for route, found in _most_tokens(document, most) if str(load) in found["loads"]], "k = ")
    figure.axes[0].set(xlabel="k, drafts a round", ylabel="speedup", xticks=document["ks"],
                       title=f"load {load}")
    return figure, f"Predicted speedup against k at load {load}: {said}"


def speedup_by_load_figure(document: dict, most: int = 6) -> tuple[Figure, str]:
    """The best k's predicted speedup against the load; arguments and return as `speedup_by_k_figure`."""
    routes = _most_tokens(document, most)
    loads = sorted({int(load) for _, found in routes for load in found["loads"]})
    figure, said = _speedups(
        [(route, [(load, one["speedup"], *(one["speedup_interval"] or (None, None)), None)
                  for load in loads if (one := found["loads"].get(str(load)))])
         for route, found in routes], "")
    axes = figure.axes[0]
    axes.set_xscale("log", base=2)
    axes.set_xticks(loads, [str(load) for load in loads])
    axes.minorticks_off()
    axes.set(xlabel="load, requests decoded together", ylabel="speedup at the best k")
    return figure, f"Predicted speedup at the best k, by load: {said}"


def svg(figure: Figure) -> str:
    """The figure as SVG with its words as text: small, sharp in print, the same bytes each time."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "course_lib"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's own fonts will have it
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _speedups(series: list[tuple[str, list[tuple]]], at: str) -> tuple[Figure, str]:
    """Lines through (x, speedup, low, high, measured), and the sentence with their numbers."""
    figure = Figure()
    axes = figure.subplots()
    axes.axhline(1, color="black", linewidth=1, linestyle="-", marker="")
    lines, names, sentences, hollow = [], [], [], {"linestyle": "", "markersize": 10, "fillstyle": "none"}
    for number, (route, points) in enumerate(series):
        points = [point for point in points if point[1] is not None]
        look = {"color": _COLOURS[number % len(_COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
        lines += axes.plot([point[0] for point in points], [point[1] for point in points],
                           linestyle=_LINES[number % len(_LINES)], **look)
        # A legend shows neither a name that begins with _ nor, legibly, a very long one.
        name = route if len(route) < 25 else route[:24] + "…"
        names.append(f" {name}" if name.startswith("_") else name)
        band = [point for point in points if None not in point[2:4]]
        axes.fill_between([point[0] for point in band], [point[2] for point in band],
                          [point[3] for point in band], alpha=0.15, color=look["color"])
        real = [point for point in points if point[4] is not None]
        axes.plot([point[0] for point in real], [point[4] for point in real], **look | hollow)
        sentences.append(f"{route} {', '.join(f'{y:.2f} at {at}{x}' for x, y, *_ in points) or 'unknown'}"
                         + (f" (measured {', '.join(f'{point[4]:.2f} at {at}{point[0]}' for point in real)})"
                            if real else ""))
    if any(point[4] is not None for _, points in series for point in points):
        lines += axes.plot([], [], color="grey", marker="o", **hollow)
        names.append("measured")
    axes.legend(lines, names)
    return figure, (f"{'; '.join(sentences)}. Shaded bands are 95 % intervals over prompts; below 1 "
                    "speculation is slower.")


def _most_tokens(document: dict, most: int) -> list[tuple[str, dict]]:
    """The routes with most tokens, in the order of the document."""
    kept = sorted(document["routes"], key=lambda route: -document["routes"][route]["tokens"])[:most]
    return [(route, found) for route, found in document["routes"].items() if route in kept]


def save(figure: Figure, path) -> None:
    """Write the figure as PNG, under another name first, and close it."""
    from matplotlib import pyplot

    try:
        with replacing(path) as part:
            figure.savefig(part, format="png", dpi=150, metadata={"Software": None})
    finally:
        pyplot.close(figure)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
