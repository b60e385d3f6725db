"""A partition is left alone after damage at once, after dying processes soon, and for a full disk never."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.config import load_config
from gateway.runtime.loop.machine import Machine
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.upkeep.compaction import Compaction
from log import Storage
from log.compaction.job import CleaningFailed
from tests.gateway.handlers.support import FixedClock


@pytest.mark.parametrize(
    ("failed", "times", "left_alone"),
    [
        (CleaningFailed("damaged", is_corrupt=True), 1, True),
        (CleaningFailed("its process ended"), 2, False),
        (CleaningFailed("its process ended"), 3, True),
        (CleaningFailed("no space", is_of_disk=True), 100, False),
    ],
)
def test_when_a_partition_is_left_alone(
    tmp_path: Path, failed: CleaningFailed, times: int, left_alone: bool
) -> None:
    directory: Any = SimpleNamespace(path=tmp_path, environment=SimpleNamespace(storage=Storage()))
    lifecycle: Any = None
    compaction = Compaction(
        load_config(), FixedClock(), Partitions(), directory, lifecycle, Machine().cleaner
    )
    partition: Any = SimpleNamespace(topic="t", index=0, topic_id=uuid.UUID(int=1))
    for _ in range(times):
        compaction._failed(partition, failed)
    assert compaction._progress.of(partition).uncleanable is left_alone
