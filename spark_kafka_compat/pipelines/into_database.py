"""Writes Kafka topics into a table of SQLite or PostgreSQL, effectively once: rows and positions in one
transaction.

Exit status: 0 when the query is done or was stopped, 1 when the query failed, 2 when the query could not
begin, or when one of its topics was recreated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqgate.spark_kafka_compat.databases import Database, is_database_error
from seqgate.spark_kafka_compat.into_database import into_database, into_table, read_topics
from seqgate.spark_kafka_compat.pipelines.streaming import (
    DONE,
    NOT_BEGUN,
    QUERY_FAILED,
    add_run,
    await_end,
    begin,
    program,
    source_options,
)
from seqgate.spark_kafka_compat.session import SparkCompatError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DONE", "NOT_BEGUN", "QUERY_FAILED", "main", "parser"]

RECORD = ("topic", "partition", "offset", "timestamp", "CAST(value AS STRING) AS value")


def parser() -> argparse.ArgumentParser:
    described = program(
        "into_database", __doc__, "--database postgresql://HOST/NAME --table TABLE --pipeline NAME TOPIC"
    )
    add = described.add_argument
    add("topics", nargs="+", metavar="TOPIC", help="topics to read")
    add(
        "--database",
        required=True,
        metavar="URL",
        help="sqlite:///path/to/file.db or postgresql://user@host/name",
    )
    add("--table", required=True, help="an existing table, with columns of the same names as the rows")
    add(
        "--pipeline",
        required=True,
        metavar="NAME",
        help="the key of the positions in the database; never change it",
    )
    add(
        "--select",
        action="append",
        metavar="EXPR",
        help='a column of the rows in SQL, such as "CAST(value AS STRING) AS line"; can be given several '
        "times "
        f"(default: {', '.join(RECORD)})",
    )
    add(
        "--key",
        metavar="COLUMNS",
        help="columns of a unique key, separated by commas: a row replaces the row with the same key",
    )
    add(
        "--starting",
        choices=("earliest", "latest"),
        default="earliest",
        help="where to begin with topics that have no position in the database (default: %(default)s)",
    )
    add(
        "--checkpoint",
        help="the directory of Spark's own checkpoint (default: a temporary directory; the database decides)",
    )
    add_run(described)
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Write topics until the query is done or stopped; return the exit status."""
    chosen = parser().parse_args(arguments)
    columns = chosen.select or RECORD

    def rows(records: DataFrame) -> DataFrame:
        return records.selectExpr(*columns)

    try:
        spark = begin("into database", chosen.bootstrap, chosen.master)
        options = source_options(chosen.option)
        kept = read_topics(spark, chosen.bootstrap, chosen.topics, options=options)
        query = into_database(
            spark,
            chosen.bootstrap,
            chosen.topics,
            Database(chosen.database),
            pipeline=chosen.pipeline,
            write=into_table(chosen.table, key=chosen.key.split(",") if chosen.key else ()),
            rows=rows,
            starting=chosen.starting,
            checkpoint=chosen.checkpoint,
            every=chosen.every,
            options=options,
            kept=kept,
        )
    except Exception as error:
        if not isinstance(error, SparkCompatError) and not is_database_error(error):
            raise
        print(f"into_database: {error}", file=sys.stderr)
        return NOT_BEGUN
    return await_end(query, "into_database", lambda _topics: kept.check(), verbose=chosen.verbose)


if __name__ == "__main__":
    sys.exit(main())
