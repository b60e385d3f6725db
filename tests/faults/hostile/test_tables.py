"""Floods of names and ids: each table fills up to its limit, reports the limit, and keeps serving its
entries.
"""

from __future__ import annotations

from typing import Any, Final

from tests.faults.hostile.scene import SETTINGS, Scene, frame
from tests.support.batches import Batch, records
from tests.support.wire import Plain, Wire, encode

GROUP_MAX_SIZE_REACHED: Final = 81
POLICY_VIOLATION: Final = 44
INVALID_COMMIT_OFFSET_SIZE: Final = 28
FETCH_SESSION_ID_NOT_FOUND: Final = 70


def limit(name: str) -> int:
    return int(SETTINGS[name])


def commit(wire: Wire, group: str, topic: str, indexes: range) -> int:
    rows = [{"partition_index": index, "committed_offset": 1} for index in indexes]
    topics = [{"name": topic, "partitions": rows}]
    answer = wire.call(
        "offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, topics=topics
    ).fields
    (error,) = {row["error_code"] for row in answer["topics"][0]["partitions"]}
    return int(error)


def join(wire: Wire, group: str, size_bytes: int) -> dict[str, Any]:
    request = {
        "group_id": group,
        "session_timeout": 6_000,
        "rebalance_timeout": 6_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x" * size_bytes}],
    }
    return wire.call("join_group", 3, request).fields


def fetch(topic: str, indexes: range, session_id: int, session_epoch: int) -> Plain:
    rows = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in indexes]
    return {
        "replica_id": -1,
        "max_bytes": 1 << 20,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [{"topic": topic, "partitions": rows}],
    }


def test_group_ids_and_offsets(scene: Scene) -> None:
    topic = scene.create(count=3_000)
    with scene.bounded(growth_bytes=48 << 20), scene.witness() as witness, scene.wire() as wire:
        wire.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        most = limit("seqgate.group.offsets.max")
        assert commit(wire, "first", topic, range(3_000)) == 0
        assert commit(wire, "second", topic, range(most - 3_000)) == 0
        assert commit(wire, "second", topic, range(3_000)) == INVALID_COMMIT_OFFSET_SIZE
        assert commit(wire, "first", topic, range(3_000)) == 0, (
            "an entry that replaces another one must be accepted"
        )
        assert wire.call("delete_groups", 2, groups_names=["second"]).fields["results"][0]["error_code"] == 0
        errors = [commit(wire, f"flood-{number}", topic, range(1)) for number in range(300)]
        assert errors.count(0) == limit("seqgate.group.max") - 1
        assert set(errors) == {0, GROUP_MAX_SIZE_REACHED}
        assert commit(wire, "first", topic, range(3_000)) == 0
        names = ["first", *(f"flood-{number}" for number in range(300))]
        wire.call("delete_groups", 2, groups_names=names)
        witness.wait_for(4)


def test_members_that_tell_megabytes_of_themselves(scene: Scene) -> None:
    with scene.bounded(growth_bytes=48 << 20), scene.witness() as witness, scene.wire() as wire:
        wire.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
        answers = [join(wire, f"fat-{number}", 900_000) for number in range(8)]
        errors = [answer["error_code"] for answer in answers]
        assert errors[:4] == [0] * 4
        assert errors[4:] == [GROUP_MAX_SIZE_REACHED] * 4
        for number, answer in enumerate(answers[:4]):
            wire.call("leave_group", 2, group_id=f"fat-{number}", member_id=answer["member_id"])
        # The gateway notices within a second that the clients are gone.
        for _ in range(100_000):
            if join(wire, "fat-again", 900_000)["error_code"] == 0:
                break
        else:
            raise AssertionError("the memory of members that left was never released")
        witness.wait_for(4)


def test_transactional_ids(scene: Scene) -> None:
    with scene.bounded(growth_bytes=48 << 20), scene.witness() as witness, scene.wire() as wire:
        wire.call("find_coordinator", 4, key_type=1, coordinator_keys=["t"])
        errors = []
        for number in range(300):
            answer = wire.call(
                "init_producer_id",
                4,
                transactional_id=f"flood-{number}",
                transaction_timeout=10_000,
                producer_id=-1,
                producer_epoch=-1,
            ).fields
            errors.append(answer["error_code"])
        assert errors.count(0) == limit("seqgate.transactional.id.max")
        assert set(errors) == {0, POLICY_VIOLATION}
        again = wire.call(
            "init_producer_id",
            4,
            transactional_id="flood-0",
            transaction_timeout=10_000,
            producer_id=-1,
            producer_epoch=-1,
        ).fields
        assert again["error_code"] == 0, "a known producer must be able to continue"
        witness.wait_for(4)


def test_producer_ids_by_the_thousand(scene: Scene) -> None:
    request = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
    payload = frame(encode("init_producer_id", 4, request, correlation_id=1))
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness, scene.wire() as wire:
        seen = set()
        for _ in range(30):
            wire.send_bytes(payload * 100)
            for _ in range(100):
                answer = wire.receive("init_producer_id", 4, 1).fields
                assert answer["error_code"] == 0, answer
                seen.add(answer["producer_id"])
        assert len(seen) == 3_000
        witness.wait_for(4)


def test_producers_of_one_partition(scene: Scene) -> None:
    topic = scene.create()
    refused = 0
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness, scene.wire() as wire:
        most = limit("seqgate.producer.max.per.partition")
        for producer_id in range(1_000, 1_000 + most + 50):
            batch = Batch(records(1, 10)).of(producer_id, 0, 0)
            topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]
            answer = wire.call("produce", 9, acks=1, timeout=30_000, topic_data=topics).fields
            refused += answer["responses"][0]["partition_responses"][0]["error_code"] != 0
        assert refused == 50, (
            "no producer may be evicted: all others wrote within seqgate.producer.min.idle.ms"
        )
        witness.wait_for(4)


def test_fetch_sessions_and_their_partitions(scene: Scene) -> None:
    topic = scene.create()
    most = limit("seqgate.fetch.session.max.partitions")
    with scene.bounded(growth_bytes=32 << 20), scene.witness() as witness, scene.wire() as wire:

        def ask(indexes: range, session_id: int, session_epoch: int) -> dict[str, Any]:
            return wire.call("fetch", 11, fetch(topic, indexes, session_id, session_epoch)).fields

        first = ask(range(most - 100), 0, 0)["session_id"]
        assert first
        assert ask(range(200), 0, 0)["session_id"] == 0, (
            "without room for its partitions a consumer must get no session"
        )
        second = ask(range(100), 0, 0)["session_id"]
        assert second
        grown = ask(range(most, most + 50), second, 1)
        assert grown["error_code"] == FETCH_SESSION_ID_NOT_FOUND, (
            "the session must have ended, so that the consumer sends whole requests"
        )
        assert ask(range(50), 0, 0)["session_id"], "the room of the ended session must be free again"
        sessions = [ask(range(1), 0, 0)["session_id"] for _ in range(150)]
        assert sum(map(bool, sessions)) < limit("max.incremental.fetch.session.cache.slots")
        for session_id in (first, *sessions):
            ask(range(0), session_id, -1)
        witness.wait_for(4)
