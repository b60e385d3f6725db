"""`seqgate groups --bootstrap`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compat.commands.conftest import Peer
from tests.compat.groups.members import await_that
from tests.support.kafka_tools import run_tool

Fresh = Callable[[str], str]


@pytest.fixture
def topic(peer: Peer, fresh: Fresh) -> str:
    """A topic with two partitions of ten records each, which are old and stay."""
    name = fresh("read")
    peer.run("topics", "create", name, "--partitions", "2", "--set", "retention.ms=-1")
    for partition in ("0", "1"):
        lines = "\n".join(
            f'{{"value": "{number}", "timestamp": {1_700_000_000_000 + number * 1_000}}}'
            for number in range(10)
        )
        peer.run("produce", name, "--from-json", "--partition", partition, stdin=lines.encode())
    return name


@pytest.fixture
def group(peer: Peer, topic: str, fresh: Fresh) -> str:
    """A group without members that has committed offset 4 of partition 0."""
    name = fresh("billing")
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4, metadata="half way")], asynchronous=False)
    consumer.close()
    return name


@pytest.fixture(params=["classic", "consumer"])
def members(
    request: pytest.FixtureRequest, peer: Peer, topic: str, fresh: Fresh
) -> Iterator[tuple[str, str]]:
    """A group with one member, by its protocol: the protocol and the group."""
    name = fresh("desk")
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": name,
            "client.id": "desk",
            "group.protocol": request.param,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    await_that(lambda: consumer.poll(0.1) is not None, "the member reads")
    yield request.param, name
    consumer.close()


def test_a_group_that_only_has_offsets(peer: Peer, topic: str, group: str) -> None:
    row = next(row for row in peer.json("groups", "list")["groups"] if row["group"] == group)
    assert (row["state"], row["type"], row["members"], row["committed_partitions"], row["total_lag"]) == (
        "Empty",
        "classic",
        0,
        1,
        6,
    )
    described = peer.json("groups", "describe", group)
    (partition,) = described["partitions"]
    assert (partition["topic"], partition["partition"], partition["committed_offset"]) == (topic, 0, 4)
    assert (partition["log_start_offset"], partition["high_watermark"], partition["lag"]) == (0, 10, 6)
    assert partition["metadata"].rstrip("\0") == "half way"
    assert (described["state"], described["members"]) == ("Empty", [])
    assert "1 partition, 6 records to read." in peer.run("groups", "describe", group).stdout
    assert group in peer.run("groups", "list", "--state", "empty").stdout
    assert group not in peer.run("groups", "list", "--state", "Stable").stdout


def test_a_group_with_members(peer: Peer, topic: str, members: tuple[str, str]) -> None:
    protocol, name = members
    await_that(lambda: peer.json("groups", "describe", name)["state"] == "Stable", "the group is stable")
    described = peer.json("groups", "describe", name)
    assert described["type"] == protocol
    (member,) = described["members"]
    assert (member["client_id"], member["assignment"]) == ("desk", {topic: [0, 1]})
    assert [row["member_id"] for row in described["partitions"]] == [member["member_id"]] * 2
    assert "1 member" in peer.run("groups", "describe", name).stdout
    (row,) = [row for row in peer.json("groups", "list")["groups"] if row["group"] == name]
    assert (row["type"], row["members"]) == (protocol, 1)
    for command in (
        ("reset", name, "--topic", topic, "--to-earliest"),
        ("reset", name, "--topic", topic, "--to-latest"),
    ):
        assert f"group {name} is in use: state Stable" in peer.run("groups", *command, code=1).stderr
    assert f"group {name} is in use" in peer.run("groups", "delete", name, "--execute", code=1).stderr


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "99"), 10),
        (("--shift-by", "-3"), 1),
        (("--to-timestamp", "1700000007000"), 7),
    ],
)
def test_a_reset(peer: Peer, topic: str, group: str, target: tuple[str, ...], expected: int) -> None:
    asked = ("groups", "reset", group, "--topic", f"{topic}:0", *target)
    (planned,) = peer.json(*asked)["changes"]
    assert (planned["committed_offset"], planned["new_offset"]) == (4, expected)
    assert peer.json("groups", "describe", group)["partitions"][0]["committed_offset"] == 4
    assert "are committed" in peer.run(*asked, "--execute").stdout
    assert peer.json("groups", "describe", group)["partitions"][0]["committed_offset"] == expected


def test_a_reset_creates_a_group(peer: Peer, topic: str, fresh: Fresh) -> None:
    name = fresh("new")
    peer.run("groups", "reset", name, "--topic", topic, "--to-latest", "--execute")
    described = peer.json("groups", "describe", name)
    assert [row["committed_offset"] for row in described["partitions"]] == [10, 10]
    assert (
        f"group {name} has no committed offset in {topic}-5"
        not in peer.run("groups", "reset", name, "--topic", f"{topic}:5", "--shift-by", "1", code=1).stderr
    )


def test_a_deletion(peer: Peer, group: str, fresh: Fresh) -> None:
    missing = fresh("missing")
    assert "would be deleted" in peer.run("groups", "delete", group, "--dry-run").stdout
    told = peer.run("groups", "delete", group, missing, "--yes", code=1)
    assert f"there is no group {missing}" in told.stderr
    wrong = peer.run("groups", "describe", group, code=1).stderr
    assert wrong.startswith(f"seqgate: there is no group {group}")


def test_a_share_group(peer: Peer, topic: str, fresh: Fresh) -> None:
    name = fresh("share")
    peer.run("configs", "set", "group", name, "share.auto.offset.reset=earliest")
    run_tool(
        "kafka-console-share-consumer",
        *("--bootstrap-server", peer.bootstrap, "--topic", topic, "--group", name),
        *("--max-messages", "20", "--timeout-ms", "30000"),
    ).expect_success()
    await_that(lambda: peer.json("groups", "describe", name)["state"] == "Empty", "the member has left")
    described = peer.json("groups", "describe", name)
    assert (described["type"], described["members"]) == ("share", [])
    assert [row["lag"] for row in described["partitions"]] == [0, 0]
    # Seqgate moves the start at once, Kafka with its next snapshot.
    assert all(row["delivery"]["start_offset"] in {0, 10} for row in described["partitions"])
    assert "(share): Empty" in peer.run("groups", "describe", name).stdout
    (row,) = [row for row in peer.json("groups", "list")["groups"] if row["group"] == name]
    assert (row["type"], row["total_lag"]) == ("share", None)
    assert (
        f"{name} is a share group"
        in peer.run("groups", "reset", name, "--topic", topic, "--to-latest", code=1).stderr
    )
