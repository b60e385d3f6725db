"""Which members may fetch offsets, and a coordinator whose state is lost during the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.groups.offset_fetch import _check_member, check_member
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from tests.gateway.coordinator.group.mixed_scene import MixedScene
from tests.gateway.coordinator.group.scene import GROUP


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
        return check_member(scene.shard.stored, GROUP, member_id, member_epoch)

    assert error(None, -1) is ErrorCode.none
    assert error("a", epoch) is ErrorCode.none
    assert error("a", epoch - 1) is ErrorCode.stale_member_epoch
    assert error("a", -1) is ErrorCode.stale_member_epoch
    assert error("b", epoch) is ErrorCode.unknown_member_id
    assert error("", -1) is ErrorCode.unknown_member_id
    scene.beat("a", -1)
    assert error("a", epoch) is ErrorCode.unknown_member_id
