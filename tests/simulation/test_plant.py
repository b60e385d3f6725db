"""The simulation finds the faults that are planted in the production code, and passes the sound code.

`make test-nightly` hunts all faults, each from its kept seed on. A change of the order of events can move a
seed: then further seeds are tried, and the output names the command that keeps another one. `make test` and
`make test-all` hunt faults that about every second seed shows, so that no change of the order of events
breaks them.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.simulation import plant
from tests.simulation.plant import Found, seeds_for
from tests.simulation.planted import FAULTS
from tests.simulation.planted.seeds import KEPT
from tests.simulation.replaying import run
from tests.simulation.worlds import World
from tests.tiers import in_tiers

SEEDS = 400
"""The most seeds that are tried for each fault, the kept one first."""
RUNS = 6
"""The number of processes, one after the other, that hunt all faults."""
COMMON = {
    "test": ["acknowledged_before_the_flush", "failed_put_taken_for_success", "epoch_kept_at_a_failover"],
    "all": [
        "any_sequence_accepted",
        "duplicates_stored_again",
        "flush_without_the_data",
        "last_stable_offset_ignored",
        "letters_of_a_new_producer",
        "names_not_replayed",
        "old_epochs_accepted",
        "one_duplicate_remembered",
        "producers_forgotten_at_start",
        "refusals_forgotten",
        "visible_before_the_flush",
    ],
}
"""Faults that at least every third seed of their profiles shows, of each world and kind of rule."""


def _parts() -> list[list[str]]:
    """Divide the faults; those of one seed stay together, so that each seed runs once without a fault."""
    faults = sorted(KEPT, key=lambda fault: (FAULTS[fault].world.value, KEPT[fault], fault))
    size = -(-len(faults) // RUNS)
    return [faults[begin : begin + size] for begin in range(0, len(faults), size)]


def _hunt(faults: list[str]) -> None:
    chosen = [part for fault in faults for part in ("--fault", fault)]
    status, told = run("-m", "tests.simulation.plant", "--seeds", str(SEEDS), "--jobs", "1", *chosen)
    print(told)
    assert status == 0, told
    assert json.loads(told.splitlines()[-1])["counts"]["faults found"] == len(faults)


@pytest.mark.parametrize("faults", _parts(), ids=lambda faults: faults[0])
def test_a_seed_shows_each_fault_and_passes_without_it(faults: list[str]) -> None:
    _hunt(faults)


@pytest.mark.parametrize("fault", in_tiers([*COMMON["test"], *COMMON["all"]], **COMMON))
def test_a_common_fault_is_found(fault: str) -> None:
    _hunt([fault])


def test_every_fault_has_a_kept_seed() -> None:
    assert FAULTS.keys() == KEPT.keys(), "python -m tests.simulation.plant --fault NAME --keep keeps one"


@pytest.mark.parametrize("world", list(World))
def test_the_kept_seed_comes_first_then_seeds_of_the_profiles_of_the_fault(world: World) -> None:
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
