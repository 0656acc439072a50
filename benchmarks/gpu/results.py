"""What the benchmarks measured, as docs/evidence has it."""

import json
from collections.abc import Callable
from pathlib import Path

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "gpu"

OURS = ("opbook", "opbook.triton")
LIMITS = ("copy", "F.linear", "product")
Row = dict


class Results:
    """The rows of one benchmark; a row holds a contender's time of one case."""

    def __init__(self, data: dict, origin: str) -> None:
        self.data, self.rows, self.origin = data, data["rows"], origin

    def __repr__(self) -> str:
        versions = [
            f"{name} {number}" for name, number in self.data["versions"].items()
        ]
        half = (len(versions) + 1) // 2  # two lines: one would be too long for a page
        lines = [f"{self.data['device']}, {self.origin}"]
        lines += [", ".join(versions[:half]), ", ".join(versions[half:])]
        if "seed" in self.data:
            lines.append(f"seed of the drawn shapes: {self.data['seed']}")
        return "\n".join(filter(None, lines))

    def row(self, contender: str, **case) -> Row:
        """The contender's row of a case, in which it has to be."""
        rows = [r for r in self.where(**case) if r["contender"] == contender]
        if len(rows) != 1:
            raise LookupError(f"{contender}: {len(rows)} results for {case}, not 1")
        return rows[0]

    def where(self, **case) -> list[Row]:
        """Rows that agree with all that is given."""
        return [row for row in self.rows if case.items() <= row.items()]

    def share(self, row: Row) -> float:
        """Part of the fastest copy's bandwidth that the least traffic made up."""
        return row["bytes"] / row["median"] / self.data["copy"]

    def dirty_share(self, row: Row) -> float | None:
        """The same by the dirty clock; None in results from before it was there."""
        taken = row.get("dirty median")
        return taken and row["bytes"] / taken / self.data["copy"]

    def rate(self, row: Row) -> float:
        """Part of the fastest matrix product's rate."""
        return row["operations"] / row["median"] / self.data["products"][row["dtype"]]

    def absent(self, **case) -> str:
        """Who could not take part and why, one per line."""
        rows = [row for row in self.data["absent"] if case.items() <= row.items()]
        lines = {f"{row['contender']}: {row['reason']}" for row in rows}
        return "\n".join(sorted(lines)) or "everyone took part"


def read(name: str) -> Results:
    """The results of the recording benchmark_NAME."""
    file = RECORDS / f"benchmark_{name}.json"
    if not file.exists():
        raise FileNotFoundError(
            f"docs/evidence/gpu/{file.name} is missing: on a GPU, run "
            f"`python3 -m nox -s prove -- gpu:{file.stem}`"
        )
    record = json.loads(file.read_text(encoding="utf-8"))
    return Results(record["detail"]["data"], f"recorded {record['date']}")


def shape_of(row: Row) -> str:
    return " × ".join(map(str, row["shape"]))


def fastest_peer(rows: list[Row], time: str = "median") -> Row:
    """The fastest of those that are not ours, are right and do all the work."""
    peers = [
        row
        for row in rows
        if row["contender"] not in OURS + LIMITS and not row["wrong"]
    ]
    if not peers:
        raise LookupError(f"no peer is right: {rows}")
    return min(peers, key=lambda row: row[time])


def by_contender(
    rows: list[Row], value: Callable, case: Callable = shape_of
) -> dict[str, dict[str, float]]:
    """Values by contender, then by case; a value that is None is left out."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if (number := value(row)) is not None:
            found.setdefault(row["contender"], {})[case(row)] = number
    return found
