"""`seqgate groups` on share groups (KIP-932) of a real gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.wire import CLIENT_ID, Wire
from tests.system.commands.clients import (
    ACCEPT,
    MEMBER_ID,
    REJECT,
    RELEASE,
    Reader,
    create_topic,
    next_producer_id,
    produce,
)
from tests.system.commands.conftest import Outcome, seqgate


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with the topic `orders`: ten records in its first partition, none in the second."""
    settings = {"share.coordinator.state.topic.num.partitions": "4", "offsets.topic.num.partitions": "4"}
    with GatewayProcess(tmp_path / "data", settings=settings) as process:
        create_topic(process.bootstrap, "orders", 2)
        set_group_configs(process.bootstrap, "desk", READ_FROM_THE_START)
        producer_id = next_producer_id(process.bootstrap)
        assert produce(process.bootstrap, "orders", 0, producer_id, 0, 10) == (0, 0)
        yield process


def groups(gateway: GatewayProcess, command: str, *arguments: str, code: int = 0) -> Outcome:
    return seqgate("groups", command, *arguments, "--data-dir", gateway.data_dir, code=code)


@pytest.fixture
def reader(gateway: GatewayProcess) -> Iterator[Reader]:
    """Yield a reader that accepted 0-1 and 4-6, rejected 7, and holds 2-3 for the second time and 8-9 for the
    first.
    """
    with Wire(gateway.bootstrap) as wire:
        reader = Reader(wire)
        assert reader.fetch() == [(0, 9, 1)]
        reader.acknowledge((0, 1, ACCEPT), (2, 3, RELEASE), (4, 6, ACCEPT), (7, 7, REJECT))
        assert reader.fetch() == [(2, 3, 2)]
        yield reader


ROW = {
    "group": "desk",
    "state": "Stable",
    "type": "share",
    "protocol_type": "share",
    "protocol_name": "simple",
    "members": 1,
    "committed_partitions": 1,
    "total_lag": 4,
}
FIRST = {
    "topic": "orders",
    "partition": 0,
    "committed_offset": None,
    "log_start_offset": 0,
    "high_watermark": 10,
    "lag": 4,
    "metadata": None,
    "commit_timestamp": None,
    "age_ms": None,
    "member_id": None,
    "pending": [],
    "skipped": 0,
    "delivery": {
        "start_offset": 2,
        "end_offset": 10,
        "acquired": 4,
        "waiting": 0,
        "dying": 0,
        "holes": 1,
        "done_records": 4,
        "max_delivery_count": 2,
    },
}


def cells(shown: str, first: str) -> list[str]:
    """Return the cells of the table row that begins with `first`."""
    (line,) = (line for line in shown.splitlines() if line.startswith(first))
    return line.split()


@pytest.mark.usefixtures("reader")
class TestList:
    def test_tells_members_and_lag(self, gateway: GatewayProcess) -> None:
        assert groups(gateway, "list", "--json").json["groups"] == [ROW]
        shown = groups(gateway, "list").stdout
        assert cells(shown, "desk") == ["desk", "Stable", "share", "share,", "simple", "1", "1", "4"]

    def test_beside_other_groups_and_by_state(self, gateway: GatewayProcess) -> None:
        for name in ("a", "z"):
            groups(gateway, "reset", name, "--topic", "orders", "--to-earliest", "--execute")
        told = groups(gateway, "list", "--json").json["groups"]
        assert [(row["group"], row["type"]) for row in told] == [
            ("a", "classic"),
            ("desk", "share"),
            ("z", "classic"),
        ]
        assert groups(gateway, "list", "--state", "stable", "--json").json["groups"] == [ROW]

    def test_the_lag_is_what_clients_are_told(self, gateway: GatewayProcess) -> None:
        with Wire(gateway.bootstrap) as wire:
            asked = [{"group_id": "desk", "topics": None}]
            (told,) = wire.call("describe_share_group_offsets", 1, groups=asked).fields["groups"]
        row, unread = told["topics"][0]["partitions"]
        assert (row["start_offset"], row["lag"]) == (2, 4)
        assert (unread["start_offset"], unread["lag"]) == (-1, -1)

    def test_survives_a_crash_with_its_members(self, gateway: GatewayProcess) -> None:
        gateway.restart(kill=True)
        told = groups(gateway, "list", "--json").json["groups"]
        assert told == [ROW]


