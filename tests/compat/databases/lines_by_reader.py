"""A process that reads a topic into the table `lines` with a plain consumer, and kills itself with SIGKILL at
a given moment.

python -m tests.compat.databases.lines_by_reader BOOTSTRAP TOPIC URL AT_ONCE [KIND NUMBER]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from seqgate.spark_kafka_compat.database_reader import DatabaseReader
from seqgate.spark_kafka_compat.databases import Transaction
from tests.support.dying_database import DyingDatabase, Moments

CREATE_LINES = "CREATE TABLE lines (line INTEGER)"


def write(transaction: Transaction, records: Sequence[Any]) -> None:
    transaction.insert("lines", ("line",), [(int(record.value),) for record in records])


def main(bootstrap: str, topic: str, url: str, at_once: str, *death: str) -> None:
    database = DyingDatabase(url, Moments((death[0], int(death[1])) if death else None))
    options = {"max_poll_records": int(at_once)}
    with DatabaseReader(bootstrap, topic, database, pipeline="lines", write=write, options=options) as reader:
        reader.read_to_end()


if __name__ == "__main__":
    main(*sys.argv[1:])
