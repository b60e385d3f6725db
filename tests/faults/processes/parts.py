"""The tests of faults in real processes: names, how to run them, and the events that each must count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.faults.processes import (
    buckets,
    clocks,
    file_handles,
    full_disk,
    gateways,
    kills,
    lines,
    memory,
    redis_faults,
    stops,
    stores,
)
from tests.faults.processes.scene import Outcome
from tests.faults.processes.transactions.load import TRANSACTIONAL


class Part(NamedTuple):
    """One test. `run` takes a directory, a seed and the number of rounds; `expected` names the counts that
    must not be 0.
    """

    run: Callable[[Path, int, int], Outcome]
    rounds: int
    expected: tuple[str, ...]


PARTS = {
    "kills": Part(kills.run, 4, ("kills",)),
    "stops": Part(stops.run, 1, ("gateway stopped and continued", "client stopped and continued")),
    "lines": Part(
        lines.run, 1, ("answers lost", "connections cut", "retries recognized", "frames in single bytes")
    ),
    "redis": Part(redis_faults.run, 1, ("Redis killed", "Redis hung", "Redis emptied", "Redis set back")),
    "full disk": Part(full_disk.run, 1, ("full disks", "starts on a full disk")),
    "injected full disk": Part(full_disk.on_injected, 1, ("full disks", "starts on a full disk")),
    "file handles": Part(file_handles.run, 1, ("file handles exhausted", "connections refused")),
    "memory": Part(memory.run, 1, ("requests without memory",)),
    "buckets": Part(buckets.run, 1, ("disks lost", "gateways taken over", "manifests", "boundaries moved")),
    "stores": Part(
        stores.run,
        1,
        ("stores killed", "gateways taken over", "disks lost", "faults of the store", "puts applied late"),
    ),
    "gateways": Part(
        gateways.run, 1, ("gateways killed", "disks lost", "gateways taken over", "transactions committed")
    ),
    "transactions in a bucket": Part(
        partial(buckets.run, load=TRANSACTIONAL),
        1,
        ("disks lost", "gateways taken over", "transactions committed", "transactions aborted"),
    ),
    "transactions in a store": Part(
        partial(stores.run, load=TRANSACTIONAL),
        1,
        (
            "stores killed",
            "disks lost",
            "puts applied late",
            "transactions committed",
            "transactions aborted",
        ),
    ),
    "clocks": Part(clocks.run, 1, ("clock set",)),
}
PAUSING: dict[str, Callable[[Path, int, int, float], Outcome]] = {
    "buckets": buckets.run,
    "stores": stores.run,
    "transactions in a bucket": partial(buckets.run, load=TRANSACTIONAL),
    "transactions in a store": partial(stores.run, load=TRANSACTIONAL),
}
"""The tests in which a gateway stands still, with its seconds as the last argument."""
SHARE = tuple(name for name in PARTS if name not in {"kills", "injected full disk"})
"""The tests that run in this folder. `tests/faults/kill` runs its own, and the full disk is injected where
mounting is not permitted.
"""
QUICK = ("stops", "lines", "full disk", "gateways", "transactions in a bucket")
"""The tests of `make test-all`; the others, and the one store that Go builds, belong to `make test-nightly`.
"""
