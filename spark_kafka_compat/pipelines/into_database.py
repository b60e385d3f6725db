"""Writes Kafka topics into a table of SQLite or PostgreSQL, effectively once: rows and positions in one
transaction.

Exit status: 0 when the query is done or was stopped, 1 when the query failed, 2 when the query could not
begin, or when one of its topics was recreated.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from seqgate.spark_kafka_compat import into_database as pipeline
from seqgate.spark_kafka_compat.databases import Database, check_table, is_database_error
from seqgate.spark_kafka_compat.endpoints import source_settings
from seqgate.spark_kafka_compat.into_database import into_database, into_table, read_topics
from seqgate.spark_kafka_compat.pipelines.streaming import (
    DONE,
    NOT_BEGUN,
    QUERY_FAILED,
    add_run,
    await_end,
    begin,
    check_endpoint,
    program,
    refusal,
    shown_topics,
    source_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DONE", "NOT_BEGUN", "QUERY_FAILED", "main", "parser"]

RECORD = ("topic", "partition", "offset", "timestamp", "CAST(value AS STRING) AS value")
_KAFKA_COLUMNS: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestamptype": "INT",
}
_NAMED = re.compile(r"(?P<expression>.+?)\s+AS\s+`?(?P<name>\w+)`?\s*", re.IGNORECASE | re.DOTALL)
_CAST = re.compile(r"CAST\s*\(.+\sAS\s+(?P<kind>\w+(?:\s*\([\d\s,]+\))?)\s*\)", re.IGNORECASE | re.DOTALL)


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
    add(
        "--table",
        required=True,
        help="an existing table, with columns of the same names as the rows; where there is none, its "
        "CREATE TABLE is printed",
    )
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
        f"times (default: {', '.join(RECORD)})",
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


def column_types(expressions: Sequence[str]) -> dict[str, str] | None:
    """Return the names and Spark's types of selected columns; None when only Spark knows their names. An
    expression whose type only Spark knows counts as a STRING.
    """
    columns: dict[str, str] = {}
    for expression in expressions:
        named = _NAMED.fullmatch(expression.strip())
        computed, name = (named["expression"], named["name"]) if named else (expression.strip(),) * 2
        if not re.fullmatch(r"\w+", name):
            return None
        cast = _CAST.fullmatch(computed)
        columns[name] = cast["kind"] if cast else _KAFKA_COLUMNS.get(computed.lower(), "STRING")
    return columns


def main(arguments: Sequence[str] | None = None) -> int:
    """Write topics until the query is done or stopped; return the exit status."""
    chosen = parser().parse_args(arguments)
    columns = chosen.select or RECORD
    key = chosen.key.split(",") if chosen.key else ()
    written = 0

    def rows(records: DataFrame) -> DataFrame:
        return records.selectExpr(*columns)

    def wrote(count: int) -> None:
        nonlocal written
        written += count

    try:
        options = source_options(chosen.option)
        settings = source_settings(chosen.topics, stream=True, options=pipeline.source_options(options))
        database = Database(chosen.database)
        check_endpoint("into_database", chosen.bootstrap, settings)
        types = column_types(columns)
        if types is not None:
            check_table(database, chosen.table, types, key)
        spark = begin("into_database", "into database", chosen.master)
        kept = read_topics(spark, chosen.bootstrap, chosen.topics, options=options)
        query = into_database(
            spark,
            chosen.bootstrap,
            chosen.topics,
            database,
            pipeline=chosen.pipeline,
            write=into_table(chosen.table, key=key),
            rows=rows,
            starting=chosen.starting,
            checkpoint=chosen.checkpoint,
            every=chosen.every,
            options=options,
            kept=kept,
            wrote=wrote,
        )
    except Exception as error:  # noqa: BLE001 - `refusal` raises those that it does not know
        told = str(error) if is_database_error(error) else refusal(error)
        print(f"into_database: {told}", file=sys.stderr)
        return NOT_BEGUN
    status = await_end(query, "into_database", lambda _topics: kept.check(), verbose=chosen.verbose)
    if status == DONE:
        print(f"wrote {written:,} rows of {shown_topics(settings)} into the table {chosen.table}")
    return status


if __name__ == "__main__":
    sys.exit(main())
