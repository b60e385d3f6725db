"""Transactional producers of several libraries at once, and the check of what they have committed and
aborted.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.faults.kill.load import REQUEST_TIMEOUT_MS, ProducerProcess, Producers
from tests.faults.processes.scene import PARTITIONS, TOPIC, Load, Outcome, told
from tests.faults.processes.transactions.ledger import End, Transaction, TransactionLedger, check
from tests.faults.processes.transactions.producer import group_of
from tests.support.gateway_process import GatewayProcess
from tests.support.read_back import read_back

PATIENCE_S = {"confluent-kafka": 5.0}
"""Seconds after which a process gives up its transaction: few for librdkafka, which may wait for ever."""
OTHERS_PATIENCE_S = 120.0
OFFSETS_TIMEOUT_S = 60.0


class TransactionalProcess(ProducerProcess):
    """Processes with the same transactional id, one after the other: the next one starts when one gives up."""

    def __init__(
        self,
        library: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        directory: Path,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        rate: int = 0,
    ) -> None:
        self.transactions = TransactionLedger(library)
        self._records = 0
        self._starts = 0
        self._finishing = False
        self._killed = False
        super().__init__(library, bootstrap, topic, partitions, directory, request_timeout_ms, rate)

    @property
    def acknowledged(self) -> int:
        """The number of records in transactions whose commit was acknowledged."""
        return self._records

    @property
    def restarts(self) -> int:
        return self._starts - 1

    def _command(self) -> list[str]:
        self._starts += 1
        first = str(self.transactions.next_number)
        patience_s = str(PATIENCE_S.get(self.ledger.producer, OTHERS_PATIENCE_S))
        program = "tests.faults.processes.transactions.producer"
        return [sys.executable, "-m", program, *self._arguments[:4], first, patience_s]

    def _read(self) -> None:
        super()._read()
        while self._continued():
            super()._read()

    def _continued(self) -> bool:
        """Start the next process if the last one gave up."""
        self._process.wait()
        with self._changed:
            if self._ended or self._killed:
                return False
            self._close()
            self._process = self._start()
            if self._finishing:
                self._end_input()
            return True

    def _take(self, line: str) -> None:
        kind, *fields = line.split()
        if kind == "E":
            self._ended = True
            return
        number, *sizes = map(int, fields)
        known = self.transactions.transactions
        if kind == "B":
            known[number] = Transaction(tuple(sizes))
        elif kind == "C":
            known[number].end = End.IN_DOUBT
        elif kind == "D":
            known[number].end = End.COMMITTED
            self._records += sum(known[number].sizes)

    def stop_sending(self) -> None:
        with self._changed:
            self._finishing = True
            self._end_input()

    def kill(self) -> None:
        with self._changed:
            self._killed = True
        super().kill()

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


class TransactionalProducers(Producers):
    """Several client libraries at once, each with a transactional id of its own."""

    process = TransactionalProcess

    def await_further(self, count: int) -> None:
        """Return after a quarter of what the idempotent producers wait for, because transactions take longer."""
        super().await_further(-(-count // 4))

    @property
    def ledgers_of_transactions(self) -> Sequence[TransactionLedger]:
        return [one.transactions for one in self._processes]

    @property
    def restarts(self) -> int:
        return sum(one.restarts for one in self._processes)

    @property
    def _processes(self) -> list[TransactionalProcess]:
        return [one for one in self.all if isinstance(one, TransactionalProcess)]

    def summary(self) -> str:
        return "\n".join(
            f"{one.transactions.producer}: {one.restarts} restarts, "
            + ", ".join(f"{one.transactions.count(end)} {end.name}" for end in End)
            for one in self._processes
        )


def examined(gateway: GatewayProcess, producers: Producers) -> Outcome:
    """Compare the records and the committed offsets with what the producers were told."""
    assert isinstance(producers, TransactionalProducers)
    ledgers = producers.ledgers_of_transactions
    visible, stored = (
        read_back(gateway.bootstrap, TOPIC, PARTITIONS, isolation=isolation)
        for isolation in ("read_committed", "read_uncommitted")
    )
    offsets = {ledger.producer: _committed(gateway, ledger.producer) for ledger in ledgers}
    breaches = check(ledgers, visible, stored, offsets)
    ends = Counter({end: sum(ledger.count(end) for ledger in ledgers) for end in End})
    counts = Counter(
        {
            "records checked": sum(map(len, stored.values())),
            "records acknowledged": producers.acknowledged,
            "transactions committed": ends[End.COMMITTED],
            "transactions in doubt": ends[End.IN_DOUBT],
            "transactions aborted": ends[End.NONE],
            "producers started again": producers.restarts,
            "transactions lost": sum(breach.endswith("is lost") for breach in breaches),
            "records doubled": sum(breach.endswith("is doubled") for breach in breaches),
        }
    )
    return Outcome(counts, told(breaches))


def _committed(gateway: GatewayProcess, library: str) -> int:
    """Return the committed offset of the library's group, -1 for none."""
    consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group_of(library)})
    (place,) = consumer.committed([TopicPartition(TOPIC, 0)], OFFSETS_TIMEOUT_S)
    consumer.close()
    assert place.error is None, place.error
    return int(place.offset) if place.offset >= 0 else -1


TRANSACTIONAL = Load(TransactionalProducers, examined)