class TestDescribe:
    def test_tells_members_and_partitions(self, gateway: GatewayProcess, reader: Reader) -> None:
        told = groups(gateway, "describe", "desk", "--json").json
        assert told["members"] == [
            {
                "member_id": MEMBER_ID,
                "group_instance_id": None,
                "client_id": CLIENT_ID,
                "client_host": "/127.0.0.1",
                "session_timeout_ms": 45_000,
                "rebalance_timeout_ms": None,
                "is_leader": False,
                "assignment": {"orders": [0, 1]},
                "streams": None,
            }
        ]
        assert (told["type"], told["state"], told["generation_id"]) == ("share", "Stable", 3)
        unread = {**FIRST, "partition": 1, "high_watermark": 0, "lag": None, "delivery": None}
        assert told["partitions"] == [FIRST, unread]
        reader.acknowledge((2, 3, ACCEPT))
        first = groups(gateway, "describe", "desk", "--json").json["partitions"][0]
        assert (first["delivery"]["start_offset"], first["delivery"]["holes"], first["lag"]) == (8, 0, 2)

    @pytest.mark.usefixtures("reader")
    def test_shows_a_table(self, gateway: GatewayProcess) -> None:
        shown = groups(gateway, "describe", "desk").stdout
        assert "Group desk (share): Stable, 1 member, generation 3, protocol share, simple." in shown
        lines = [line.split() for line in shown.splitlines() if line.startswith("orders")]
        assert lines == [
            ["orders", "0", "2", "10", "10", "4", "4", "0", "0", "1", "2"],
            ["orders", "1", "-", "-", "0", "-", "-", "-", "-", "-", "-"],
        ]
        assert cells(shown, MEMBER_ID)[-2:] == ["orders", "0-1"]
        assert "2 partitions, 4 records to acknowledge, 4 of them acquired." in shown

    def test_several_holes(self, gateway: GatewayProcess, reader: Reader) -> None:
        reader.acknowledge((3, 3, REJECT), (9, 9, ACCEPT))
        told = groups(gateway, "describe", "desk", "--json").json["partitions"][0]
        # offsets 3 to 7 form one stretch of accepted or rejected records
        assert (told["delivery"]["holes"], told["delivery"]["done_records"], told["lag"]) == (2, 6, 2)
        assert told["delivery"]["acquired"] == 2

    @pytest.mark.usefixtures("reader")
    def test_pages_hold_every_partition_once(self, gateway: GatewayProcess) -> None:
        page = ask(gateway.data_dir, DescribeGroupRequest("desk", limit=1))
        assert ([row.partition for row in page.partitions], page.complete) == ([0, 1], True)
        assert page.members != []
        page = ask(gateway.data_dir, DescribeGroupRequest("desk", ("orders", 0), limit=1))
        assert ([row.partition for row in page.partitions], page.complete) == ([1], True)
        assert page.members == []

    @pytest.mark.usefixtures("reader")
    def test_after_its_topic_was_deleted(self, gateway: GatewayProcess) -> None:
        with Wire(gateway.bootstrap) as wire:
            wire.call("delete_topics", 6, topics=[{"name": "orders"}], timeout=10_000)
        assert groups(gateway, "describe", "desk", "--json").json["partitions"] == []
        (row,) = groups(gateway, "list", "--json").json["groups"]
        assert (row["committed_partitions"], row["total_lag"]) == (0, 0)


class TestReset:
    @pytest.mark.usefixtures("reader")
    def test_points_to_the_tool_that_does_it(self, gateway: GatewayProcess) -> None:
        refused = groups(gateway, "reset", "desk", "--topic", "orders", "--to-earliest", "--execute", code=1)
        assert "desk is a share group" in refused.stderr
        assert "kafka-share-groups.sh --group desk --reset-offsets" in refused.stderr
        assert groups(gateway, "describe", "desk", "--json").json["partitions"][0] == FIRST


class TestDelete:
    def test_an_empty_group_goes_for_good(self, gateway: GatewayProcess, reader: Reader) -> None:
        for more in ((), ("--execute",)):
            refused = groups(gateway, "delete", "desk", *more, code=1).stderr
            assert "group desk is in use: 1 member, state Stable" in refused
        reader.heartbeat(-1)
        shown = groups(gateway, "delete", "desk", "--dry-run").stdout
        assert "would be deleted" in shown
        (row,) = groups(gateway, "list", "--json").json["groups"]
        assert (row["state"], row["members"], row["total_lag"]) == ("Empty", 0, 4)
        told = groups(gateway, "delete", "desk", "--execute", "--json").json["groups"]
        expected = {"state": "Empty", "committed_partitions": 1, "deleted": True, "refusal": None}
        assert told == [{"group": "desk", **expected}]
        assert "there is no group desk" in groups(gateway, "describe", "desk", code=1).stderr
        gateway.restart(kill=True)
        assert groups(gateway, "list", "--json").json["groups"] == []
