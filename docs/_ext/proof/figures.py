"""Figures that matplotlib drew, as SVG that is readable on white and on black."""

import importlib.util
import io
import sys

GREY = "#808080"
CELL = 3  # pixels
STYLE = {
    "svg.fonttype": "none",  # text stays text, for readers, searches and diffs
    "svg.hashsalt": "opbook",  # two runs make the same file
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
}


def use_style() -> None:
    """Let matplotlib draw so in this process, where it is installed."""
    if importlib.util.find_spec("matplotlib"):
        import matplotlib

        matplotlib.rcParams.update(STYLE)


def drawn() -> list[dict[str, str]]:
    """The figures that are still open: drawing and description; close them.

    Agg shows none and closes none.
    """
    if not (plots := sys.modules.get("matplotlib.pyplot")):
        return []
    found = [plots.figure(number) for number in plots.get_fignums()]
    shown = [{"svg": svg(figure), "alt": description(figure)} for figure in found]
    plots.close("all")
    return shown


def svg(figure) -> str:
    """The drawing, the same text in each run."""
    figure.canvas.draw()  # only then is it known where a point lies
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_linestyle() == "None" and len(line.get_xdata()):
                _thin_out(axes, line)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _thin_out(axes, line) -> None:
    """Keep one of the points that lie within CELL pixels of each other."""
    points = list(zip(*line.get_data(), strict=True))
    pixels = axes.transData.transform(points)
    seen = {
        tuple(pixel // CELL): point for pixel, point in zip(pixels, points, strict=True)
    }
    line.set_data(*zip(*seen.values(), strict=True))


def description(figure) -> str:
    """What the drawing shows, for those who do not see it."""
    texts = [figure.get_suptitle()]
    for axes in figure.axes:
        labels = axes.get_legend_handles_labels()[1]
        texts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), *labels]
    return "; ".join(dict.fromkeys(filter(None, texts))) or "Chart"
