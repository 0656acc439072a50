"""Figures as data: what matplotlib drew on one machine is drawn again on another.

Kept are lines, bars, images, texts, scales, ticks and legends. The rest is the site's:
a clear background, and a grey that is readable on white and on black.
"""

from pathlib import Path

GREY = "#808080"
CELL = 3  # pixels: of the single points within so many, one is kept


def read(figure) -> dict:
    """What a matplotlib figure shows."""
    figure.canvas.draw()  # only then are the labels of ticks known
    return {
        "size": _numbers(figure.get_size_inches()),
        "legend": bool(figure.legends),
        "axes": [_axes(axes) for axes in figure.axes],
    }


def _axes(axes) -> dict:
    grid = axes.get_subplotspec()
    rows, columns, number, _ = grid.get_geometry() if grid else (1, 1, 0, 0)
    return {
        "grid": [int(rows), int(columns), int(number) + 1],
        "visible": axes.axison,
        "frame": axes.get_frame_on(),
        "legend": axes.get_legend() is not None,
        "title": axes.get_title(),
        "x": _scale(axes.xaxis, axes.get_xlim()),
        "y": _scale(axes.yaxis, axes.get_ylim()),
        "lines": [_line(axes, line) for line in axes.lines],
        "bars": [_bars(bars) for bars in axes.containers if hasattr(bars, "patches")],
        "images": [_image(image) for image in axes.images],
        "texts": [_text(text) for text in axes.texts],
    }


def _scale(axis, limits) -> dict:
    from matplotlib.category import StrCategoryLocator
    from matplotlib.ticker import FixedLocator

    found = {"label": axis.label.get_text(), "scale": axis.get_scale()}
    found["limits"] = _numbers(limits)
    if base := getattr(axis.get_transform(), "base", None):
        found["base"] = float(base)
    if isinstance(axis.get_major_locator(), FixedLocator | StrCategoryLocator):
        found["ticks"] = _numbers(axis.get_ticklocs())
        found["names"] = [label.get_text() for label in axis.get_ticklabels()]
    return found


def _line(axes, line) -> dict:
    x, y = map(_numbers, (line.get_xdata(), line.get_ydata()))
    across = {axes.get_yaxis_transform: "y", axes.get_xaxis_transform: "x"}
    whole = [
        name for get, name in across.items() if line.get_transform() == get("grid")
    ]
    if line.get_linestyle() == "None":
        x, y = _seen(axes, x, y)
    return {
        "label": _label(line),
        "x": x,
        "y": y,
        "whole": whole[0] if whole else "",  # a line from edge to edge at this x or y
        "style": {
            "color": _color(line.get_color()),
            "linestyle": line.get_linestyle(),
            "linewidth": line.get_linewidth(),
            "marker": str(line.get_marker()),
            "markersize": line.get_markersize(),
        },
    }


def _seen(axes, x: list, y: list) -> tuple[list, list]:
    """The points that are drawn apart from each other."""
    pixels = axes.transData.transform(list(zip(x, y, strict=True)))
    cells = {tuple(pixel // CELL): number for number, pixel in enumerate(pixels)}
    kept = sorted(cells.values())
    return [x[number] for number in kept], [y[number] for number in kept]


def _bars(bars) -> dict:
    places = [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in bars]
    x, y, width, height = zip(*places, strict=True) if places else ((),) * 4
    return {
        "label": _label(bars),
        "x": _numbers(x),
        "y": _numbers(y),
        "width": _numbers(width),
        "height": _numbers(height),
        "colors": [_color(patch.get_facecolor()) for patch in bars],
    }


def _image(image) -> dict:
    colors = image.get_cmap()(range(min(image.get_cmap().N, 16)))
    return {
        "rows": [_numbers(row) for row in image.get_array()],
        "colors": [_color(color) for color in colors],
        "extent": _numbers(image.get_extent()),
        "limits": _numbers(image.get_clim()),
    }


def _text(text) -> dict:
    # An annotation stands beside a point of the data, by so many points of the paper.
    at = getattr(text, "xy", None)
    return {
        "text": text.get_text(),
        "at": _numbers(text.get_position() if at is None else at),
        "offset": [0, 0] if at is None else _numbers(text.get_position()),
        "style": {
            "color": _color(text.get_color()),
            "fontsize": text.get_fontsize(),
            "ha": text.get_ha(),
            "va": text.get_va(),
        },
    }


def _label(artist) -> str:
    """The name in the legend; one that begins with _ is matplotlib's own."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _color(color) -> str:
    from matplotlib.colors import to_hex

    return to_hex(color, keep_alpha=True)


def _numbers(values) -> list[float]:
    """Numbers as short as a drawing can bear, whole ones without a point."""
    short = [float(f"{float(value):.5g}") for value in values]
    return [int(value) if value.is_integer() else value for value in short]


def draw(data: dict, file: Path) -> None:
    """Draw the figure that `read` has read, as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    same = {"svg.hashsalt": "opbook"}  # two builds make the same file
    with matplotlib.rc_context(same):
        figure = Figure(data["size"], facecolor="none", layout="constrained")
        for part in data["axes"]:
            _draw_axes(figure.add_subplot(*part["grid"]), part)
        if data["legend"]:
            place = {"loc": "outside upper center", "ncols": 3}
            figure.legend(frameon=False, labelcolor=GREY, **place)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _draw_axes(axes, data: dict) -> None:
    for image in data["images"]:
        _draw_image(axes, image)
    for bars in data["bars"]:
        _draw_bars(axes, bars)
    for line in data["lines"]:
        _draw_line(axes, line)
    for text in data["texts"]:
        axes.annotate(
            text["text"],
            text["at"],
            text["offset"],
            textcoords="offset points",
            **text["style"],
        )
    _draw_scale(axes, "x", data["x"])
    _draw_scale(axes, "y", data["y"])
    axes.set_title(data["title"], color=GREY)
    axes.tick_params(which="both", colors=GREY)
    axes.set(facecolor="none", frame_on=data["frame"])
    axes.spines[:].set_color(GREY)
    axes.set_axis_on() if data["visible"] else axes.set_axis_off()
    if data["legend"]:
        axes.legend(frameon=False, labelcolor=GREY)


def _draw_image(axes, image: dict) -> None:
    from matplotlib.colors import ListedColormap

    axes.imshow(
        image["rows"],
        cmap=ListedColormap(image["colors"]),
        extent=image["extent"],
        clim=image["limits"],
        interpolation="nearest",
    )


def _draw_bars(axes, bars: dict) -> None:
    axes.bar(
        bars["x"],
        bars["height"],
        bars["width"],
        bars["y"],
        align="edge",
        color=bars["colors"],
        label=bars["label"] or None,
    )


def _draw_line(axes, line: dict) -> None:
    if line["whole"]:
        edge_to_edge = axes.axhline if line["whole"] == "y" else axes.axvline
        edge_to_edge(line[line["whole"]][0], **line["style"])
    else:
        axes.plot(line["x"], line["y"], label=line["label"] or None, **line["style"])


def _draw_scale(axes, name: str, data: dict) -> None:
    base = {"base": data["base"]} if "base" in data else {}
    axes.set(**{f"{name}label": data["label"]})
    getattr(axes, f"set_{name}scale")(data["scale"], **base)
    axis = getattr(axes, f"{name}axis")
    axis.label.set_color(GREY)
    if "ticks" in data:
        axis.set_ticks(data["ticks"], data["names"])
        axis.set_ticks([], minor=True)
    axes.set(**{f"{name}lim": data["limits"]})
