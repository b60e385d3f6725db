"""ShareFetch (KIP-932): share sessions, how many records a request acquires, and acknowledgements in a fetch."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.group_member import GroupMember
from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.settling import await_applied
from tests.compat.differential.share_member import (
    ACCEPT,
    FINAL,
    PERSISTED_AFTER_MS,
    RELEASE,
    RENEW,
    ShareMember,
    another_member,
    fill,
    member_of_its_own,
    offsets_of,
    reader,
    said,
    share_group,
)
from tests.support.wire import NO_TOPIC_ID, Plain

NOWHERE = "00000000-0000-0000-0000-0000000000ff"
RECORD_LIMIT = 1
BEGUN_AFTER_MS = 500
DELIVERIES = 5
"""How often a record is delivered at most, by default."""
NO_RECORDS = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
"""The limits of a fetch that only acknowledges."""


@scenario_for_each((1, 2))
def life(peer: Peer, version: int) -> None:
    member = reader(peer, 3, 2, version=version)
    member.fetch(version=version)
    fill(member, 4)
    member.fetch(version=version, max_wait=PERSISTED_AFTER_MS)
    member.fetch(version=version, acks=[said(0, 4, ACCEPT)])
    member.fetch(version=version, acks=[said(5, 8, ACCEPT)], share_session_epoch=FINAL)
    member.fetch(version=version)
    offsets_of(member)


# --- sessions


@scenario
def empty_partition(peer: Peer) -> None:
    member = member_of_its_own(peer)
    member.open(max_wait=BEGUN_AFTER_MS)
    member.fetch()
    member.fetch(max_wait=0)


@scenario_for_each({"-2": -2, "-1": FINAL, "0": 0, "1": 1, "3": 3, "largest": 2**31 - 1})
def epoch(peer: Peer, session_epoch: int) -> None:
    """Send another session epoch than 2, the expected one; then 2."""
    member = reader(peer, 1, 1)
    member.fetch(max_wait=0)
    member.fetch(share_session_epoch=session_epoch, max_wait=0)
    member.session_epoch = 2
    member.fetch(max_wait=0)


@scenario_for_each({"-2": -2, "-1": FINAL, "1": 1, "largest": 2**31 - 1})
def epoch_without_a_session(peer: Peer, session_epoch: int) -> None:
    member = member_of_its_own(peer)
    member.fetch(share_session_epoch=session_epoch, max_wait=0)
    member.fetch(0, share_session_epoch=session_epoch, max_wait=0)
    member.fetch(0, share_session_epoch=session_epoch, acks=[said(0, 0, ACCEPT)], max_wait=0)


@scenario
def session_begins_anew(peer: Peer) -> None:
    """Open the share session again: acquired records stay acquired, but the session has lost its partitions."""
    member = reader(peer, 2)
    fill(member, 1)
    member.open(max_wait=PERSISTED_AFTER_MS)
    member.fetch(acks=[said(0, 2, ACCEPT)])


@scenario
def session_begins_without_partitions(peer: Peer) -> None:
    member = member_of_its_own(peer, partitions=2)
    fill(member, 1)
    member.session_epoch = 0
    member.fetch()
    member.fetch(0, max_wait=PERSISTED_AFTER_MS)
    member.fetch()


@scenario
def session_begins_with_acknowledgements(peer: Peer) -> None:
    member = reader(peer, 2)
    member.fetch(acks=[said(0, 1, ACCEPT)], share_session_epoch=0)
    member.fetch(acks=[said(0, 1, ACCEPT)])


@scenario
def partitions_come_and_go(peer: Peer) -> None:
    member = member_of_its_own(peer, partitions=3)
    member.open(0, max_wait=BEGUN_AFTER_MS)
    fill(member, 1, partition=1)
    member.fetch(1, max_wait=PERSISTED_AFTER_MS)
    fill(member, 1, partition=0)
    member.fetch(max_wait=PERSISTED_AFTER_MS)
    fill(member, 1, partition=0)
    member.fetch(forgotten=[0])
    member.fetch(forgotten=[0, 2, 7])
    member.fetch(0, forgotten=[0])
    member.fetch(0, max_wait=PERSISTED_AFTER_MS)


@scenario
def last_request(peer: Peer) -> None:
    """Send the last request of a session with partitions, with acknowledgements, and when no session is left."""
    member = reader(peer, 3)
    member.fetch(0, share_session_epoch=FINAL)
    member.open()
    member.fetch(acks=[said(0, 0, ACCEPT)], share_session_epoch=FINAL)
    member.fetch(share_session_epoch=FINAL)
    member.open(max_wait=PERSISTED_AFTER_MS)
    member.fetch(share_session_epoch=FINAL, max_wait=PERSISTED_AFTER_MS)
    offsets_of(member)


@scenario_for_each({"no partition": [], "some": [0], "unknown": [7]})
def last_request_forgets(peer: Peer, forgotten: list[int]) -> None:
    member = reader(peer, 1)
    member.fetch(share_session_epoch=FINAL, forgotten=forgotten)


# --- who asks for which partitions


@scenario_for_each(
    {
        "no group id": {"group_id": ""},
        "null group id": {"group_id": None},
        "no member id": {"member_id": ""},
        "null member id": {"member_id": None},
        "member id that is no UUID": {"member_id": "me"},
        "member id of zeros": {"member_id": "A" * 22},
        "member id of 36 characters": {"member_id": "0f0e0d0c-0b0a-0908-0706-050403020100"},
        "another group": {"group_id": "another-share-group"},
    }
)
def asked_by(peer: Peer, more: Plain) -> None:
    member = member_of_its_own(peer)
    fill(member, 1)
    member.open(max_wait=500, **more)


@scenario
def stranger(peer: Peer) -> None:
    """Fetch as a member that the group does not know: membership is not checked."""
    member = member_of_its_own(peer)
    fill(member, 2)
    other = ShareMember(peer, member.group_id, member.topics, 9)
    other.open(max_wait=PERSISTED_AFTER_MS)
    other.fetch(acks=[said(0, 1, ACCEPT)])


@scenario
def group_of_another_kind(peer: Peer) -> None:
    topic = peer.topic()
    classic = GroupMember(peer, peer.group("classic"))
    classic.join()
    ShareMember(peer, classic.group_id, [topic]).open(max_wait=BEGUN_AFTER_MS)


@scenario_for_each(
    {
        "topic": [{"topic_id": NOWHERE, "partitions": [{"partition_index": 0}]}],
        "no topic id": [{"topic_id": NO_TOPIC_ID, "partitions": [{"partition_index": 0}]}],
        "topic without partitions": [{"topic_id": NOWHERE, "partitions": []}],
        "topic acknowledged": [
            {
                "topic_id": NOWHERE,
                "partitions": [{"partition_index": 0, "acknowledgement_batches": [said(0, 0, ACCEPT)]}],
            }
        ],
    }
)
def unknown(peer: Peer, topics: Any) -> None:
    """Fetch unknown topics, alone and with a known one; then again, now that the session contains them."""
    member = member_of_its_own(peer)
    member.open(max_wait=BEGUN_AFTER_MS)
    request = member.fetch_request(topics=topics, max_wait=0)
    peer.call("share_fetch", 2, **request)
    member.session_epoch = 2
    member.fetch(max_wait=0)


@scenario_for_each({"7": 7, "-1": -1})
def unknown_partition(peer: Peer, index: int) -> None:
    member = member_of_its_own(peer)
    fill(member, 1)
    member.open(0, index, max_wait=PERSISTED_AFTER_MS)
    member.fetch(acks=[said(0, 0, ACCEPT)], max_wait=0)


@scenario
def topic_that_is_deleted(peer: Peer) -> None:
    member = reader(peer, 1)
    wanted = {"name": member.topics[0].name, "topic_id": NO_TOPIC_ID}
    peer.call("delete_topics", 6, topics=[wanted], timeout=5_000)
    await_applied(peer)
    member.fetch(acks=[said(0, 0, ACCEPT)], max_wait=0)


# --- which records a request acquires


@scenario_for_each({"0": 0, "1": 1, "2": 2, "3": 3, "5": 5, "6": 6, "-1": -1})
def max_records(peer: Peer, limit: int) -> None:
    """Limit the records of a request, over batches of two, three and four records."""
    member = member_of_its_own(peer)
    fill(member, 2, 3, 4)
    member.open(max_records=limit, max_wait=PERSISTED_AFTER_MS)
    member.fetch(max_records=limit, max_wait=PERSISTED_AFTER_MS)


@scenario_for_each({"1": 1, "2": 2, "3": 3, "6": 6, "50": 50})
def record_limit(peer: Peer, limit: int) -> None:
    member = member_of_its_own(peer)
    fill(member, 2, 3, 4)
    for number in range(3):
        ask = member.fetch if number else member.open
        ask(max_records=limit, share_acquire_mode=RECORD_LIMIT, max_wait=PERSISTED_AFTER_MS)
    member.fetch(acks=[said(0, 0, ACCEPT)])


@scenario_for_each({"2": 2, "-1": -1})
def unknown_acquire_mode(peer: Peer, mode: int) -> None:
    member = member_of_its_own(peer)
    fill(member, 2)
    member.open(max_records=1, share_acquire_mode=mode, max_wait=500)


@scenario_for_each({"0": 0, "1": 1, "2": 2, "4": 4, "7": 7, "-1": -1})
def batch_size(peer: Peer, size: int) -> None:
    """Limit the size of acquired batches, over batches of two, three and nine records."""
    member = member_of_its_own(peer)
    fill(member, 2, 3, 9)
    member.open(batch_size=size, max_wait=PERSISTED_AFTER_MS)


@scenario_for_each({"1": 1, "120": 120, "0": 0, "-1": -1})
def max_bytes(peer: Peer, limit: int) -> None:
    member = member_of_its_own(peer)
    fill(member, 2, 3)
    member.open(max_bytes=limit, max_wait=500)
    member.fetch(max_bytes=limit, max_wait=500)


@scenario
def min_bytes_that_never_come(peer: Peer) -> None:
    member = member_of_its_own(peer)
    fill(member, 2)
    member.open(min_bytes=1 << 20, max_wait=1_000)


@scenario
def two_members_read_one_partition(peer: Peer) -> None:
    first = reader(peer, 2)
    fill(first, 3)
    second = another_member(first)
    second.open(max_wait=PERSISTED_AFTER_MS)
    first.fetch(max_wait=0)
    second.fetch(acks=[said(2, 4, ACCEPT)])
    first.acknowledge(said(0, 1, RELEASE))
    second.fetch(max_wait=PERSISTED_AFTER_MS)
    second.fetch(acks=[said(0, 1, ACCEPT)])


@scenario
def released_records_come_again(peer: Peer) -> None:
    """Release records until they reach the limit of deliveries. Kafka gives the last ones out one by one."""
    member = reader(peer, 4)
    for _ in range(DELIVERIES):
        member.fetch(acks=[said(1, 2, RELEASE)], **NO_RECORDS)
        member.fetch(max_wait=500)
        member.fetch()
    member.fetch(acks=[said(0, 0, ACCEPT), said(3, 3, ACCEPT)])
    offsets_of(member)


@scenario
def holes(peer: Peer) -> None:
    """Release records between others that are acknowledged or acquired, in several batches of the log."""
    member = reader(peer, 3, 3, 3)
    member.acknowledge(said(0, 8, RELEASE, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, ACCEPT))
    member.fetch(max_wait=PERSISTED_AFTER_MS)
    member.fetch(acks=[said(0, 0, ACCEPT), said(2, 2, ACCEPT), said(6, 7, ACCEPT)])
    offsets_of(member)


@scenario
def deleted_records(peer: Peer) -> None:
    member = reader(peer, 3, 3)
    fill(member, 3)
    rows = [{"name": member.topics[0].name, "partitions": [{"partition_index": 0, "offset": 4}]}]
    peer.call("delete_records", 2, topics=rows, timeout=5_000)
    member.fetch(max_wait=PERSISTED_AFTER_MS)
    member.fetch(acks=[said(4, 5, ACCEPT)])
    member.fetch(acks=[said(6, 8, ACCEPT)])
    offsets_of(member)


# --- acknowledgements in a fetch


@scenario
def acknowledged_and_acquired(peer: Peer) -> None:
    """Acknowledge in a fetch: the answer does not wait for records."""
    member = reader(peer, 2)
    fill(member, 1)
    member.fetch(acks=[said(0, 1, ACCEPT)], max_wait=PERSISTED_AFTER_MS)
    member.fetch(acks=[said(2, 2, ACCEPT)])


@scenario
def acknowledged_without_being_acquired(peer: Peer) -> None:
    member = reader(peer, 2)
    member.fetch(acks=[said(0, 5, ACCEPT)])
    member.fetch(acks=[said(2, 2, ACCEPT)])
    member.fetch(acks=[said(0, 1, ACCEPT)])
    member.fetch(acks=[said(0, 1, ACCEPT)])


@scenario_for_each({"flag": True, "no flag": False})
def renewed(peer: Peer, flag: bool) -> None:
    """Renew locks in a fetch, which must then ask for no records."""
    member = reader(peer, 2)
    for limits in (NO_RECORDS, {"max_wait": 0}):
        member.fetch(acks=[said(0, 1, RENEW)], is_renew_ack=flag, **limits)
    member.fetch(acks=[said(0, 0, ACCEPT), said(1, 1, RENEW)], is_renew_ack=flag, **NO_RECORDS)
    member.fetch(acks=[said(0, 1, ACCEPT)])


@scenario
def in_no_session_but_assigned(peer: Peer) -> None:
    """Acknowledge a partition that the session does not contain: the request adds it to the session."""
    member = member_of_its_own(peer, partitions=2)
    fill(member, 1)
    member.open(0, max_wait=PERSISTED_AFTER_MS)
    member.fetch(forgotten=[0], max_wait=0)
    member.fetch(acks=[said(0, 0, ACCEPT)], max_wait=0)
    fill(member, 1)
    member.fetch(max_wait=PERSISTED_AFTER_MS)


@scenario
def two_groups_of_one_topic(peer: Peer) -> None:
    first = reader(peer, 2)
    other = ShareMember(peer, share_group(peer, "other"), first.topics, 2)
    other.await_partitions(1, subscribed_topic_names=[first.topics[0].name])
    other.open(max_wait=PERSISTED_AFTER_MS)
    first.fetch(acks=[said(0, 1, ACCEPT)])
    offsets_of(first)
    offsets_of(other)


@scenario_for_each({"1": 1, "2": 2, "500": 500})
def unknown_partition_beside_records(peer: Peer, max_records: int) -> None:
    """Every answer names the unknown partition, however many records the answer has."""
    member = member_of_its_own(peer)
    member.open(0, 9, max_wait=500)
    fill(member, 2, 3)
    member.fetch(max_records=max_records, max_wait=PERSISTED_AFTER_MS)
    for _ in range(2):
        member.fetch(max_records=max_records)
