"""The relay of `examples/outbox` is killed between sending and marking; each row is in the topic once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from seqgate.gateway.testing import BrokerProcess
from tests.compat.examples.example import EXAMPLES, Example, await_that
from tests.support.named_batches import DEDUPLICATED
from tests.support.postgresql_server import PostgresqlServer

ORDERS, TOPIC = 1_000, "placed-orders"
PLACE, RELAY_ONCE = f"python shop.py {ORDERS}", "python relay.py --once"


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


@pytest.fixture
def database(postgresql: PostgresqlServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgresql.fresh_database(), autocommit=True) as connection:
        connection.execute((EXAMPLES / "outbox" / "schema.sql").read_bytes())
        yield connection


@pytest.fixture
def outbox(broker: BrokerProcess, database: psycopg.Connection, tmp_path: Path) -> Iterator[Example]:
    places = {
        "DATABASE_URL": f"postgresql://{database.info.user}@{database.info.host}:{database.info.port}/{database.info.dbname}",
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
    }
    with Example("outbox", tmp_path, places) as example:
        yield example


def payloads(database: psycopg.Connection) -> list[bytes]:
    """Return what the topic must hold, in the order of the relay's numbers."""
    rows = database.execute("SELECT payload FROM outbox ORDER BY position").fetchall()
    return [payload.encode() for (payload,) in rows]


def unmarked(database: psycopg.Connection) -> int:
    return counted(database, "outbox WHERE sent_at IS NULL")


def others_connected(database: psycopg.Connection) -> int:
    """Return how many other connections the database has; a relay opens one once it knows its topic."""
    others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    return counted(database, others)


def counted(database: psycopg.Connection, rows: LiteralString) -> int:
    (count,) = database.execute("SELECT count(*) FROM " + rows).fetchone() or (0,)
    return int(count)


def expect_each_row_once(broker: BrokerProcess, database: psycopg.Connection, count: int) -> None:
    expected = payloads(database)
    assert len(expected) == len(set(expected)) == count
    assert unmarked(database) == 0
    broker.assert_exactly_once(TOPIC, expected)
    homes = defaultdict(set)
    for record in broker.records(TOPIC):
        homes[record.key].add(record.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_a_relay_killed_between_sending_and_marking_sends_each_row_once(
    outbox: Example, broker: BrokerProcess, database: psycopg.Connection
) -> None:
    assert outbox.run(PLACE) == f"placed {ORDERS} orders\n"
    # The records are stored, and their relay never learns of it: it stands between sending and marking.
    with broker.faults.drop_answer(api="Produce", closes=False, times=100) as fault:
        relay = outbox.start(RELAY_ONCE)
        fault.wait_until_struck()
        await_that(lambda: len(broker.records(TOPIC)) > 0, "the relay sends")
        relay.kill()
    assert unmarked(database) == ORDERS

    assert outbox.run(RELAY_ONCE) == f"sent {ORDERS} rows\n"
    expect_each_row_once(broker, database, ORDERS)


def test_a_gateway_that_is_killed_meanwhile_and_two_relays_at_once(
    outbox: Example, broker: BrokerProcess, database: psycopg.Connection
) -> None:
    outbox.run(PLACE)
    relays = [outbox.start("python relay.py") for _ in range(2)]
    await_that(lambda: others_connected(database) == 2, "both relays have found the topic")
    await_that(lambda: unmarked(database) < ORDERS, "a relay sends")
    broker.kill()
    outbox.run(PLACE)
    assert unmarked(database) >= ORDERS
    broker.start()
    await_that(lambda: unmarked(database) == 0, "the relays send the rest")
    for relay in relays:
        relay.terminate()
    for relay in relays:
        assert "sent " in relay.expect_end()
    expect_each_row_once(broker, database, 2 * ORDERS)


def test_a_row_that_commits_late_is_sent(
    outbox: Example, broker: BrokerProcess, database: psycopg.Connection
) -> None:
    outbox.run(RELAY_ONCE)
    insert = "INSERT INTO outbox (key, payload) VALUES ('ada', %s)"
    with psycopg.connect(database.info.dsn) as late:
        late.execute(insert, ("late",))
        database.execute(insert, ("early",))
        assert outbox.run(RELAY_ONCE) == "sent 1 rows\n"
    assert outbox.run(RELAY_ONCE) == "sent 1 rows\n"
    assert payloads(database) == [b"early", b"late"]
    expect_each_row_once(broker, database, 2)


def test_a_topic_that_would_store_rows_twice_is_refused(outbox: Example, broker: BrokerProcess) -> None:
    broker.create_topic(TOPIC)
    refused = outbox.start(RELAY_ONCE).expect_end(1)
    assert (
        refused
        == "relay: the topic placed-orders would store repeated rows: set message.deduplication.enable=true "
        "first\n"
    )


def test_a_refused_record_stops_the_relay_and_is_sent_later(
    outbox: Example, broker: BrokerProcess, database: psycopg.Connection
) -> None:
    limits = {**DEDUPLICATED, "max.message.bytes": "2000"}
    broker.create_topic(TOPIC, configs=limits)
    outbox.run(RELAY_ONCE)
    for payload in ("first", "x" * 3000, "last"):
        database.execute("INSERT INTO outbox (key, payload) VALUES ('ada', %s)", (payload,))
    assert "relay: the topic placed-orders refused a record" in outbox.start(RELAY_ONCE).expect_end(1)
    assert unmarked(database) == 3
    database.execute("UPDATE outbox SET payload = 'short' WHERE length(payload) = 3000")
    outbox.run(RELAY_ONCE)
    expect_each_row_once(broker, database, 3)


def test_a_relay_that_cannot_work_says_why(
    outbox: Example, broker: BrokerProcess, database: psycopg.Connection
) -> None:
    database.execute("DROP TABLE outbox")
    assert 'relay: relation "outbox" does not exist' in outbox.start(RELAY_ONCE).expect_end(1)
    broker.kill()
    assert f"relay: the topic {TOPIC} can't be created: " in outbox.start(RELAY_ONCE).expect_end(1)
