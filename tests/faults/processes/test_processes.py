"""Every part of the faults of real processes, in its bounded share: what was acknowledged is there, once, in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.processes import file_handles, full_disk, lines, memory, redis_faults, stops
from tests.faults.processes.scene import SEED_VARIABLE, Outcome, chosen_seed

SHARE: dict[str, tuple[Callable[[Path, int, int], Outcome], int, tuple[str, ...]]] = {
    "stops": (stops.run, 2, ("gateway stopped and continued", "client stopped and continued")),
    "lines": (
        lines.run,
        2,
        ("answers lost", "connections cut", "retries recognised", "frames in single bytes"),
    ),
    "redis": (redis_faults.run, 1, ("Redis killed", "Redis hung", "Redis emptied", "Redis set back")),
    "full disk": (full_disk.run, 1, ("full disks", "starts on a full disk")),
    "injected full disk": (full_disk.on_injected, 1, ("full disks", "starts on a full disk")),
    "file handles": (file_handles.run, 1, ("file handles exhausted", "connections refused")),
    "memory": (memory.run, 1, ("requests without memory",)),
}
"""The part, how many rounds of it, and what has to have happened."""


@pytest.mark.parametrize("part", SHARE)
def test_nothing_acknowledged_is_lost_or_doubled(part: str, tmp_path: Path) -> None:
    run, rounds, expected = SHARE[part]
    seed = chosen_seed()
    print(f"{SEED_VARIABLE}={seed}")
    outcome = run(tmp_path, seed, rounds)
    print(dict(outcome.counts))
    assert not outcome.breaches, f"{SEED_VARIABLE}={seed}\n" + "\n".join(outcome.breaches[:10])
    missing = [what for what in expected if not outcome.counts[what]]
    assert not missing, missing
