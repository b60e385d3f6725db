from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka.serializer import Deserializer

from seqgate.spark_kafka_compat import SparkCompatError, positions
from seqgate.spark_kafka_compat.database_reader import DatabaseReader
from seqgate.spark_kafka_compat.databases import Database, Transaction
from seqgate.spark_kafka_compat.positions import TopicPartition, claim, create_tables, stored_positions
from seqgate.spark_kafka_compat.session import EndpointError, FencedError, PositionError
from tests.compat.spark.topics import TIMEOUT_S, Topics
from tests.support.gateway_process import GatewayProcess


@pytest.fixture
def topics(shared_gateway: GatewayProcess) -> Topics:
    return Topics(shared_gateway.bootstrap)


@pytest.fixture
def database(database_url: str) -> Database:
    made = Database(database_url)
    with made.transaction() as transaction:
        transaction.execute("CREATE TABLE lines (line INTEGER, place INTEGER)")
    return made


def write(transaction: Transaction, records: Sequence[Any]) -> None:
    rows = [(int(record.value), record.partition) for record in records]
    transaction.insert("lines", ("line", "place"), rows)


def lines(database: Database) -> list[int]:
    with database.transaction() as transaction:
        return sorted(line for (line,) in transaction.execute("SELECT line FROM lines").fetchall())


def reader(topics: Topics, topic: str, database: Database, **more: Any) -> DatabaseReader:
    given: dict[str, Any] = {"pipeline": "p", "write": write, **more}
    return DatabaseReader(topics.bootstrap, topic, database, **given)


