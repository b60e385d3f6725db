"""The log lines of groups: when they are written, and what they say."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.epoch_group import HeartbeatRefused
from seqgate.gateway.coordinator.group.events import EpochRaised, MemberJoined, MemberReplaced, Who
from seqgate.gateway.handlers.groups.offset_commit import commit_offsets
from seqgate.gateway.runtime.coordinators.group_coordinator import log_events, log_refused
from tests.gateway.handlers.support import open_node
from tests.gateway.runtime.coordinators.test_group_coordinator import (
    AT_ONCE,
    commit,
    form_group,
    offset_record,
)

GROUP_LOG = "seqgate.gateway.runtime.coordinators.group_coordinator"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines since the last call."""
    found = [record.getMessage() for record in caplog.records if record.name == GROUP_LOG]
    caplog.clear()
    return found


async def test_a_group_forms_commits_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, GROUP_LOG)
    async with open_node(tmp_path, *AT_ONCE) as node:
        groups = node.services.coordinators.groups
        await groups.ensure_topic()
        member = await form_group(groups, "g", "app")
        assert lines(caplog) == [
            "group g: member app-1 (client 'app' at 127.0.0.1) joined",
            "group g rebalances: was Empty in generation 0; member app-1 joined",
            "group g is stable: generation 1, members: 1",
        ]
        assert groups.heartbeat(member) is ErrorCode.none
        assert await commit_offsets(groups, member, [offset_record("g", 5)]) is ErrorCode.none
        await commit(groups, "other", 5)
        assert lines(caplog) == []
        await groups.leave("g", [("app-1", None)])
        assert lines(caplog) == [
            "group g: member app-1 (client 'app' at 127.0.0.1) left",
            "group g rebalances: was Stable in generation 1; member app-1 left",
            "group g is empty: generation 2",
        ]


def test_a_level_above_info_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, GROUP_LOG)
    log_events([EpochRaised("g", "share", 2, "member m joined")])
    assert lines(caplog) == []


def test_lines_about_epochs_and_static_members(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, GROUP_LOG)
    who = Who("new", "i", "app", "/192.0.2.7")
    log_events([MemberReplaced("g", "old", who), MemberJoined("g", who)])
    log_events([EpochRaised("g", "share", 2, "member m joined")])
    assert lines(caplog) == [
        "group g: member new (instance id i, client 'app' at 192.0.2.7) replaced member old, which is fenced",
        "group g: member new (instance id i, client 'app' at 192.0.2.7) joined",
        "share group g has group epoch 2: member m joined",
    ]


def test_only_fencing_is_told_of_refused_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, GROUP_LOG)
    log_refused("g", "m", HeartbeatRefused(ErrorCode.unknown_member_id, "unknown"))
    log_refused("g", "m", HeartbeatRefused(ErrorCode.fenced_member_epoch, "The epoch is too small."))
    assert lines(caplog) == ["group g: member m is fenced: The epoch is too small."]
