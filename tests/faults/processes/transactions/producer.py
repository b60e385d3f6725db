"""One transactional producer under load in a process of its own: `python -m
tests.faults.processes.transactions.producer LIBRARY BOOTSTRAP TOPIC PARTITIONS FIRST PATIENCE_S`.

It runs one transaction after the other until its standard input ends, and aborts some on purpose. After any
error of the library, and when a transaction takes too long, it exits with 1, and the next process with the
same transactional id continues at transaction FIRST. It reports events on standard output, one line each:

    B transaction records…      it begins; the number of records in each partition
    C transaction               it is to be committed
    D transaction               its commit was acknowledged
    X transaction               it was aborted on purpose, and that was acknowledged
    E                           the end
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tests.compat.transactions.clients import (
    Aiokafka,
    Confluent,
    Jvm,
    KafkaPython,
    TransactionalProducer,
    started,
)
from tests.faults.kill.checker import RecordName
from tests.support.child_process import ended_by_failures, follow_stdin, leaving

CLIENTS: Mapping[str, type[Any]] = {
    "jvm": Jvm,
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
MOST_RECORDS = 5
"""The most records of a transaction in one partition."""
ABORTED_SHARE = 0.2


def group_of(library: str) -> str:
    return f"group-of-{library}"


def tell(*words: object) -> None:
    print(*words, flush=True)


@contextlib.contextmanager
def bounded(patience_s: float) -> Iterator[None]:
    """End the process if the block takes too long. librdkafka may wait for a dead connection for ever (its
    issues 5456 and 5511).
    """

    def end() -> None:
        faulthandler.dump_traceback()
        os._exit(1)

    timer = threading.Timer(patience_s, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def transact(producer: TransactionalProducer, library: str, topic: str, number: int, partitions: int) -> None:
    chance = random.Random(f"{library} {number}")
    sizes = [chance.randint(0, MOST_RECORDS) for _ in range(partitions - 1)] + [1]
    tell("B", number, *sizes)
    producer.begin()
    for index in range(MOST_RECORDS):
        for partition, size in enumerate(sizes):
            if index < size:
                producer.post(
                    topic, partition, RecordName(library, number, partition, index).encode().decode()
                )
    producer.hold_offset(group_of(library), topic, number + 1)
    if chance.random() < ABORTED_SHARE:
        producer.abort()
        tell("X", number)
    else:
        tell("C", number)
        producer.commit()
        tell("D", number)


def run(library: str, bootstrap: str, topic: str, partitions: int, first: int, patience_s: float) -> None:
    with started(CLIENTS[library], bootstrap, f"id-of-{library}") as producer:
        with bounded(patience_s):
            producer.init()
        while not leaving.is_set():
            with bounded(patience_s):
                transact(producer, library, topic, first, partitions)
            first += 1
    tell("E")


if __name__ == "__main__":
    follow_stdin()
    with ended_by_failures():
        run(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
