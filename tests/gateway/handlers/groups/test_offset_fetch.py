"""OffsetFetch when the coordinator's state is lost during the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.groups.offset_fetch import _check_member
from seqgate.gateway.runtime.coordinators.shards import Unavailable


class LostGroups:
    """Groups whose partition goes offline after its offsets were read."""

    def check_fetch(self, *_: Any) -> ErrorCode:
        raise Unavailable


def test_a_shard_that_is_lost_meanwhile_is_an_error() -> None:
    context: Any = SimpleNamespace(
        services=SimpleNamespace(coordinators=SimpleNamespace(groups=LostGroups()))
    )
    group = SimpleNamespace(group_id="readers", member_id=None, member_epoch=-1)
    assert _check_member(context, group) is ErrorCode.coordinator_not_available
