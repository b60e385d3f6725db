"""Lives of partition logs on the simulated disk, and the traces in `traces/` with every disk operation of
each life.

`python -m tests.faults.traced_lives` writes the traces again. A change that should not affect durability
leaves them byte for byte. Any other change says in its commit what changed, and why that is as safe.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.faults import scenario, test_compaction, test_names, test_retention
from tests.faults.directory_life import new_disk
from tests.faults.simulated_disk import SimulatedDisk

TRACES: Final = Path(__file__).parent / "traces"
_RANDOM_ID: Final = re.compile(r"\b[0-9a-f]{32}\b|\bt\d+(?=\.cleaned)")


def _compaction(disk: SimulatedDisk) -> None:
    test_compaction.live(test_compaction.Life(disk))


def _names(disk: SimulatedDisk) -> None:
    test_names.live(test_names.new_life(disk))


def _retention(disk: SimulatedDisk) -> None:
    test_retention.live(scenario.Life(disk))


def _scenario(disk: SimulatedDisk) -> None:
    for step in scenario.steps(life := scenario.Life(disk)):
        step()
    assert life.promises.durable_end_offset


LIVES: Final[dict[str, Callable[[SimulatedDisk], None]]] = {
    "compaction": _compaction,
    "names": _names,
    "retention": _retention,
    "scenario": _scenario,
}


def trace(name: str) -> str:
    """Return the operations of one life, one per line, without random directory ids and cleaning tokens."""
    disk = new_disk()
    LIVES[name](disk)
    return "".join(_RANDOM_ID.sub("ID", line) + "\n" for line in disk.log)


def main() -> None:
    for name in LIVES:
        (TRACES / f"{name}.txt").write_text(trace(name), encoding="utf-8")


if __name__ == "__main__":
    main()
