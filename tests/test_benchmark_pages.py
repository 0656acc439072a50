"""What the pages on benchmarks say of made-up results."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks" / "gpu"))
import results
from results import record

SOURCE = "README.md"  # any file of the repository


@pytest.mark.parametrize(
    ("change", "is_stale"),
    [
        ({}, False),
        ({"command": "measure less"}, True),
        ({"sources": {SOURCE: "the digest of another content"}}, True),
        ({"sources": {}}, True),  # a file that has become a source
    ],
    ids=["fresh", "command", "source", "new-source"],
)
def test_stale_recording_is_labelled(tmp_path, monkeypatch, change, is_stale):
    entry = record.Entry("benchmark_toy_h200", "measure", (SOURCE,))
    monkeypatch.setattr(record, "manifest", lambda: {entry.name: entry})
    monkeypatch.setattr(record, "RECORDINGS", tmp_path)
    monkeypatch.setattr(results.torch.cuda, "is_available", lambda: False)
    recording = {
        "command": entry.command,
        "date": "2026-01-02",
        "sources": record.digests(record.files(entry.sources)),
        "data": {"device": "NVIDIA H200", "versions": {}, "rows": []},
    }
    entry.file.write_text(json.dumps(recording | change))
    said = repr(results.read("toy"))
    assert "NVIDIA H200, recorded 2026-01-02" in said
    assert ("stale" in said) == is_stale
