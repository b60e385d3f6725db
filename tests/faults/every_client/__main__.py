"""Every client at once on three gateways of a bucket, while one of these suffers every twenty seconds.

    python -m tests.faults.every_client --seconds 1800

Idempotent producers of Kafka's Java client, librdkafka, kafka-python and aiokafka, a transactional one of
librdkafka, a Kafka Streams application with exactly_once_v2, and a Spark job that copies all topics. A
gateway is killed, loses its disk, stands still, is cut off from the store, or stops. The last line of output
is JSON: what happened, and the breaches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self, TypedDict

from tests.faults.every_client.streams import StreamsLoad
from tests.faults.every_client.suffering import SufferingGateways
from tests.faults.kill.checker import check
from tests.faults.kill.load import Producers
from tests.faults.processes.gateways import TRANSACTIONS, Transactions
from tests.faults.processes.scene import PARTITIONS, TOPIC, Outcome, told
from tests.support.gateway_cluster import PARTITIONS as PARTITIONS_OF_TRANSACTIONS
from tests.support.gateway_cluster import create_everywhere
from tests.support.gateway_process import REPOSITORY
from tests.support.read_back import read_back
from tests.support.seeds import fresh_seed

PARTITIONS_OF: Final = {TOPIC: PARTITIONS, TRANSACTIONS: PARTITIONS_OF_TRANSACTIONS}
RATE: Final = 100
"""The records per second of each producer: enough that every fault meets some, and few enough for two cores.
"""
ANSWER_MS: Final = 15_000
"""After this time a producer sends a request again, on another connection."""
COPY_WITHIN_S: Final = 300.0

CopiedRow = tuple[str, int, int, int, int]
"""A partition of Spark's copy: topic, partition, rows, different offsets, sum of the CRC-32s of the values.
"""


class Copied(TypedDict):
    """The last line that the Spark job prints."""

    rows: list[CopiedRow]
    restarts: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.every_client", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long gateways suffer (60)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds from one fault to the next (20)")
    parser.add_argument("--seed", type=int, default=fresh_seed(), help="what the faults are drawn from")
    given = parser.parse_args()
    print(f"--seed {given.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="every-client-", ignore_cleanup_errors=True) as folder:
        outcome = run(Path(folder), given.seed, given.seconds, given.every)
    counts = dict(sorted(outcome.counts.items()))
    print(json.dumps({"part": "every client", "counts": counts, "breaches": outcome.breaches}))
    return 1 if outcome.breaches else 0


def run(directory: Path, seed: int, seconds: float, every_s: float) -> Outcome:
    """Let gateways suffer for so long; return what happened, and the breaches."""
    outcome = Outcome()
    with SufferingGateways(directory, seed) as gateways:
        bootstrap = gateways.bootstrap
        for topic, partitions in PARTITIONS_OF.items():
            create_everywhere(gateways.gateways, topic, partitions)
        with ExitStack() as stack:
            spark = stack.enter_context(_SparkCopy(bootstrap, directory))
            streams = stack.enter_context(StreamsLoad(bootstrap, directory))
            transactions = Transactions(bootstrap)
            transactions.start()
            with Producers(
                bootstrap, TOPIC, PARTITIONS, directory, request_timeout_ms=ANSWER_MS, rate=RATE
            ) as producers:

                def tell(what: str) -> None:
                    told = ", ".join(f"{each.ledger.producer} {each.acknowledged}" for each in producers.all)
                    print(
                        f"{what}: {told}, transactions {len(transactions.committed)}, words "
                        f"{streams.written}",
                        file=sys.stderr,
                        flush=True,
                    )

                producers.await_further(1)
                gateways.suffer(every_s, seconds, tell)
                producers.finish()
            transactions.stop()
            outcome.breaches += streams.finish()
            copied = spark.finish()
        outcome.counts += gateways.counts + streams.counts
        outcome.counts["Spark queries started again"] = copied["restarts"]
        _judge_records(bootstrap, producers, copied["rows"], outcome)
        _judge_transactions(bootstrap, transactions, copied["rows"], outcome)
    return outcome


def _judge_records(
    bootstrap: str, producers: Producers, copied: Sequence[CopiedRow], outcome: Outcome
) -> None:
    rows = read_back(bootstrap, TOPIC, PARTITIONS)
    outcome.breaches += told(check(producers.ledgers, rows))
    outcome.breaches += _copy_breaches(TOPIC, rows, copied)
    for producer in producers.all:
        name = producer.ledger.producer
        outcome.counts[f"records of {name} acknowledged"] = producer.acknowledged
        outcome.counts[f"records of {name} given up"] = len(producer.ledger.failed)


def _judge_transactions(
    bootstrap: str, transactions: Transactions, copied: Sequence[CopiedRow], outcome: Outcome
) -> None:
    outcome.counts["transactions committed"] = len(transactions.committed)
    outcome.counts["transactions aborted"] = transactions.aborted
    try:
        transactions.check(bootstrap)
    except AssertionError as error:
        outcome.breaches.append(str(error).splitlines()[0])
    rows = read_back(bootstrap, TRANSACTIONS, PARTITIONS_OF[TRANSACTIONS])
    outcome.breaches += _copy_breaches(TRANSACTIONS, rows, copied)


def _copy_breaches(
    topic: str, rows_of: Mapping[int, Sequence[tuple[int, bytes]]], copied: Sequence[CopiedRow]
) -> list[str]:
    """Return where Spark's copy is not what the log has."""
    found = {partition: tuple(numbers) for at, partition, *numbers in copied if at == topic}
    breaches = []
    for partition, rows in rows_of.items():
        expected = len(rows), len(rows), sum(zlib.crc32(value) for _, value in rows)
        has = found.get(partition, (0, 0, 0))
        if has != expected:
            breaches.append(
                f"{topic}-{partition}: Spark has rows, offsets and checksum {has}, the log {expected}"
            )
    return breaches


class _SparkCopy:
    """The job in a process of its own."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._directory = directory / "spark"
        self._directory.mkdir()
        self._errors = directory / "spark.stderr"
        self._command = [sys.executable, "-m", "tests.faults.every_client.spark_copy"]
        self._command += [bootstrap, ",".join(PARTITIONS_OF), str(self._directory)]
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def finish(self) -> Copied:
        """Let it copy up to the end; return what it has printed."""
        (self._directory / "stop").touch()
        out, _ = self._process.communicate(timeout=COPY_WITHIN_S)
        lines = out.splitlines()
        assert lines, self._errors.read_text()[-4000:]
        answer: Copied = json.loads(lines[-1])
        return answer


if __name__ == "__main__":
    sys.exit(main())
