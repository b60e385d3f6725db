"""InitProducerId, and the APIs of transactions."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Entry, Stage
from tests.compat.differential.rights.table import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTION,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    row,
)
from tests.compat.differential.transactional import ABORT, TransactionalProducer, await_coordinator
from tests.support.wire import Plain

NEW = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
NOBODY = {"producer_id": 2**40, "producer_epoch": 0}
FIRST_WITH_SEVERAL = 4


@row(IDEMPOTENT_WRITE, cases=(0, 5))
def init_producer_id(stage: Stage, version: int) -> None:
    stage.user.call("init_producer_id", version, transactional_id=None, **NEW)


@row(WRITE_TOPIC)
def init_producer_id_by_any_topic(stage: Stage) -> None:
    """Ask for a producer id with the right to write to some topic, whether it exists or not."""
    stage.user.call("init_producer_id", 5, transactional_id=None, **NEW)


def _coordinated(stage: Stage) -> None:
    for transactional_id in stage.transactional_ids:
        await_coordinator(stage.admin, transactional_id)
    stage.admin.group("group")
    stage.admin.group("other-group")


@row(WRITE_TRANSACTION, cases=(0, 5), prepare=_coordinated)
def init_producer_id_of_a_transactional_id(stage: Stage, version: int) -> None:
    for transactional_id in stage.transactional_ids:
        stage.user.call("init_producer_id", version, transactional_id=transactional_id, **NEW)


@row(WRITE_TRANSACTION, WRITE_TOPIC, cases=(0, 3, 4, 5), prepare=_coordinated)
def add_partitions_to_txn(stage: Stage, version: int) -> None:
    """Add partitions as a client does, first of all four topics and then of one topic, with a producer id
    that no producer has.
    """
    for transactional_id in stage.transactional_ids:
        for names in (stage.topics, stage.topics[:1]):
            topics = [{"name": name, "partitions": [0]} for name in names]
            one = {"transactional_id": transactional_id, **NOBODY, "topics": topics}
            below = {f"v3_and_below_{key}": value for key, value in one.items()}
            stage.user.call(
                "add_partitions_to_txn", version, transactions=[{**one, "verify_only": False}], **below
            )


@row(CLUSTER_ACTION, cases=(4, 5), prepare=_coordinated)
def add_partitions_to_several_transactions(stage: Stage, version: int) -> None:
    topics = [{"name": name, "partitions": [0]} for name in stage.topics]
    rows = [
        {"transactional_id": transactional_id, **NOBODY, "topics": topics, "verify_only": True}
        for transactional_id in stage.transactional_ids
    ]
    stage.user.call("add_partitions_to_txn", version, transactions=rows)


@row(WRITE_TRANSACTION, READ_GROUP, cases=(0, 4), prepare=_coordinated)
def add_offsets_to_txn(stage: Stage, version: int) -> None:
    for transactional_id in stage.transactional_ids:
        for group_id in stage.groups:
            stage.user.call(
                "add_offsets_to_txn", version, transactional_id=transactional_id, **NOBODY, group_id=group_id
            )


@row(WRITE_TRANSACTION, cases=(0, 5), prepare=_coordinated)
def end_txn(stage: Stage, version: int) -> None:
    for transactional_id in stage.transactional_ids:
        stage.user.call("end_txn", version, transactional_id=transactional_id, **NOBODY, committed=ABORT)


@row(WRITE_TRANSACTION, READ_GROUP, READ_TOPIC, cases=(0, 3, 5), prepare=_coordinated)
def txn_offset_commit(stage: Stage, version: int) -> None:
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    ]
    topics = [{"name": name, "partitions": partitions} for name in stage.topics]
    for transactional_id in stage.transactional_ids:
        for group_id in stage.groups:
            stage.user.call(
                "txn_offset_commit",
                version,
                transactional_id=transactional_id,
                group_id=group_id,
                **NOBODY,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=topics,
            )


def _markers(stage: Stage) -> Plain:
    marker = {
        **NOBODY,
        "transaction_result": False,
        "topics": [{"name": stage.topics[3], "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 1,
    }
    return {"markers": [marker]}


@row(CLUSTER_ACTION, cases=(1, 2))
def write_txn_markers(stage: Stage, version: int) -> None:
    stage.user.call("write_txn_markers", version, **_markers(stage))


@row(ALTER_CLUSTER)
def write_txn_markers_as_an_administrator(stage: Stage) -> None:
    stage.user.call("write_txn_markers", 1, **_markers(stage))


def _with_transactions(stage: Stage) -> None:
    """Leave one open transaction of each id: the partitions of the topics `open` and `closed` take part in
    it.
    """
    for suffix in ("tid", "other-tid"):
        producer = TransactionalProducer(stage.admin, suffix)
        producer.init()
        producer.add({stage.open.name: [0], stage.closed.name: [0]})


@row(DESCRIBE_TRANSACTION, DESCRIBE_TOPIC, prepare=_with_transactions)
def describe_transactions(stage: Stage) -> None:
    stage.user.call(
        "describe_transactions", 0, transactional_ids=[*stage.transactional_ids, stage.name("no-tid")]
    )


@row(DESCRIBE_TRANSACTION, cases=(0, 2), prepare=_with_transactions)
def list_transactions(stage: Stage, version: int) -> None:
    stage.user.call("list_transactions", version, duration_filter=-1, only_own=True)


# The cases in which InitProducerId without a transactional id depends on the right to write to any topic.

TOPIC, WRITE, ALL, DENY, ALLOW = 2, 4, 2, 2, 3
ENTRIES: dict[str, tuple[tuple[str, int, int], ...]] = {
    "a topic": (("t", WRITE, ALLOW),),
    "a topic, denied": (("t", WRITE, ALLOW), ("t", WRITE, DENY)),
    "a topic, another denied": (("t", WRITE, ALLOW), ("u", WRITE, DENY)),
    "every topic": (("*", WRITE, ALLOW),),
    "every topic, one denied": (("*", WRITE, ALLOW), ("t", WRITE, DENY)),
    "a topic, every topic denied": (("t", WRITE, ALLOW), ("*", WRITE, DENY)),
    "all operations": (("t", ALL, ALLOW),),
    "all operations denied": (("t", WRITE, ALLOW), ("t", ALL, DENY)),
}


@row(cases=ENTRIES)
def some_topic(stage: Stage, entries: tuple[tuple[str, int, int], ...]) -> None:
    named = {
        (name if name == "*" else stage.name(name), operation, permission)
        for name, operation, permission in entries
    }
    stage.grant({Entry(TOPIC, name, operation, permission) for name, operation, permission in named})
    stage.user.call("init_producer_id", 5, transactional_id=None, **NEW)
    stage.grant(set())
