from __future__ import annotations

import uuid
from pathlib import Path

from seqgate.gateway.admin.client import places
from seqgate.gateway.admin.every_worker import joined, summed
from seqgate.gateway.admin.groups.messages import GroupPage
from seqgate.gateway.admin.producers.messages import ProducerCounters, ProducerPage

COUNTERS = ProducerCounters(1, 2, 3, 4, 5)


def test_counters_are_summed_and_rows_stay_in_their_pages() -> None:
    pages = joined(
        [
            [ProducerPage([], False, COUNTERS), ProducerPage([], True, COUNTERS)],
            [ProducerPage([], True, COUNTERS)],
        ]
    )
    assert len(pages) == 3
    assert pages[-1].counters == ProducerCounters(2, 4, 6, 8, 10)


def test_offline_partitions_are_united() -> None:
    pages = joined([[GroupPage([], True, [3, 1])], [GroupPage([], True, [1, 2])]])
    assert pages[-1].offline_partitions == [1, 2, 3]


def test_a_missing_count_makes_the_sum_missing() -> None:
    assert summed([COUNTERS, None]) is None
    assert summed([1, 2]) == 3


def test_answers_of_another_kind_stay_as_they_are() -> None:
    assert joined([[uuid.UUID(int=1)]]) == [uuid.UUID(int=1)]


def test_the_places_of_workers(tmp_path: Path) -> None:
    assert places(tmp_path) == [tmp_path]
    for name in ("10", "2", "metadata"):
        (tmp_path / "workers" / name).mkdir(parents=True)
    assert [place.name for place in places(tmp_path)] == ["2", "10"]
