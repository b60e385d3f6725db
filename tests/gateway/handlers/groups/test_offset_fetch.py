"""Which members may fetch offsets, and a coordinator whose state is lost during the request."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import Committer
from seqgate.gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from seqgate.gateway.handlers.groups.offset_commit import commit_offsets
from seqgate.gateway.handlers.groups.offset_fetch import _check_member, check_member
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from tests.gateway.coordinator.group.mixed_scene import MixedScene
from tests.gateway.coordinator.group.scene import GROUP
from tests.gateway.handlers.groups.test_name_offsets import NOTHING, VERSIONS, ask, rows_of
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, open_node


class LostGroups:
    """Groups whose partition goes offline after its offsets were read."""

    def shard_of(self, _: str) -> Any:
        raise Unavailable


def test_a_shard_that_is_lost_meanwhile_is_an_error() -> None:
    context: Any = SimpleNamespace(
        services=SimpleNamespace(coordinators=SimpleNamespace(groups=LostGroups()))
    )
    group = SimpleNamespace(group_id="readers", member_id=None, member_epoch=-1)
    assert _check_member(context, group) is ErrorCode.coordinator_not_available


def test_a_member_fetches_at_its_present_epoch() -> None:
    scene = MixedScene()
    epoch = scene.beat("a").member_epoch

    def error(member_id: str | None, member_epoch: int) -> ErrorCode:
        return check_member(scene.shard, GROUP, member_id, member_epoch)

    assert error(None, -1) is ErrorCode.none
    assert error("a", epoch) is ErrorCode.none
    assert error("a", epoch - 1) is ErrorCode.stale_member_epoch
    assert error("a", -1) is ErrorCode.stale_member_epoch
    assert error("b", epoch) is ErrorCode.unknown_member_id
    assert error("", -1) is ErrorCode.unknown_member_id
    scene.beat("a", -1)
    assert error("a", epoch) is ErrorCode.unknown_member_id


@pytest.mark.parametrize("asks_for_all", [False, True])
async def test_an_offset_of_an_earlier_topic_of_the_name_does_not_count(
    tmp_path: Path, *, asks_for_all: bool
) -> None:
    """As when a commit that was accepted before a deletion is written after it: isMismatchedTopicId."""
    asked = None if asks_for_all else [("t", (0, 1, 2))]
    async with open_node(tmp_path, "offsets.topic.num.partitions=1") as node:
        await create(node, "t", 3)
        groups, now = node.services.coordinators.groups, node.services.partitions.registry.by_name["t"]
        await groups.ensure_topic()
        ids = (now.topic_id_bytes, bytes(15) + b"\1", b"")
        records = [
            OffsetCommitRecord(GROUP, "t", index, CommittedOffset(5, -1, "", NOW_MS, topic_id=topic_id))
            for index, topic_id in enumerate(ids)
        ]
        assert await commit_offsets(groups, Committer(GROUP), records) is ErrorCode.none
        for version in VERSIONS[1:]:
            error, rows = rows_of(node, version, await ask(node, version, [GROUP], asked), GROUP)
            assert error == 0
            assert rows.get(("t", 1), NOTHING) == NOTHING
            assert rows["t", 0] == rows["t", 2] == (5, "", 0)
