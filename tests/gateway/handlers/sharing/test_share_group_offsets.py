"""The start offsets of share groups: many partitions in one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from seqgate.gateway.coordinator.group.share_group import ShareGroup
from seqgate.gateway.coordinator.places import Place
from seqgate.gateway.coordinator.rows import RowRecord
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import open_node

NONE, UNKNOWN = 0, 3


async def test_all_partitions_of_a_request_are_begun_with_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record has all partitions that the group reads, so one for each partition would be quadratic."""
    written: list[RowRecord] = []
    write = ShareGroup.begun_record

    def count(group: ShareGroup, places: Iterable[Place], names: Mapping[UUID, str]) -> RowRecord:
        written.append(write(group, places, names))
        return written[-1]

    monkeypatch.setattr(ShareGroup, "begun_record", count)
    async with open_node(tmp_path) as node:
        for name in ("a", "b"):
            await create(node, name, 3)
        partitions = [{"partition_index": index, "start_offset": 5} for index in (0, 1, 2, 3)]
        topics = [{"topic_name": name, "partitions": partitions} for name in ("a", "b", "gone")]
        answer = await Asking(node).ask("alter_share_group_offsets", 0, group_id="g", topics=topics)
        errors = [[row["error_code"] for row in topic["partitions"]] for topic in answer["responses"]]
        assert errors == [[NONE] * 3 + [UNKNOWN], [NONE] * 3 + [UNKNOWN], [UNKNOWN] * 4]
        assert len(written) == 1
        known = node.services.coordinators.shares.known("g")
        assert [found.start_offset for found in known.values()] == [5] * 6
