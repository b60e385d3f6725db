"""Transactional producers of four libraries: commit, abort, successors with the same id, and a killed
gateway."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.compat.topics import fresh_topic
from tests.compat.transactions.clients import LIBRARIES, Confluent, Failed, Jvm, started, values
from tests.compat.transactions.readers import LAST_WORD, READERS, Reader
from tests.support.gateway_process import GatewayProcess
from tests.support.wire import Wire

PARTITIONS = 3
ROUNDS = 6
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}

each_library = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.lower())
of_each_version = pytest.mark.parametrize("library", [Jvm, Confluent], ids=["version 2", "version 1"])


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with GatewayProcess(tmp_path_factory.mktemp("transactions") / "data", settings=SETTINGS) as process:
        yield process.bootstrap
        assert "Traceback" not in process.stderr_text()


def fresh_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def described(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    with Wire(bootstrap) as wire:
        answer = wire.call("describe_transactions", 0, transactional_ids=[transactional_id])
    found: dict[str, Any] = answer.fields["transaction_states"][0]
    return found


class Written(NamedTuple):
    """A topic into which producers of all libraries have written in turn."""

    topic: str
    every: list[str]
    committed: list[str]


@pytest.fixture(scope="module")
def written(bootstrap: str) -> Written:
    found = Written(fresh_topic(bootstrap, "transactions"), [], [])
    with contextlib.ExitStack() as stack:
        producers = [stack.enter_context(started(library, bootstrap, fresh_id())) for library in LIBRARIES]
        for producer in producers:
            producer.init()
        for number in range(ROUNDS):
            for producer in producers:
                producer.begin()
            values = [f"{number}-{index}-{part}" for part in range(2) for index in range(len(producers))]
            for value in values:
                producers[int(value.split("-")[1])].send(found.topic, 0, value)
            aborts = [(number + index) % 3 == 1 for index in range(len(producers))]
            for producer, is_aborted in zip(producers, aborts, strict=True):
                producer.abort() if is_aborted else producer.commit()
            found.every.extend(values)
            found.committed.extend(value for value in values if not aborts[int(value.split("-")[1])])
        producers[0].begin()
        producers[0].send(found.topic, 0, LAST_WORD)
        producers[0].commit()
    found.every.append(LAST_WORD)
    found.committed.append(LAST_WORD)
    return found


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_what_is_aborted_is_read_by_those_only_who_do_not_mind(
    bootstrap: str, written: Written, read: Reader
) -> None:
    committed, every = written.committed, written.every
    assert read(bootstrap, written.topic, "read_committed", len(committed)) == committed
    assert read(bootstrap, written.topic, "read_uncommitted", len(every)) == every


@of_each_version
def test_an_open_transaction_is_not_read(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    with started(library, bootstrap, fresh_id()) as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "a")
        assert values(bootstrap, topic, isolation="read_committed") == []
        assert values(bootstrap, topic, isolation="read_uncommitted") == ["a"]
        producer.commit()
        assert values(bootstrap, topic, isolation="read_committed") == ["a"]


@each_library
def test_the_next_producer_of_an_id_fences_the_one_before(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    transactional_id = fresh_id()
    with (
        started(library, bootstrap, transactional_id) as zombie,
        started(library, bootstrap, transactional_id) as successor,
    ):
        zombie.init()
        zombie.begin()
        zombie.send(topic, 0, "zombie")
        successor.init()
        successor.begin()
        successor.send(topic, 0, "successor")
        with pytest.raises(Failed, match=r"(?i)fenced"):
            zombie.commit()
        successor.commit()
    assert values(bootstrap, topic, isolation="read_committed") == ["successor"]
    assert values(bootstrap, topic, isolation="read_uncommitted") == ["zombie", "successor"]


@each_library
def test_a_transaction_that_takes_too_long_is_aborted(bootstrap: str, library: type[Any]) -> None:
    topic = fresh_topic(bootstrap, "transactions")
    transactional_id = fresh_id()
    with started(library, bootstrap, transactional_id, timeout_ms=1_000) as producer:
        producer.init()
        producer.begin()
        producer.send(topic, 0, "late")
        while described(bootstrap, transactional_id)["transaction_state"] != "CompleteAbort":
            pass
        with pytest.raises(Failed):
            producer.commit()
    assert values(bootstrap, topic, isolation="read_committed") == []


@each_library
def test_a_transaction_goes_on_over_the_death_of_the_gateway(tmp_path: Path, library: type[Any]) -> None:
    with GatewayProcess(tmp_path / "data") as gateway:
        topic = fresh_topic(gateway.bootstrap, "transactions", partitions=PARTITIONS)
        with started(library, gateway.bootstrap, fresh_id()) as producer:
            producer.init()
            producer.begin()
            producer.send(topic, 0, "before")
            gateway.restart(kill=True)
            producer.send(topic, 1, "after")
            producer.commit()
        read = values(gateway.bootstrap, topic, isolation="read_committed", partitions=PARTITIONS)
        assert sorted(read) == ["after", "before"]
        assert "Traceback" not in gateway.stderr_text()
