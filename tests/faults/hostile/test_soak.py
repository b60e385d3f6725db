"""A short run of the soak."""

from __future__ import annotations

from pathlib import Path

from tests.faults.hostile.soak import soak


def test_attacks_drawn_by_chance(tmp_path: Path) -> None:
    counts, breaches = soak(tmp_path / "data", seconds=4, seed=20)
    assert not breaches
    assert counts["witness requests answered"] >= counts["attacks"]
    assert counts["limits reached"] > 0
