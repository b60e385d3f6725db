"""A client of one gateway alone, which asks of it while it stands still what it must never acknowledge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.faults.kill.load import create_topic
from tests.support.batches import Batch, Record
from tests.support.read_back import read_back
from tests.support.wire import Closed, Plain, Wire

TOPIC = "witness"
GROUP = "group-of-the-witness"
TRANSACTIONAL_ID = "id-of-the-witness"
TRANSACTIONAL = 0x10
COORDINATOR_OF_GROUPS, COORDINATOR_OF_TRANSACTIONS = 0, 1
TIMEOUT_S = 60.0


class Asked(NamedTuple):
    """A request that was sent, on a connection of its own."""

    wire: Wire
    api: str
    version: int
    correlation_id: int


class Witness:
    """Begins a transaction with one record; `ask` sends a further record, an offset, and the commit."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connections = ExitStack()
        self._asked: list[Asked] = []
        self._producer: Plain = {}

    def __enter__(self) -> Self:
        self._producer = begun(self._bootstrap)
        request = {f"v3_and_below_{name}": value for name, value in self._producer.items()}
        request["v3_and_below_topics"] = [{"name": TOPIC, "partitions": [0]}]
        with Wire(self._bootstrap, timeout_s=TIMEOUT_S) as wire:
            added = wire.call("add_partitions_to_txn", 3, request)
            assert set(_errors(added.fields)) == {0}, added
            answer = wire.call("produce", 9, self._record(b"before the stop", 0))
            assert set(_errors(answer.fields)) == {0}, answer
            while any(_errors(wire.call("offset_commit", 8, _offset(0)).fields)):
                wire.call("find_coordinator", 2, key_type=COORDINATOR_OF_GROUPS, key=GROUP)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()

    def ask(self) -> None:
        """Send the requests and wait for no answer."""
        self._send("produce", 9, self._record(b"after the stop", 1))
        self._send("offset_commit", 8, _offset(1))
        self._send("end_txn", 3, self._producer | {"committed": True})

    def breaches(self) -> list[str]:
        """Return the requests that were acknowledged. The gateway must have ended."""
        return [
            f"the gateway that was taken over acknowledged a request of the time after: {asked.api}"
            for asked in self._asked
            if _is_acknowledged(asked)
        ]

    def _send(self, api: str, version: int, request: Plain) -> None:
        wire = self._connections.enter_context(Wire(self._bootstrap, timeout_s=TIMEOUT_S))
        self._asked.append(Asked(wire, api, version, wire.send(api, version, request)))

    def _record(self, value: bytes, sequence: int) -> Plain:
        batch = Batch((Record(value),), attributes=TRANSACTIONAL).of(
            self._producer["producer_id"], self._producer["producer_epoch"], sequence
        )
        rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch.encode()}]}]
        return {"transactional_id": TRANSACTIONAL_ID, "acks": -1, "timeout": 10_000, "topic_data": rows}


def prepare(bootstrap: str) -> None:
    """Create the topic of all witnesses."""
    create_topic(bootstrap, TOPIC, 1)


def found_of(bootstrap: str) -> list[str]:
    """Abort what the last witness has left open; return a sentence for each committed record."""
    begun(bootstrap)
    rows = read_back(bootstrap, TOPIC, 1)[0]
    return [f"a gateway that was taken over committed {value!r}" for _, value in rows]


def begun(bootstrap: str) -> Plain:
    """Begin a producer with the transactional id; return its id and epoch as the fields of further requests."""
    asked = {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout": 60_000}
    new = {"producer_id": -1, "producer_epoch": -1}
    with Wire(bootstrap, timeout_s=TIMEOUT_S) as wire:
        while (answer := wire.call("init_producer_id", 4, asked | new).fields)["error_code"]:
            key = {"key_type": COORDINATOR_OF_TRANSACTIONS, "key": TRANSACTIONAL_ID}
            wire.call("find_coordinator", 2, key)
    return {
        "transactional_id": TRANSACTIONAL_ID,
        "producer_id": answer["producer_id"],
        "producer_epoch": answer["producer_epoch"],
    }


def _offset(offset: int) -> Plain:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    topics = [{"name": TOPIC, "partitions": [row]}]
    return {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": topics}


def _is_acknowledged(asked: Asked) -> bool:
    try:
        answer = asked.wire.receive(asked.api, asked.version, asked.correlation_id)
    except Closed:
        return False
    return not any(_errors(answer.fields))


def _errors(answer: Any) -> Iterator[int]:
    """Return all error codes of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield value
            else:
                yield from _errors(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from _errors(value)
