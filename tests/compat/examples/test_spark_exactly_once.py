"""The job of `examples/spark-exactly-once` is killed amid its micro batches; both sides have each order once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from seqgate.gateway.testing import BrokerProcess
from seqgate.spark_kafka_compat.session import JARS_VARIABLE
from tests.compat.examples.example import Example, await_that
from tests.support.postgresql_server import PostgresqlServer
from tests.support.setup_peers import spark_connector_libs

ORDERS = 10_000
SEND, STREAM = f"python send_orders.py {ORDERS}", "python stream_orders.py"
AT_ONCE = 250
"""Orders in a micro batch of the job that is killed: it has many of them, so it never ends before."""
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options that halve the processor time of a job that runs for seconds."""


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"num.partitions": "3"}) as running:
        yield running


@pytest.fixture
def database(postgresql: PostgresqlServer) -> str:
    return postgresql.fresh_database()


@pytest.fixture
def example(broker: BrokerProcess, database: str, tmp_path: Path) -> Iterator[Example]:
    variables = {
        "DATABASE_URL": database,
        "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap,
        JARS_VARIABLE: str(spark_connector_libs()),
        "JAVA_TOOL_OPTIONS": SMALL,
        "MASTER": "local[2]",
    }
    with Example("spark-exactly-once", tmp_path, variables) as copy:
        yield copy


def totals(database: str) -> dict[str, tuple[int, int]]:
    """Return the orders and cents of each customer; nothing before the job has created the table."""
    with psycopg.connect(database) as connection:
        if connection.execute("SELECT to_regclass('customer_totals')").fetchone() == (None,):
            return {}
        rows = connection.execute("SELECT customer, orders, cents FROM customer_totals").fetchall()
    return {customer: (int(orders), int(cents)) for customer, orders, cents in rows}


def counted(database: str) -> int:
    return sum(orders for orders, _ in totals(database).values())


def finished_batches(lake: Path) -> int:
    """Return how many micro batches the log of the Parquet files calls finished."""
    return sum(entry.name.isdigit() for entry in (lake / "_spark_metadata").glob("*"))


def test_each_order_counts_once_though_the_job_is_killed(
    example: Example, database: str, broker: BrokerProcess
) -> None:
    assert example.run(SEND) == f"sent {ORDERS} orders\n"
    lake = example.directory / "lake" / "orders"
    job = example.start(STREAM, "--at-once", str(AT_ONCE))

    def is_amid_its_work() -> bool:
        assert not job.has_ended, job.output
        return counted(database) > 0 and finished_batches(lake) > 0

    await_that(is_amid_its_work, "both sides have some orders")
    job.kill()
    assert 0 < counted(database) < ORDERS
    assert 0 < finished_batches(lake) < ORDERS // AT_ONCE

    page = (example.directory / "README.md").read_text()
    told = [line for line in example.run(STREAM).splitlines() if line.startswith(("Parquet:", "Postgre"))]
    assert len(told) == 2
    assert "\n".join(told) in page

    sent = [(order % 7, 100 + order % 1_000) for order in range(ORDERS)]
    by_customer = [[cents for customer, cents in sent if customer == number] for number in range(7)]
    assert sorted(totals(database).values()) == sorted((len(each), sum(each)) for each in by_customer)
    assert len(broker.records("orders")) == ORDERS
