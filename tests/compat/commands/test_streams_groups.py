"""`seqgate groups --bootstrap` for streams groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.compat.commands.conftest import Peer
from tests.compat.differential import peer as wire_peer
from tests.compat.differential.group_member import committed
from tests.compat.differential.scenarios.consumer_groups import assignable_topic
from tests.compat.differential.streams_member import StreamsMember, subtopology, topology
from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

Fresh = Callable[[str], str]


@contextmanager
def _member(peer: Peer, fresh: Fresh) -> Iterator[StreamsMember]:
    """Yield the only member of a streams group that has committed offset 0 of the first of two partitions."""
    talk = wire_peer.Peer(peer.bootstrap, fresh("streams-"))
    topic = assignable_topic(talk, partitions=2)
    member = StreamsMember(talk, talk.group(), topology(subtopology("0", topic.name)))
    member.await_tasks(2, **member.full())
    member.confirm()
    answer = talk.call(
        "offset_commit",
        9,
        group_id=member.group_id,
        generation_id_or_member_epoch=member.member_epoch,
        member_id=member.member_id,
        topics=[committed(topic, {0: 0})],
    )
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
    yield member
    talk.close()


@pytest.fixture
def member(peer: Peer, fresh: Fresh) -> Iterator[StreamsMember]:
    with _member(peer, fresh) as joined:
        yield joined


def test_a_streams_group(peer: Peer, member: StreamsMember) -> None:
    name, topic = member.group_id, member.peer.name()
    described = peer.json("groups", "describe", name)
    assert (described["type"], described["state"]) == ("streams", "Stable")
    assert described["generation_id"] == described["streams"]["assignment_epoch"] == member.member_epoch
    assert described["streams"]["topology_epoch"] == 0
    (one,) = described["members"]
    assert (one["member_id"], one["assignment"]) == ("m1", {topic: [0, 1]})
    told = one["streams"]
    assert (told["process_id"], told["tasks"]["active"]) == ("p1", {"0": [0, 1]})
    rows = [(row["partition"], row["committed_offset"], row["member_id"]) for row in described["partitions"]]
    assert rows == [(0, 0, "m1"), (1, None, "m1")]
    text = peer.run("groups", "describe", name).stdout
    assert (
        f"group epoch {member.member_epoch}, assignment epoch {member.member_epoch}, topology epoch 0" in text
    )
    (row,) = [row for row in peer.json("groups", "list")["groups"] if row["group"] == name]
    assert (row["type"], row["state"], row["members"], row["committed_partitions"]) == (
        "streams",
        "Stable",
        1,
        1,
    )
    assert name not in peer.run("groups", "list", "--state", "NotReady").stdout
    refused = peer.run("groups", "delete", name, "--execute", code=1).stderr
    assert f"group {name} is in use: state Stable" in refused


def test_a_reset_and_a_deletion(peer: Peer, member: StreamsMember) -> None:
    name = member.group_id
    member.leave()
    asked = ("groups", "reset", name, "--topic", member.peer.name(), "--to-latest")
    assert [change["new_offset"] for change in peer.json(*asked, "--execute")["changes"]] == [0, 0]
    described = peer.json("groups", "describe", name)
    assert (described["type"], described["state"], described["members"]) == ("streams", "Empty", [])
    assert [row["committed_offset"] for row in described["partitions"]] == [0, 0]
    assert "deleted" in peer.run("groups", "delete", name, "--execute").stdout
    assert name not in peer.run("groups", "list").stdout


def test_the_running_gateway_shows_the_same(shared_gateway: GatewayProcess, fresh: Fresh) -> None:
    remote = Peer("Seqgate", shared_gateway.bootstrap)
    with _member(remote, fresh) as member:
        name = member.group_id
        told = remote.json("groups", "describe", name)
        asked = ("groups", "describe", name, "--data-dir", shared_gateway.data_dir)
        live = seqgate(*asked, "--json").document
        for key in ("type", "state", "generation_id", "streams"):
            assert live[key] == told[key], key
        assert [(row["member_id"], row["assignment"], row["streams"]) for row in live["members"]] == [
            (row["member_id"], row["assignment"], row["streams"]) for row in told["members"]
        ]
        assert "topology epoch 0" in seqgate(*asked).stdout
        reset = ("groups", "reset", name, "--topic", member.peer.name(), "--to-latest")
        refused = seqgate(*reset, "--data-dir", shared_gateway.data_dir, code=1).stderr
        assert f"group {name} is in use: 1 member, state Stable" in refused
        member.leave()
        done = seqgate("groups", "delete", name, "--execute", "--data-dir", shared_gateway.data_dir)
        assert "deleted" in done.stdout
