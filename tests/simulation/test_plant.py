"""Hunts for some planted faults, each beginning with the seed that found it last; `make soak` hunts all of
them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import plant
from tests.simulation.plant import Found, seeds_for
from tests.simulation.planted import FAULTS
from tests.simulation.planted.seeds import KEPT

SEEDS = 12
"""The number of seeds to try if the kept seed no longer finds its fault, because the order of events has
changed.
"""
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


def test_the_kept_seed_comes_first() -> None:
    fault, kept = next((fault, seed) for fault, seed in KEPT.items() if seed > 1)
    assert list(seeds_for(fault, range(kept + 2))) == [kept, *range(kept), kept + 1]
    unknown = next(fault for fault in FAULTS if fault not in KEPT)
    assert list(seeds_for(unknown, range(3))) == [0, 1, 2]


def test_every_kept_seed_is_of_a_fault() -> None:
    assert KEPT.keys() <= FAULTS.keys()


def test_seeds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "seeds.py"
    copy.write_text(plant.KEPT_IN.read_text())
    monkeypatch.setattr(plant, "KEPT_IN", copy)
    first, second = list(FAULTS)[:2]
    plant.keep([Found(first, 3, ("lost",), 41), Found(second, 60)])
    written: dict[str, object] = {}
    exec(copy.read_text(), written)
    assert written["KEPT"] == {**KEPT, first: 41}
