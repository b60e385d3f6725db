"""Lands Kafka topics as partitioned Parquet, exactly once. A later run resumes from the checkpoint.

Exit status: 0 when the query is done or was stopped, 1 when the query failed, 2 when the query could not
begin, or when one of its topics was recreated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from seqgate.spark_kafka_compat.endpoints import source_settings
from seqgate.spark_kafka_compat.landing import (
    PARTITION_COLUMNS,
    check_partition_columns,
    checkpoint_topics,
    land,
)
from seqgate.spark_kafka_compat.pipelines.streaming import (
    DONE,
    NOT_BEGUN,
    add_run,
    await_end,
    begin,
    check_endpoint,
    program,
    refusal,
    shown_topics,
    source_options,
)


def parser() -> argparse.ArgumentParser:
    described = program("land", __doc__, "--path s3a://bucket/landed TOPIC")
    add = described.add_argument
    add("topics", nargs="*", metavar="TOPIC", help="topics to land (or --option subscribePattern=REGEX)")
    add("--path", required=True, help="the directory of the Parquet files; any path that Spark can write to")
    add("--checkpoint", help="the directory of the checkpoint (default: PATH/_checkpoint)")
    add(
        "--partition-by",
        default="topic,date",
        help=f"columns of the folders, from {', '.join(PARTITION_COLUMNS)} (default: %(default)s)",
    )
    add(
        "--schema",
        metavar="DDL",
        help='parse values as JSON of this schema, such as "carrier string, distance int"',
    )
    add("--binary", action="store_true", help="keep keys and values as bytes")
    add_run(described)
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Land topics until the query is done or stopped; return the exit status."""
    chosen = parser().parse_args(arguments)
    columns = [column for name in chosen.partition_by.split(",") if (column := name.strip())]
    landed: dict[int, int] = {}

    def count(reports: Sequence[Any]) -> None:
        landed.update({report["batchId"]: int(report["numInputRows"]) for report in reports})

    try:
        options = source_options(chosen.option)
        settings = source_settings(chosen.topics or None, stream=True, options=options)
        check_partition_columns(columns)
        check_endpoint("land", chosen.bootstrap, settings)
        spark = begin("land", "land", chosen.master)
        kept = checkpoint_topics(
            spark, chosen.bootstrap, chosen.path, checkpoint=chosen.checkpoint, options=options
        )
        query = land(
            spark,
            chosen.bootstrap,
            chosen.topics or None,
            chosen.path,
            checkpoint=chosen.checkpoint,
            partition_by=columns,
            every=chosen.every,
            text=not chosen.binary,
            schema=chosen.schema,
            options=options,
            kept=kept,
        )
    except Exception as error:  # noqa: BLE001 - `refusal` raises those that it does not know
        print(f"land: {refusal(error)}", file=sys.stderr)
        return NOT_BEGUN
    status = await_end(query, "land", kept.check, verbose=chosen.verbose, progress=count)
    if status == DONE:
        print(f"landed {sum(landed.values()):,} records of {shown_topics(settings)} in {chosen.path}")
    return status


if __name__ == "__main__":
    sys.exit(main())
