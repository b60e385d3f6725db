"""ShareAcknowledge (KIP-932): how a member acknowledges records, and which requests are refused."""

from __future__ import annotations

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.settling import await_applied
from tests.compat.differential.share_member import (
    ACCEPT,
    FINAL,
    GAP,
    PERSISTED_AFTER_MS,
    REJECT,
    RELEASE,
    RENEW,
    another_member,
    fill,
    member_of_its_own,
    offsets_of,
    reader,
    said,
)
from tests.support.wire import NO_TOPIC_ID, Plain

NOWHERE = "00000000-0000-0000-0000-0000000000ff"
TYPES = {"gap": GAP, "accept": ACCEPT, "release": RELEASE, "reject": REJECT, "renew": RENEW, "5": 5, "-1": -1}


@scenario_for_each((1, 2))
def life(peer: Peer, version: int) -> None:
    member = reader(peer, 4, version=version)
    member.acknowledge(said(0, 1, ACCEPT), version=version)
    offsets_of(member)
    member.acknowledge(said(2, 3, RELEASE, REJECT), version=version)
    member.fetch(version=version, max_wait=PERSISTED_AFTER_MS)
    member.acknowledge(said(2, 2, ACCEPT), version=version, share_session_epoch=FINAL)
    member.acknowledge(version=version)
    offsets_of(member)


@scenario_for_each(TYPES)
def of_type(peer: Peer, kind: int) -> None:
    """Send each acknowledgement type in both versions, with and without the renew flag; then accept what is
    still acquired."""
    member = reader(peer, 3)
    member.acknowledge(said(0, 0, kind), version=1)
    member.acknowledge(said(1, 1, kind))
    member.acknowledge(said(2, 2, kind), is_renew_ack=True)
    member.fetch(max_wait=500)
    for offset in range(3):
        member.acknowledge(said(offset, offset, ACCEPT))
    offsets_of(member)


@scenario
def one_type_for_each(peer: Peer) -> None:
    member = reader(peer, 6)
    member.acknowledge(said(0, 4, ACCEPT, RELEASE, REJECT, GAP, RELEASE))
    offsets_of(member)
    member.fetch(max_wait=PERSISTED_AFTER_MS)
    member.acknowledge(said(1, 1, ACCEPT), said(4, 5, REJECT))
    offsets_of(member)


@scenario_for_each(
    {
        "no batch": [],
        "backwards": [said(2, 1, ACCEPT)],
        "negative": [said(-1, 1, ACCEPT)],
        "both negative": [said(-3, -2, ACCEPT)],
        "behind the end": [said(4, 9, ACCEPT)],
        "wholly behind the end": [said(9, 12, ACCEPT)],
        "far away": [said(2**62, 2**62 + 1, ACCEPT)],
        "no type": [said(0, 1)],
        "too few types": [said(0, 2, ACCEPT, ACCEPT)],
        "too many types": [said(0, 1, ACCEPT, ACCEPT, ACCEPT)],
        "an unknown type among others": [said(0, 1, ACCEPT, 9)],
        "renewed among others": [said(0, 1, ACCEPT, RENEW)],
        "out of order": [said(3, 4, ACCEPT), said(0, 1, ACCEPT)],
        "overlapping": [said(0, 2, ACCEPT), said(2, 3, ACCEPT)],
        "the same twice": [said(0, 1, ACCEPT), said(0, 1, ACCEPT)],
        "with a stretch between": [said(0, 0, ACCEPT), said(3, 4, ACCEPT)],
        "one good and one bad": [said(0, 1, ACCEPT), said(7, 8, ACCEPT)],
        "across batches": [said(1, 4, ACCEPT)],
        "part of a batch": [said(1, 1, ACCEPT)],
        "only gaps": [said(0, 1, GAP, GAP)],
    }
)
def of_batches(peer: Peer, batches: list[Plain]) -> None:
    """Acknowledge parts of six records in two batches."""
    member = reader(peer, 3, 3)
    member.acknowledge(*batches)
    offsets_of(member)
    for offset in range(6):
        member.acknowledge(said(offset, offset, ACCEPT))
    offsets_of(member)


@scenario_for_each({"accepted": ACCEPT, "released": RELEASE, "rejected": REJECT})
def twice(peer: Peer, kind: int) -> None:
    member = reader(peer, 3)
    for again in (ACCEPT, RELEASE, REJECT):
        member.acknowledge(said(1, 1, kind))
        member.acknowledge(said(1, 1, again))
    offsets_of(member)


@scenario
def of_another_member(peer: Peer) -> None:
    first = reader(peer, 2)
    fill(first, 2)
    second = another_member(first)
    second.open(max_wait=PERSISTED_AFTER_MS)
    second.acknowledge(said(0, 1, ACCEPT))
    second.acknowledge(said(1, 2, ACCEPT))
    first.acknowledge(said(2, 2, ACCEPT))
    first.acknowledge(said(0, 1, ACCEPT))
    second.acknowledge(said(2, 3, ACCEPT))
    offsets_of(first)