def poll_until(reading: DatabaseReader, database: Database, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(lines(database)) < count:
        assert time.monotonic() < deadline, lines(database)
        reading.poll(100)


def transactional(topics: Topics, topic: str, *transactions: tuple[range, bool]) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for values, is_commit in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, str(value).encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        (producer.commit_transaction if is_commit else producer.abort_transaction)(TIMEOUT_S)


def test_rows_and_positions_are_written_together(topics: Topics, database: Database) -> None:
    topic = topics.fresh(partitions=2)
    topics.fill(topic, range(100))
    topics.fill(topic, range(100, 150), partition=1)
    with reader(topics, topic, database, options={"max_poll_records": 7}) as reading:
        assert reading.read_to_end() == 150
        assert reading.positions == {TopicPartition(topic, 0): 100, TopicPartition(topic, 1): 50}
    assert stored_positions(database, "p") == {TopicPartition(topic, 0): 100, TopicPartition(topic, 1): 50}
    topics.fill(topic, range(150, 160))
    with reader(topics, topic, database) as reading:
        assert reading.read_to_end() == 10
    assert lines(database) == list(range(160))


def test_positions_move_past_markers_and_aborted_records(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    transactional(topics, topic, (range(10), True), (range(10, 20), False))
    with reader(topics, topic, database) as reading:
        assert reading.read_to_end() == 10
        assert reading.positions == {TopicPartition(topic, 0): 22}
    topics.delete_records_before(topic, 0, 22)
    transactional(topics, topic, (range(20, 30), False))
    with reader(topics, topic, database) as reading:
        assert reading.read_to_end() == 0
    assert stored_positions(database, "p") == {TopicPartition(topic, 0): 33}
    assert lines(database) == list(range(10))


def test_records_of_a_failed_write_are_read_again(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(30))
    fails = [True]

    def failing(transaction: Transaction, records: Sequence[Any]) -> None:
        write(transaction, records)
        if fails.pop():
            raise ZeroDivisionError

    with reader(topics, topic, database, write=failing) as reading:
        with pytest.raises(ZeroDivisionError):
            reading.read_to_end()
        assert lines(database) == []
        fails[:] = [False] * 9
        assert reading.read_to_end() == 30
    assert lines(database) == list(range(30))


class _AnswerLost(Exception):
    pass


@dataclass(frozen=True)
class _LosesAnswers(Database):
    """A database whose next commits succeed, but whose answers get lost."""

    losses: list[bool]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with super().transaction() as transaction:
            yield transaction
        if self.losses:
            self.losses.pop()
            raise _AnswerLost


def test_a_commit_whose_answer_is_lost_counts_once(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(30))
    losing = _LosesAnswers(database.url, [])
    with reader(topics, topic, losing, options={"max_poll_records": 10}) as reading:
        losing.losses.append(True)
        with pytest.raises(_AnswerLost):
            reading.read_to_end()
        assert lines(database) == list(range(10))
        assert reading.read_to_end() == 20
    assert lines(database) == list(range(30))


def test_records_of_an_interrupted_poll_are_read_again(
    topics: Topics, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(30))
    interruptions = [KeyboardInterrupt]
    real = KafkaConsumer.poll

    def poll(consumer: KafkaConsumer, **given: Any) -> Any:
        found = real(consumer, **given)
        if found and interruptions:
            raise interruptions.pop()
        return found

    monkeypatch.setattr(KafkaConsumer, "poll", poll)
    with reader(topics, topic, database, options={"max_poll_records": 10}) as reading:
        with pytest.raises(KeyboardInterrupt):
            reading.read_to_end()
        assert reading.read_to_end() == 30
    assert lines(database) == list(range(30))


def test_a_record_that_can_not_be_deserialized_is_read_again(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(30))
    unreadable = {b"15"}

    class Unreliable(Deserializer):  # type: ignore[misc]
        def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
            if data in unreadable:
                raise ZeroDivisionError
            return data

    with reader(topics, topic, database, options={"value_deserializer": Unreliable()}) as reading:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                reading.read_to_end()
            assert lines(database) == list(range(15))
        unreadable.clear()
        reading.read_to_end()
    assert lines(database) == list(range(30))


def test_a_reader_resumes_after_its_gateway_was_killed(gateway: GatewayProcess, tmp_path: Path) -> None:
    database, topics = Database(f"sqlite://{tmp_path / 'lines.db'}"), Topics(gateway.bootstrap)
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE lines (line INTEGER, place INTEGER)")
    topic = topics.fresh()
    topics.fill(topic, range(100))
    with reader(topics, topic, database, options={"max_poll_records": 10}) as reading:
        poll_until(reading, database, 30)
        gateway.restart(kill=True)
        topics.fill(topic, range(100, 200))
        poll_until(reading, database, 200)
    assert lines(database) == list(range(200))


def test_the_later_of_two_readers_fences_the_earlier(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    with reader(topics, topic, database) as older, reader(topics, topic, database) as newer:
        with pytest.raises(FencedError, match="Another copy of the pipeline 'p'"):
            older.read_to_end()
        assert newer.read_to_end() == 10
        with pytest.raises(FencedError):
            older.poll()
    assert lines(database) == list(range(10))


def test_a_reader_that_starts_during_a_write_of_the_older_one(
    topics: Topics, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    with reader(topics, topic, database) as older:

        def meanwhile(database: Database) -> None:
            topics.fill(topic, range(10, 20))
            older.read_to_end()
            create_tables(database)

        monkeypatch.setattr(positions, "create_tables", meanwhile)
        with reader(topics, topic, database) as newer:
            assert newer.positions == {TopicPartition(topic, 0): 20}
    assert lines(database) == list(range(20))


def test_a_position_that_somebody_moved_is_refused(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    with reader(topics, topic, database) as reading:
        with database.transaction() as transaction:
            transaction.execute("UPDATE kafka_read_positions SET next_offset = 4")
        with pytest.raises(PositionError, match="from 0 to 4"):
            reading.read_to_end()
        assert reading.read_to_end() == 6
    assert lines(database) == list(range(4, 10))


def test_records_deleted_before_they_were_read_are_refused(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    with reader(topics, topic, database) as reading:
        topics.delete_records_before(topic, 0, 5)
        with pytest.raises(PositionError, match="begins at 5, but is written up to 0 only"):
            reading.read_to_end()
    assert lines(database) == []


def test_new_partitions_are_read(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    with reader(topics, topic, database, starting="latest", options={"metadata_max_age_ms": 200}) as reading:
        assert reading.read_to_end() == 0
        topics.grow(topic, 2)
        topics.fill(topic, range(10, 20), partition=1)
        poll_until(reading, database, 10)
        assert lines(database) == list(range(10, 20))
        assert reading.positions == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}


def test_readers_can_share_the_partitions(topics: Topics, database: Database) -> None:
    topic = topics.fresh(partitions=2)
    for partition in (0, 1):
        topics.fill(topic, range(partition, 20, 2), partition=partition)
    with (
        reader(topics, topic, database, pipeline="even", partitions=[0]) as even,
        reader(topics, topic, database, pipeline="odd", partitions=[1]) as odd,
    ):
        assert (even.read_to_end(), odd.read_to_end()) == (10, 10)
    assert lines(database) == list(range(20))


def test_a_missing_topic_is_refused(topics: Topics, database: Database) -> None:
    with pytest.raises(EndpointError, match="There is no topic never-made"):
        reader(topics, "never-made", database)


@pytest.mark.parametrize(
    ("partitions", "complaint"), [([0, 7], "has no partition 7"), ([], "partitions is empty")]
)
def test_a_missing_partition_is_refused(
    topics: Topics, database: Database, partitions: list[int], complaint: str
) -> None:
    topic = topics.fresh(partitions=2)
    with pytest.raises(SparkCompatError, match=complaint):
        reader(topics, topic, database, partitions=partitions)


def test_options_that_the_database_decides(topics: Topics, database: Database) -> None:
    with pytest.raises(SparkCompatError, match="group_id can't be given"):
        reader(topics, "t", database, options={"group_id": "g"})


def test_a_recreated_topic_that_has_grown_beyond_is_refused(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    with reader(topics, topic, database) as reading:
        reading.read_to_end()
    topics.make_anew(topic)
    topics.fill(topic, range(100, 120))
    with pytest.raises(PositionError, match=f"{topic} was recreated"):
        reader(topics, topic, database)
    with database.transaction() as transaction:
        transaction.execute("DELETE FROM kafka_read_positions")
    with reader(topics, topic, database) as reading:
        reading.read_to_end()
    assert lines(database) == [*range(10), *range(100, 120)]


@pytest.mark.parametrize("count", [0, 30], ids=["shorter", "longer"])
def test_a_topic_recreated_during_the_read_is_refused(topics: Topics, database: Database, count: int) -> None:
    topic = topics.fresh()
    topics.fill(topic, range(10))
    # A fetch that waits, and one in a session, learn of the deletion; the client then asks for the topic anew.
    options = {"enable_incremental_fetch_sessions": False, "fetch_max_wait_ms": 1}
    with reader(topics, topic, database, options=options) as reading:
        reading.read_to_end()
        topics.make_anew(topic)
        topics.fill(topic, range(100, 100 + count))
        for _ in range(2):
            with pytest.raises(PositionError, match="recreated"):
                poll_until(reading, database, 11)
        assert lines(database) == list(range(10))


def test_a_topic_that_ends_before_the_position_is_refused(topics: Topics, database: Database) -> None:
    topic = topics.fresh()
    claim(database, "p", lambda _: {TopicPartition(topic, 0): 5})
    with pytest.raises(PositionError, match="recreated"):
        reader(topics, topic, database)
