"""Lists of groups show groups of every protocol in the same form."""

from __future__ import annotations

import pytest

from seqgate.gateway.coordinator.group.classic_group import ClassicGroup, GroupState
from seqgate.gateway.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember, MemberValue
from seqgate.gateway.coordinator.group.share_group import ShareGroup, ShareMember
from seqgate.gateway.coordinator.group.stored_groups import STATES, Group
from seqgate.gateway.coordinator.streams.group import StreamsGroup, StreamsMember


def classic() -> ClassicGroup:
    group = ClassicGroup("g", now_ms=0)
    group.state, group.generation_id = GroupState.PREPARING_REBALANCE, 7
    group.protocol_type, group.protocol_name = "connect", "sessioned"
    return group


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (ClassicGroup("g", now_ms=0), ("classic", "Empty", True, 0, ("", None))),
        (classic(), ("classic", "PreparingRebalance", False, 7, ("connect", "sessioned"))),
        (ConsumerGroup("g"), ("consumer", "Empty", True, 0, ("consumer", None))),
        (
            ConsumerGroup(
                "g", group_epoch=3, members={"m": ConsumerMember("m", MemberValue(server_assignor="range"))}
            ),
            ("consumer", "Assigning", False, 3, ("consumer", "range")),
        ),
        (ShareGroup("g"), ("share", "Empty", True, 1, ("share", None))),
        (
            ShareGroup("g", group_epoch=3, members={"m": ShareMember("m")}),
            ("share", "Stable", False, 3, ("share", "simple")),
        ),
        (StreamsGroup("g"), ("streams", "Empty", True, 1, ("streams", None))),
        (
            StreamsGroup("g", members={"m": StreamsMember("m")}),
            ("streams", "NotReady", False, 1, ("streams", "sticky")),
        ),
    ],
)
def test_five_properties(group: Group, expected: tuple[str, str, bool, int, tuple[str, str | None]]) -> None:
    found = group.type, group.state_text, group.is_empty, group.generation, group.protocol
    assert found == expected
    assert group.state_text in STATES


def test_a_deleted_group_is_in_no_state() -> None:
    assert STATES == (
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Assigning",
        "Reconciling",
        "NotReady",
    )
