"""Run a script of this folder under ncu, and read what it counted."""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import nvcc


def counted(
    script: str, kernels: str, metrics: list[str], launches: int, *options: str
) -> list[dict]:
    """What ncu counts of the launches of some kernels, in their order.

    ``script launch`` has to launch them. The clocks stay as they are. A metric that
    this ncu lacks is left out of the result.

    Args:
        script: The file to run, with ``launch`` as its argument.
        kernels: A regular expression that the kernels' names begin with.
        metrics: The names of the metrics.
        launches: How many there have to be.
        options: Further ones of ncu.

    Returns:
        For each launch its metrics, and the kernel's name under ``Kernel Name``.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        command = [nvcc.path("ncu"), "--kernel-name", f"regex:{kernels}"]
        command += ["--clock-control", "none", "--metrics", ",".join(metrics)]
        command += ["--csv", "--print-units", "base"]
        command += [*options, "--log-file", str(log)]
        command += [sys.executable, script, "launch"]
        done = subprocess.run(command, capture_output=True, text=True)
        text = log.read_text() if log.exists() else ""
    found: dict[int, dict] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line[:1] == '"'):
        launch = found.setdefault(int(row["ID"]), {"Kernel Name": row["Kernel Name"]})
        if "n/a" not in row["Metric Value"]:
            launch[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    if done.returncode or len(found) != launches:
        seen = f"ncu saw {len(found)} launches, not {launches}"
        sys.exit(f"{seen}\n{text}{done.stdout}{done.stderr}")
    return [found[number] for number in sorted(found)]
