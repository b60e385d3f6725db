"""The service of `examples/fastapi-producer` answers 201 only for orders that are stored, each once."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.testing import BrokerProcess
from tests.compat.examples.example import LIMIT_S, Example, Program, await_that
from tests.support.gateway_process import free_port

ORDERS, CLIENTS, TOPIC = 400, 16, "web-orders"
SERVE = "uvicorn orders_service:app --port 8000"
ENDED_BY_SIGTERM = -signal.SIGTERM
"""uvicorn stops cleanly at the signal, and then gives it to the system's own handler."""
DURABLE = {"log.flush.interval.messages": "1", "num.partitions": "3"}


class Service:
    """A running service, over HTTP."""

    def __init__(self, program: Program, port: int) -> None:
        self.program = program
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, order: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return the status of the answer and its JSON."""
        body = None if order is None else json.dumps(order).encode()
        asked = urllib.request.Request(self._address + path, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    @property
    def is_healthy(self) -> bool:
        return self.ask("/health") == (200, {"kafka": "answers"})


def order(number: int) -> dict[str, Any]:
    return {"order_id": str(number), "customer": f"customer-{number % 7}", "amount_cents": 100 + number}


def places(broker: BrokerProcess) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the stored orders by partition and offset."""
    return {
        (record.partition, record.offset): json.loads(record.value or b"") for record in broker.records(TOPIC)
    }


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings=DURABLE) as running:
        yield running


@pytest.fixture
def example(broker: BrokerProcess, tmp_path: Path) -> Iterator[Example]:
    variables = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap, "ORDERS_TIMEOUT_S": "60"}
    with Example("fastapi-producer", tmp_path, variables) as copy:
        yield copy


def started(example: Example) -> Service:
    port = free_port()
    program = example.start(SERVE, "--port", str(port))
    program.await_output("Uvicorn running on")
    return Service(program, port)


@pytest.fixture
def service(example: Example) -> Service:
    return started(example)


def test_every_order_is_stored_once_while_the_gateway_is_killed_and_starts_again(
    service: Service, broker: BrokerProcess
) -> None:
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = [clients.submit(service.ask, "/orders", order(number)) for number in range(ORDERS // 2)]
        await_that(lambda: sum(answer.done() for answer in answers) > ORDERS // 8, "orders are answered")
        broker.kill()
        answers += [
            clients.submit(service.ask, "/orders", order(number)) for number in range(ORDERS // 2, ORDERS)
        ]
        assert not service.is_healthy
        broker.start()
        results = [answer.result() for answer in answers]

    assert {status for status, _ in results} == {201}
    stored = places(broker)
    told = {(answer["partition"], answer["offset"]): answer["order_id"] for _, answer in results}
    assert {place: found["order_id"] for place, found in stored.items()} == told
    assert sorted(map(str, stored.values())) == sorted(str(order(number)) for number in range(ORDERS))
    await_that(lambda: service.is_healthy, "the service is healthy again")


def test_lost_answers_store_no_order_twice_and_a_stop_waits_for_the_order(
    service: Service, broker: BrokerProcess
) -> None:
    assert service.ask("/orders", order(0))[0] == 201
    lost_answers = broker.faults.drop_answer(api="Produce", topic=TOPIC, times=3)
    with ThreadPoolExecutor(1) as client, lost_answers:
        waiting = client.submit(service.ask, "/orders", order(1))
        lost_answers.wait_until_struck()
        service.program.terminate()
        assert waiting.result()[0] == 201
    assert "No order waits for an acknowledgement" in service.program.expect_end(ENDED_BY_SIGTERM)
    assert lost_answers.struck == 3
    assert sorted(found["order_id"] for found in places(broker).values()) == ["0", "1"]


def test_the_order_of_the_readme_and_wrong_ones(example: Example, service: Service) -> None:
    page = (example.directory / "README.md").read_text()
    (documented,) = re.findall(r"^curl .* -d '(.*?)' http://127.0.0.1:8000/orders$", page, re.MULTILINE)
    (answer,) = re.findall(r'`(\{"order_id".*?\})`', page)
    status, told = service.ask("/orders", json.loads(documented))
    assert (status, told | {"partition": 0}) == (201, json.loads(answer))
    assert service.ask("/orders", {**order(1), "amount_cents": 0})[0] == 422
    assert service.is_healthy


def test_an_order_that_is_not_acknowledged_in_time_gets_503(broker: BrokerProcess, tmp_path: Path) -> None:
    variables = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap, "ORDERS_TIMEOUT_S": "1"}
    with Example("fastapi-producer", tmp_path, variables) as example:
        service = started(example)
        assert service.ask("/orders", order(0))[0] == 201
        broker.kill()
        told = {"detail": "order 1 is not acknowledged; it may be stored later"}
        assert service.ask("/orders", order(1)) == (503, told)
        service.program.terminate()
        assert "Some orders are not acknowledged" in service.program.expect_end(ENDED_BY_SIGTERM)
