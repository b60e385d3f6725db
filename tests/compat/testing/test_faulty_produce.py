"""Idempotent producers of three client libraries lose, double and reorder nothing, whatever fault strikes
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

from seqgate.gateway.testing import Broker, Fault
from tests.compat.testing.clients import PRODUCERS

VALUES = [b"%d" % number for number in range(300)]
Order = Callable[[Broker], AbstractContextManager[Fault]]
ORDERS: dict[str, Order] = {
    "drop_answer": lambda broker: broker.faults.drop_answer(api="Produce", topic="t", times=2),
    "lose_answer": lambda broker: broker.faults.drop_answer(api="Produce", topic="t", closes=False),
    "close": lambda broker: broker.faults.close(api="Produce", topic="t", times=2),
    "error": lambda broker: broker.faults.error("NOT_ENOUGH_REPLICAS", api="Produce", times=2),
    "not_leader": lambda broker: broker.faults.not_leader(topic="t", times=2),
    "delay": lambda broker: broker.faults.delay(100, api="Produce", times=3),
    "throttle": lambda broker: broker.faults.throttle(100, api="Produce", times=2),
    "producer_id": lambda broker: broker.faults.error("COORDINATOR_LOAD_IN_PROGRESS", api="InitProducerId"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic("t")
    return shared


@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_fault_strikes_and_every_record_is_stored_once(broker: Broker, client: str, order: str) -> None:
    with ORDERS[order](broker) as fault:
        PRODUCERS[client](broker.bootstrap, "t", VALUES)
    assert fault.struck > 0
    broker.assert_exactly_once("t", VALUES)


@pytest.mark.parametrize("api", ["ApiVersions", "Metadata"])
def test_a_first_connection_that_breaks(broker: Broker, api: str) -> None:
    """aiokafka asks each address once and then raises; the others ask again."""
    for client in ("kafka-python", "confluent-kafka"):
        with broker.faults.close(api=api) as fault:
            PRODUCERS[client](broker.bootstrap, "t", VALUES)
        assert fault.struck == 1
    with broker.faults.close(api=api), pytest.raises(KafkaConnectionError):
        PRODUCERS["aiokafka"](broker.bootstrap, "t", VALUES)
    broker.assert_exactly_once("t", VALUES * 2)


@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize("part", ["partition_offline", "disk_full"])
def test_a_broken_part_is_repaired_while_the_client_retries(broker: Broker, client: str, part: str) -> None:
    faults = broker.faults
    broken = faults.disk_full() if part == "disk_full" else faults.partition_offline("t")
    with broken as fault:
        sending = threading.Thread(target=PRODUCERS[client], args=(broker.bootstrap, "t", VALUES))
        sending.start()
        fault.wait_until_struck(2)
    sending.join()
    broker.assert_exactly_once("t", VALUES)


@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_script_of_faults(broker: Broker, client: str, seed: int) -> None:
    with broker.faults.script(seed, api="Produce", rate=0.3, times=10) as script:
        PRODUCERS[client](broker.bootstrap, "t", VALUES)
    assert script.seen > 0
    broker.assert_exactly_once("t", VALUES)


@pytest.mark.parametrize("client", PRODUCERS)
def test_a_kill_while_a_client_sends(broker: Broker, client: str) -> None:
    with broker.faults.watch(api="Produce") as watched, broker.faults.delay(50, api="Produce", times=9):
        sending = threading.Thread(target=PRODUCERS[client], args=(broker.bootstrap, "t", VALUES))
        sending.start()
        watched.wait_until_struck()
        broker.kill()
        broker.start()
        sending.join()
    broker.assert_exactly_once("t", VALUES)
