"""Every planted fault has a kept seed that shows the fault, and that the sound code passes.

A change of the order of events can move a seed. Then some further seeds are tried, and the output says that another one
must be kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.simulation import plant
from tests.simulation.plant import Found, seeds_for
from tests.simulation.planted import FAULTS
from tests.simulation.planted.seeds import KEPT
from tests.simulation.worlds import World

SEEDS = 40
"""The seeds tried for each fault, the kept one first."""
RUNS = 6
"""The number of processes, one after the other, that replay the kept seeds."""


def _parts() -> list[list[str]]:
    """Divide the faults; those of one seed stay together, so that each seed runs once without a fault."""
    faults = sorted(KEPT, key=lambda fault: (FAULTS[fault].world.value, KEPT[fault], fault))
    size = -(-len(faults) // RUNS)
    return [faults[begin : begin + size] for begin in range(0, len(faults), size)]


@pytest.mark.parametrize("faults", _parts(), ids=lambda faults: faults[0])
def test_a_seed_shows_each_fault_and_passes_without_it(faults: list[str]) -> None:
    chosen = [part for fault in faults for part in ("--fault", fault)]
    command = [sys.executable, "-m", "tests.simulation.plant", "--seeds", str(SEEDS), "--jobs", "1", *chosen]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    counts = json.loads(run.stdout.splitlines()[-1])["counts"]
    assert counts["faults found"] == len(faults)


def test_every_fault_has_a_kept_seed() -> None:
    assert FAULTS.keys() == KEPT.keys(), "python -m tests.simulation.plant --fault NAME --keep keeps one"


@pytest.mark.parametrize("world", list(World))
def test_the_kept_seed_comes_first_then_seeds_of_the_profiles_of_the_fault(
    world: World,
) -> None:
    fault = next(name for name, fault in FAULTS.items() if fault.profiles and fault.world is world)
    seeds = list(islice(seeds_for(fault, 0), 40))
    assert seeds[0] == KEPT[fault]
    assert len(set(seeds)) == len(seeds)
    assert all(world.profile_name_of(seed) in FAULTS[fault].profiles for seed in seeds[1:])
    assert set(seeds[1:]) - set(KEPT.values())


def test_seeds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "seeds.py"
    copy.write_text(plant.KEPT_IN.read_text())
    monkeypatch.setattr(plant, "KEPT_IN", copy)
    first, second = list(FAULTS)[:2]
    plant.keep([Found(first, 3, ("lost",), 41), Found(second, 60)])
    written: dict[str, object] = {}
    exec(copy.read_text(), written)
    assert written["KEPT"] == {**KEPT, first: 41}
