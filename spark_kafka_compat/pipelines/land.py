"""Lands Kafka topics as partitioned Parquet, exactly once, resumable from its checkpoint.

Exit status: 0 when it is done or was told to stop, 1 when the query failed, 2 when it could not begin.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_kafka_compat import session
from spark_kafka_compat.connector import connector_coordinates
from spark_kafka_compat.errors import SparkCompatError
from spark_kafka_compat.landing import PARTITION_COLUMNS, land
from spark_kafka_compat.options import OptionValue

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DONE, QUERY_FAILED, NOT_BEGUN = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    described = argparse.ArgumentParser(
        prog="python -m spark_kafka_compat.pipelines.land",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"On a cluster: spark-submit --packages {connector_coordinates()} land.py --bootstrap HOST:PORT "
        "--path s3a://bucket/landed TOPIC",
    )
    add = described.add_argument
    add("topics", nargs="*", metavar="TOPIC", help="topics to land (or --option subscribePattern=REGEX)")
    add(
        "--bootstrap",
        required=True,
        metavar="HOST:PORT",
        help="the Kafka endpoint, one address or several with commas",
    )
    add("--path", required=True, help="where the Parquet files go; any path Spark can write to")
    add("--checkpoint", help="where progress is kept (default: PATH/_checkpoint)")
    add(
        "--partition-by",
        default="topic,date",
        help=f"columns of the folders, from {', '.join(PARTITION_COLUMNS)} (default: %(default)s)",
    )
    add(
        "--every",
        metavar="INTERVAL",
        help='go on for ever, a micro batch every "10 seconds" (default: what is there now)',
    )
    add("--schema", metavar="DDL", help='parse values as JSON, such as "carrier string, distance int"')
    add("--binary", action="store_true", help="leave keys and values as bytes")
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of Spark's Kafka source, such as maxOffsetsPerTrigger=100000; repeatable",
    )
    add("--master", help="Spark master (default: this machine, or what spark-submit says)")
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Land until done or stopped; returns the exit status."""
    chosen = parser().parse_args(arguments)
    try:
        query = land(
            session("land", master=chosen.master, quiet=True),
            chosen.bootstrap,
            chosen.topics or None,
            chosen.path,
            checkpoint=chosen.checkpoint,
            partition_by=[column for column in chosen.partition_by.split(",") if column],
            every=chosen.every,
            text=not chosen.binary,
            schema=chosen.schema,
            options=_options(chosen.option),
        )
    except SparkCompatError as error:
        print(f"land: {error}", file=sys.stderr)
        return NOT_BEGUN
    return _await_end(query)


def _options(assignments: Sequence[str]) -> dict[str, OptionValue]:
    options: dict[str, OptionValue] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise SparkCompatError(f"--option wants NAME=VALUE, not {assignment!r}.")
        options[name] = value
    return options


def _await_end(query: StreamingQuery) -> int:
    from pyspark.errors import StreamingQueryException

    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    try:
        while not stopping.is_set() and not query.awaitTermination(1):
            pass
    except StreamingQueryException as error:
        print(f"land: the query failed: {error}", file=sys.stderr)
        return QUERY_FAILED
    if query.isActive:
        query.stop()
    landed = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
    print(f"landed {landed:,} records")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