@scenario_for_each({"-2": -2, "0": 0, "1": 1, "3": 3})
def epoch(peer: Peer, session_epoch: int) -> None:
    """Send another session epoch than 2, the expected one."""
    member = reader(peer, 3)
    member.acknowledge(said(0, 0, ACCEPT))
    member.acknowledge(said(1, 1, ACCEPT), share_session_epoch=session_epoch)
    member.session_epoch = 2
    member.acknowledge(said(2, 2, ACCEPT))
    offsets_of(member)


@scenario
def last_request(peer: Peer) -> None:
    """End a session: records that the member did not acknowledge are released at once."""
    first = reader(peer, 4)
    second = another_member(first)
    second.open(max_wait=500)
    first.acknowledge(said(0, 0, ACCEPT), share_session_epoch=FINAL)
    second.fetch(max_wait=PERSISTED_AFTER_MS)
    first.acknowledge(said(1, 1, ACCEPT))
    first.acknowledge(said(1, 1, ACCEPT), share_session_epoch=FINAL)
    second.acknowledge(share_session_epoch=FINAL)
    second.acknowledge(share_session_epoch=FINAL)
    offsets_of(first)


@scenario_for_each(
    {
        "no group id": {"group_id": ""},
        "null group id": {"group_id": None},
        "another group": {"group_id": "another-share-group"},
        "no member id": {"member_id": ""},
        "null member id": {"member_id": None},
        "member id that is no UUID": {"member_id": "me"},
        "stranger": {"member_id": "CQkJCQkJCQkJCQkJCQkJCQ"},
        "no topic": {"topics": []},
    }
)
def said_by(peer: Peer, more: Plain) -> None:
    member = reader(peer, 1)
    member.acknowledge(said(0, 0, ACCEPT), **more)
    member.session_epoch = 1
    member.acknowledge(said(0, 0, ACCEPT))


@scenario_for_each({"topic": NOWHERE, "no topic id": NO_TOPIC_ID})
def unknown(peer: Peer, topic_id: str) -> None:
    member = reader(peer, 1)
    rows = [{"partition_index": 0, "acknowledgement_batches": [said(0, 0, ACCEPT)]}]
    member.acknowledge(topics=[{"topic_id": topic_id, "partitions": rows}])
    member.acknowledge(said(0, 0, ACCEPT))


@scenario_for_each({"7": 7, "-1": -1})
def unknown_partition(peer: Peer, index: int) -> None:
    member = reader(peer, 1)
    rows = [
        {"partition_index": number, "acknowledgement_batches": [said(0, 0, ACCEPT)]} for number in (0, index)
    ]
    member.acknowledge(topics=[{"topic_id": member.topics[0].topic_id, "partitions": rows}])
    offsets_of(member)


@scenario
def topic_that_is_deleted(peer: Peer) -> None:
    member = reader(peer, 1)
    wanted = {"name": member.topics[0].name, "topic_id": NO_TOPIC_ID}
    peer.call("delete_topics", 6, topics=[wanted], timeout=5_000)
    await_applied(peer)
    member.acknowledge(said(0, 0, ACCEPT))


@scenario
def after_leaving(peer: Peer) -> None:
    """Acknowledge after leaving the group: the share session still exists without its member."""
    member = reader(peer, 2)
    member.leave()
    member.acknowledge(said(0, 0, ACCEPT))
    offsets_of(member)


@scenario_for_each((1, 2))
def first_epoch_without_a_session(peer: Peer, version: int) -> None:
    """A session begins with a ShareFetch, so that this is a wrong epoch and not a missing session."""
    member = member_of_its_own(peer)
    for session_epoch in (0, 1, FINAL):
        member.acknowledge(version=version, share_session_epoch=session_epoch)
        member.acknowledge(said(0, 0, ACCEPT), version=version, share_session_epoch=session_epoch)


@scenario_for_each({"0 to 0": (0, 0), "4 to 8": (4, 8), "far away": (2**40, 2**40)})
def nothing_in_flight(peer: Peer, offsets: tuple[int, int]) -> None:
    """Acknowledge records before any was acquired, and after all of them were accepted."""
    member = member_of_its_own(peer)
    member.open(max_wait=500)
    member.acknowledge(said(*offsets, ACCEPT))
    member.fetch(acks=[said(*offsets, ACCEPT)])
    fill(member, 3)
    member.fetch(max_wait=PERSISTED_AFTER_MS)
    member.acknowledge(said(0, 2, ACCEPT))
    member.acknowledge(said(*offsets, ACCEPT))
    member.fetch(acks=[said(*offsets, ACCEPT)])
