"""The application of `examples/streams` is killed amid its work; each total is written once, in order."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from seqgate.gateway.testing import BrokerProcess
from tests.compat.examples.example import Example, await_that

ORDERS, CUSTOMERS, PARTITIONS = 20_000, 11, 4
RUN = "java -jar target/order-totals.jar"
SEND = r"printf 'ada:500\ngrace:200\nada:250\n' | seqgate produce amounts --key-separator :"
READ = "seqgate consume totals --show key,value"
ENDED_BY_SIGTERM = 143
LIMIT_S = 60


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    with Example("streams", tmp_path, {}) as copy:
        copy.run("mvn -B -q package")
        yield copy
        shutil.rmtree(copy.directory / "target")  # a hundred megabytes of libraries


def send_orders(bootstrap: str) -> dict[str, list[str]]:
    """Send all orders, and return the totals that must follow for each customer."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    amounts = defaultdict(list)
    for number in range(ORDERS):
        customer, amount = f"customer-{number % CUSTOMERS}", 1 + number % 97
        amounts[customer].append(amount)
        producer.produce("amounts", key=customer, value=str(amount))
    assert producer.flush(LIMIT_S) == 0
    return {customer: list(map(str, accumulate(each))) for customer, each in amounts.items()}


def totals(broker: BrokerProcess) -> dict[str, list[str]]:
    """Return the committed totals of each customer, in their order."""
    found = defaultdict(list)
    for record in broker.records("totals"):
        found[(record.key or b"").decode()].append((record.value or b"").decode())
    return dict(found)


def committed_orders(bootstrap: str) -> int:
    """Return how many orders the application has committed."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "order-totals", "log_level": 0})
    places = reader.committed(
        [TopicPartition("amounts", number) for number in range(PARTITIONS)], timeout=LIMIT_S
    )
    reader.close()
    return sum(max(0, place.offset) for place in places)


def test_each_total_is_written_once_though_the_application_is_killed(
    example: Example, broker: BrokerProcess, tmp_path: Path
) -> None:
    settings = [f"bootstrap.servers={broker.bootstrap}", f"state.dir={tmp_path / 'state'}"]
    application = example.start(RUN, *settings)
    application.await_output("running")
    # The second transaction stays open, with totals that no reader may see.
    with broker.faults.close(api="EndTxn", after=1, times=1_000_000) as fault:
        expected = send_orders(broker.bootstrap)
        fault.wait_until_struck(timeout_s=LIMIT_S)
        application.kill()
    assert 0 < len(broker.records("totals")) < ORDERS

    broker.clock.advance(minutes=1)  # the session of the killed application ends
    application = example.start(RUN, *settings)
    application.await_output("running")
    await_that(lambda: committed_orders(broker.bootstrap) == ORDERS, "all orders are committed")
    assert totals(broker) == expected

    example.run(SEND, "--bootstrap", broker.bootstrap)
    await_that(
        lambda: committed_orders(broker.bootstrap) == ORDERS + 3, "the orders of the README are committed"
    )
    shown = example.run(READ, "--bootstrap", broker.bootstrap).splitlines()
    assert len(shown) == ORDERS + 3
    assert [line for line in shown if line.startswith("ada")] == ["ada\t500", "ada\t750"]
    assert [line for line in shown if line.startswith("grace")] == ["grace\t200"]
    application.terminate()
    assert application.expect_end(ENDED_BY_SIGTERM).count("running") == 1
