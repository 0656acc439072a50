"""What the pages on benchmarks say of made-up results."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib.figure", reason="needs matplotlib")
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"))
import charts  # found through the line above
import results
import targets

SHAPE = (8, 64)


def row(contender: str, median: float, **more) -> dict:
    """A row of 200 bytes; the fastest copy of `made_up` moves 2 in a microsecond."""
    case = {"task": "forward", "shape": list(SHAPE), "form": "tanh", "dtype": "bf16"}
    found = {"median": median, "bytes": 200, "error": 0.5, "wrong": False}
    return {"contender": contender} | case | found | more


def made_up(*rows: dict, absent: tuple = ()) -> results.Results:
    data = {"device": "NVIDIA H200", "versions": {}, "rows": rows, "absent": absent}
    return results.Results(data | {"copy": 2, "products": {"bf16": 1}}, "made up")


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """Keep the data of a benchmark as its recording has it."""
    monkeypatch.setattr(results, "RECORDS", tmp_path)

    def keep(name: str, data: dict) -> None:
        record = {"date": "2026-01-02", "detail": {"data": data}}
        (tmp_path / f"benchmark_{name}.json").write_text(json.dumps(record))

    return keep


def test_results_say_where_they_are_from(keep):
    keep("toy", made_up(row("one", 1)).data)
    assert repr(results.read("toy")) == "NVIDIA H200, recorded 2026-01-02"
    said = "docs/evidence/gpu/benchmark_lost.json is missing: on a GPU, run "
    with pytest.raises(FileNotFoundError, match=said):
        results.read("lost")


VERDICTS = [
    (200, 300, "met"),
    (201, 300, "missed"),
    (151, 150, "met"),  # behind, by less than the noise
    (152, 150, "met, a peer is ahead"),
    (300, 150, "missed, a peer is ahead"),
]


@pytest.mark.parametrize(("ours", "peer", "verdict"), VERDICTS)
def test_targets_and_peers(monkeypatch, ours, peer, verdict):
    monkeypatch.setattr(targets, "SHARES", {"forward": {SHAPE: 0.5}})
    monkeypatch.setattr(targets, "NOISE", 1.01)
    rows = [row("opbook", ours), row("slow", 2 * peer), row("peer", peer)]
    # None of these is a peer: a limit, ours, and one that is not right.
    rows += [row(name, 1) for name in ("copy", "opbook.triton")]
    rows += [row("liar", 1, wrong=True), row("peer", 1, task="backward")]
    share = f"{100 / ours:.1%}"
    assert charts.share_table(made_up(*rows), "forward").rows == [
        ["8 × 64", "50%", share, f"{100 / peer:.1%}, peer", verdict]
    ]
    assert charts.time_table(made_up(*rows), [list(SHAPE)], "forward").rows == [
        ["8 × 64", f"{ours:.1f} µs", f"{peer:.1f} µs, peer", "1.0 µs"]
    ]


@pytest.mark.parametrize(("ours", "verdict"), [(102, "met"), (103, "missed")])
def test_ratio_to_another(monkeypatch, ours, verdict):
    monkeypatch.setattr(targets, "RATIOS", {"tanh": {"F.linear": 1.02}})
    rows = [row("opbook", ours), row("F.linear", 100), row("opbook", 1, form="none")]
    assert charts.ratio_table(made_up(*rows)).rows == [
        ["tanh", "bf16", "F.linear", "1.02", f"{ours / 100:.3f}", verdict]
    ]


@pytest.mark.parametrize("contenders", [("peer",), ("opbook",), ("opbook", "copy")])
def test_a_case_without_results_is_named(monkeypatch, contenders):
    monkeypatch.setattr(targets, "SHARES", {"forward": {SHAPE: 0.5}})
    missing = "opbook" if "opbook" not in contenders else "no peer"
    rows = [row(name, 100) for name in contenders]
    with pytest.raises(LookupError, match=missing):
        charts.share_table(made_up(*rows), "forward")
    monkeypatch.setattr(targets, "RATIOS", {"tanh": {"F.linear": 1.02}})
    missing = "opbook" if "opbook" not in contenders else "F.linear"
    with pytest.raises(LookupError, match=missing):
        charts.ratio_table(made_up(*rows))


def test_wrong_results_are_called_wrong():
    rows = [row("opbook", 1, error=0.5), row("opbook", 1, error=0.25)]
    rows += [row("liar", 1, error=0.5), row("liar", 1, error=9, wrong=True)]
    assert charts.error_table([*rows, row("copy", 1, error=None)]).rows == [
        ["opbook", "0.50", "right"],
        ["liar", "9.00", "wrong"],
    ]


def test_the_missing_are_named():
    absent = [{"task": "forward", "contender": "Liger", "reason": "not installed"}]
    found = made_up(absent=absent)
    assert found.absent(task="forward") == "Liger: not installed"
    assert found.absent(task="backward") == "everyone took part"


def test_table_for_a_page():
    html = charts.Table(["head"], [["a < b"]])._repr_html_()
    assert "<th>head</th>" in html
    assert "<td>a &lt; b</td>" in html


def test_a_dot_for_each_value(monkeypatch):
    rows = [row("opbook", 200), row("opbook", 125, shape=[4])]
    rows += [row("eager", 400, shape=[4])]
    axes = []
    values = results.by_contender(rows, made_up(*rows).share)
    assert values == {"opbook": {"8 × 64": 0.5, "4": 0.8}, "eager": {"4": 0.25}}
    monkeypatch.setattr(charts, "show", axes.append)
    charts.shares(values, "the copy")
    [axis] = axes
    drawn = {line.get_label(): line.get_data() for line in axis.lines}
    cases = [label.get_text() for label in axis.get_yticklabels()]
    for name, shares in values.items():
        dots = zip(*drawn[name], strict=True)
        assert {cases[round(height)]: share for share, height in dots} == shares


def test_the_worst_case_comes_first_by_either_clock():
    def both(contender: str, clean: float, dirty: float, **case) -> dict:
        return row(contender, clean, **{"dirty median": dirty}, **case)

    judged = {"task": "drawn forward", "shape": [5, 7]}
    rows = [both("opbook", 100, 120), both("peer", 90, 120), both("copy", 1, 1)]
    rows += [both("opbook", 50, 80, **judged), both("peer", 60, 40, **judged)]
    rows += [both("opbook", 9, 9, task="add"), both("peer", 1, 1, task="add")]
    tasks = ("forward", "drawn forward")
    assert charts.behind_table(made_up(*rows), *tasks).rows == [
        ["drawn forward", "5 × 7", "dirty", "80.0 µs", "peer", "40.0 µs", "2.00"],
        ["forward", "8 × 64", "clean", "100.0 µs", "peer", "90.0 µs", "1.11"],
    ]
    clean, clean_ratios, _, dirty_ratios = charts.summary(
        made_up(*rows), *tasks
    ).splitlines()
    assert clean == "clean clock: 1 of 2 cases ahead or within 1%"
    assert clean_ratios.endswith("0.83 to 1.11")
    assert dirty_ratios.endswith("1.00 to 2.00")
    ahead = made_up(row("opbook", 1), row("peer", 2))
    assert charts.behind_table(ahead, "forward").rows[0][0] == "none"
    assert "dirty" not in charts.summary(ahead, "forward")


def test_another_seed_draws_other_shapes():
    import random

    import linear_gelu
    import rms_norm

    for drawn in (rms_norm.drawn, linear_gelu.drawn):
        shapes = drawn(random.Random(1), 40)
        assert shapes == drawn(random.Random(1), 40)
        assert shapes != drawn(random.Random(2), 40)
        assert len(set(shapes)) == 40
    widths = [hidden for _, hidden in rms_norm.drawn(random.Random(1), 200)]
    assert 64 <= min(widths) <= max(widths) <= 65536
    assert {width % 8 == 0 for width in widths} == {True, False}
