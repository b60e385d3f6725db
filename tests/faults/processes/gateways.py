"""Several gateways of one bucket under an idempotent and a transactional producer: one is killed, loses its
disk or stands still.

For half an hour: `python -m tests.faults.processes.soak --part gateways --seconds 1800`.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import KafkaException, Producer

from seqgate.gateway.cluster.objects.directory_objects import LOCK
from tests.faults.processes.buckets import stop_without
from tests.faults.processes.scene import Outcome
from tests.support.gateway_cluster import PARTITIONS, GatewayCluster, Writer, await_true, check, stored
from tests.support.gateway_process import GatewayProcess

GATEWAYS: Final = 3
TRANSACTIONS: Final = "transactions"
MOST_RECORDS_BETWEEN: Final = 600
LEASE_MS: Final = "6000"
"""Long enough that other tests on the same cores do not make a gateway look dead."""
TIMEOUT_S: Final = 60.0
WITHIN_S: Final = (1, 2, 3, 4, 5, 7, 10, 20, 60, float("inf"))
"""The times by which faults are counted: until every partition acknowledges further records, the restart of
the gateway included.
"""
PAUSE_S: Final = 0.02
"""The pause between two transactions, so that they do not take all of the bucket's puts."""


class Transactions:
    """A thread that writes a number to every partition in each transaction, until it is stopped.

    `committed` are the numbers whose commit was acknowledged, `undecided` those of transactions that ended
    with an error.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._number = 0
        self.committed: list[int] = []
        self.undecided: set[int] = set()
        self.aborted = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """End the transaction that is open, and wait for that."""
        self._stopping.set()
        self._thread.join(3 * TIMEOUT_S)
        assert not self._thread.is_alive(), "the transactional producer does not end"

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._live()
            except KafkaException:
                self.undecided.add(self._number)
                self._number += 1

    def _live(self) -> None:
        """Write with one producer until it fails. Raises KafkaException."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": TRANSACTIONS, "log_level": 0}
        )
        producer.init_transactions(TIMEOUT_S)
        while not self._stopping.wait(PAUSE_S):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TRANSACTIONS, str(self._number), partition=partition)
            try:
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(TIMEOUT_S)
                self.aborted += 1
            else:
                self.committed.append(self._number)
            self._number += 1

    def check(self, bootstrap: str) -> None:
        """Check that every partition has each committed number once, in order, and none of an aborted
        transaction. Raises AssertionError.
        """
        for partition, rows in stored(bootstrap, TRANSACTIONS).items():
            found = [number for _, number in rows]
            lost = set(self.committed) - set(found)
            assert not lost, f"{TRANSACTIONS}-{partition}: {sorted(lost)[:5]} were committed and are lost"
            assert found == sorted(set(found)), f"{TRANSACTIONS}-{partition}: doubled or out of order"
            torn = set(found) - set(self.committed) - self.undecided
            assert not torn, f"{TRANSACTIONS}-{partition}: {sorted(torn)[:5]} were aborted and are there"


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Let one gateway after the other suffer, and check what is stored."""
    rng = Random(seed)
    outcome = Outcome()
    directory.mkdir(parents=True, exist_ok=True)
    with GatewayCluster(directory, GATEWAYS, {"seqgate.cluster.lease.ms": LEASE_MS}) as cluster:
        cluster.create()
        cluster.create(TRANSACTIONS)
        transactions = Transactions(cluster.bootstrap)
        transactions.start()
        with Writer(cluster.bootstrap) as writer:
            for _ in range(rounds):
                for act in (_kill, _lose_disk, _stand_still):
                    writer.await_more(rng.randint(1, MOST_RECORDS_BETWEEN))
                    began_s = time.monotonic()
                    act(cluster, rng.choice(cluster.gateways), writer, outcome.counts)
                    _await_all(writer)
                    waited_s = time.monotonic() - began_s
                    limit_s = next(limit_s for limit_s in WITHIN_S if waited_s < limit_s)
                    outcome.counts[f"all partitions go on within {limit_s:g} s"] += 1
            begun = len(transactions.committed)
            await_true(lambda: len(transactions.committed) > begun, "transactions are committed")
            transactions.stop()
        for examine in (
            lambda: check(writer, cluster.bootstrap),
            lambda: transactions.check(cluster.bootstrap),
        ):
            _note(outcome, examine)
    outcome.counts["records acknowledged"] += writer.count
    outcome.counts["transactions committed"] += len(transactions.committed)
    outcome.counts["transactions aborted"] += transactions.aborted
    return outcome


def _note(outcome: Outcome, examine: Callable[[], None]) -> None:
    try:
        examine()
    except AssertionError as error:
        outcome.breaches.append(str(error).splitlines()[0])


def _await_all(writer: Writer) -> None:
    """Wait until every partition has acknowledged further records."""
    before = {partition: len(writer.acknowledged[partition]) for partition in range(PARTITIONS)}
    await_true(
        lambda: all(len(writer.acknowledged[partition]) > count for partition, count in before.items()),
        "every partition goes on",
    )


def _kill(cluster: GatewayCluster, gateway: GatewayProcess, writer: Writer, counts: Counter[str]) -> None:
    """Kill a gateway; start it again once the others serve all its partitions."""
    gateway.kill()
    _await_takeover(cluster, gateway, writer)
    gateway.start()
    counts["gateways killed"] += 1


def _lose_disk(_: GatewayCluster, gateway: GatewayProcess, __: Writer, counts: Counter[str]) -> None:
    """Kill a gateway, remove its disk, and start it again at once: it comes back as another node."""
    gateway.kill()
    shutil.rmtree(gateway.data_dir)
    gateway.start()
    counts["disks lost"] += 1


def _stand_still(
    cluster: GatewayCluster, gateway: GatewayProcess, writer: Writer, counts: Counter[str]
) -> None:
    """Stop a gateway until the others serve all its partitions. It ends itself when it goes on, and is
    started again.
    """
    stop_without(cluster.path / "bucket" / LOCK, gateway.pid)
    _await_takeover(cluster, gateway, writer)
    os.kill(gateway.pid, signal.SIGCONT)
    gateway.await_end()
    gateway.start()
    counts["gateways taken over"] += 1


def _await_takeover(cluster: GatewayCluster, gateway: GatewayProcess, writer: Writer) -> None:
    await_true(lambda: gateway.port not in cluster.brokers(), "the gateway is fenced")
    _await_all(writer)
