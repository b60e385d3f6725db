"""Random lives keep their promises, and one on a disk that ignores syncs does not. See `python -m
tests.faults.soak`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.disk_contents import File
from tests.faults.random_lives import Breach, RandomLife

FIRST_SEED = 1000
LIVES = 40


def live_all(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        life = RandomLife(seed)
        life.run()
        counts += life.counts
    return counts


def test_promises_hold() -> None:
    counts = live_all(range(FIRST_SEED, FIRST_SEED + LIVES))
    assert counts["recoveries"] > 5 * LIVES
    assert counts["disk_eio"] > LIVES // 2
    assert counts["disk_power_cut"] > LIVES


def test_a_life_is_its_seed() -> None:
    first, second = RandomLife(7), RandomLife(7)
    for life in (first, second):
        life.run()
    assert first.counts == second.counts
    assert list(first.disk.log) == list(second.disk.log)


def test_a_disk_that_lies_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(File, "sync", lambda file: None)
    with pytest.raises(Breach, match="seed"):
        live_all(range(20))
