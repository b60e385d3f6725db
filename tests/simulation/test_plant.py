"""Planted faults that the simulation finds within a few seeds; `make soak` plants the others too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SEEDS = 12
QUICK = (
    (
        "acknowledged_before_the_flush",
        "recovery_drops_the_last_batch",
        "producers_forgotten_at_start",
        "duplicates_stored_again",
    ),
    (
        "one_duplicate_remembered",
        "high_watermark_goes_back",
        "index_off_by_one",
        "read_beyond_the_high_watermark",
    ),
    (
        "last_stable_offset_ignored",
        "aborts_become_commits",
        "offsets_before_their_commit",
        "offsets_of_transactions_lost",
    ),
    ("names_not_replayed",),
)


@pytest.mark.parametrize("faults", QUICK, ids=lambda faults: faults[0])
def test_a_planted_fault_is_found(faults: tuple[str, ...]) -> None:
    chosen = [part for fault in faults for part in ("--fault", fault)]
    command = [sys.executable, "-m", "tests.simulation.plant", "--seeds", str(SEEDS), "--jobs", "1", *chosen]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    counts = json.loads(run.stdout.splitlines()[-1])["counts"]
    assert counts["faults found"] == len(faults)
