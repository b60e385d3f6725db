"""A group reads each record once, however often the command ends and begins again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaProducer

from seqgate.gateway.admin.consume import FROM_THE_BEGINNING, FROM_THE_END, Start, read_records
from seqgate.gateway.admin.groups.describing import committed_offsets
from seqgate.gateway.admin.produce import ProducedRecord, send_records
from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.remote.cluster import Cluster, connected
from seqgate.gateway.testing import Broker

SENT = [str(number).encode() for number in range(10)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.create_topic("t", 2)
        broker.create_topic("transactions")
        with connected(parse_addresses(broker.bootstrap)) as cluster:
            records = (ProducedRecord(value, partition=number % 2) for number, value in enumerate(SENT))
            send_records(cluster, "t", records, compression=None, at_once=False)
            yield cluster


def read(
    cluster: Cluster, group: str, limit: int | None = None, start: Start = FROM_THE_BEGINNING
) -> list[bytes]:
    def nothing() -> None: ...

    records = read_records(
        cluster,
        "t",
        partitions=(),
        start=start,
        group=group,
        follow=False,
        committed=True,
        on_pause=nothing,
        limit=limit,
    )
    with closing(records):
        return [record.value for record in records]


def test_a_group_goes_on_behind_what_was_printed(cluster: Cluster) -> None:
    first, second = read(cluster, "g", 3), read(cluster, "g", 2)
    assert (len(first), len(second)) == (3, 2)
    assert sorted(first + second + read(cluster, "g")) == SENT
    assert read(cluster, "g") == []


def test_a_record_whose_output_is_cut_off_is_not_committed(cluster: Cluster) -> None:
    records = read_records(
        cluster,
        "t",
        partitions=(),
        start=FROM_THE_BEGINNING,
        group="cut",
        follow=False,
        committed=True,
        on_pause=lambda: None,
    )
    printed = next(records).value
    next(records)
    records.close()
    assert sorted([printed, *read(cluster, "cut")]) == SENT


def test_a_group_without_offsets_may_begin_at_the_end(cluster: Cluster) -> None:
    assert read(cluster, "late", start=FROM_THE_END) == []
    assert read(cluster, "late") == []


def test_an_offset_beyond_the_end_at_the_start_is_not_taken_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed() -> dict[tuple[str, int], int]:
        found = committed_offsets(cluster, ["busy"])["busy"]
        return {place: each.offset for place, each in found.items()}

    assert sorted(read(cluster, "busy")) == SENT
    before = committed()
    # As with open transactions, or an application that read on while the group was balanced.
    early = {place: at - 2 for place, at in before.items()}
    monkeypatch.setattr(cluster, "ends", lambda *_: early)
    assert read(cluster, "busy") == []
    assert committed() == before
    assert read(cluster, "new", start=FROM_THE_END) == []
    monkeypatch.undo()
    assert len(read(cluster, "new")) == 4


def test_what_the_pipe_did_not_take_is_not_committed(cluster: Cluster) -> None:
    written: list[object] = []

    def broken() -> None:
        if written:
            raise BrokenPipeError

    records = read_records(
        cluster,
        "t",
        partitions=(),
        start=FROM_THE_BEGINNING,
        group="broken",
        follow=False,
        committed=True,
        on_pause=broken,
    )
    written.append(next(records))
    with pytest.raises(BrokenPipeError):
        records.close()
    assert sorted(read(cluster, "broken")) == SENT


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [9]), (2, [8, 9]), (4, [6, 7, 8, 9]), (10, [*range(10)]), (99, [*range(10)])]
)
def test_the_last_records_are_counted_without_markers_and_aborted_records(
    in_transactions: Cluster, number: int, expected: list[int]
) -> None:
    records = read_records(
        in_transactions,
        "transactions",
        partitions=(),
        start=Start("last", number),
        follow=False,
        committed=True,
        on_pause=lambda: None,
    )
    assert [int(record.value) for record in records] == expected


@pytest.fixture(scope="module")
def in_transactions(cluster: Cluster) -> Cluster:
    """The cluster with a topic of ten records in transactions of one, and many aborted records after them."""
    producer = KafkaProducer(bootstrap_servers=list(cluster.addresses), transactional_id="t")
    producer.init_transactions()
    for value in SENT:
        producer.begin_transaction()
        producer.send("transactions", value)
        producer.commit_transaction()
    producer.begin_transaction()
    for value in SENT:
        producer.send("transactions", value)
    producer.flush()
    producer.abort_transaction()
    producer.close()
    return cluster
