"""Lands Kafka topics as partitioned Parquet, exactly once. A later run resumes from the checkpoint.

Exit status: 0 when the query is done or was stopped, 1 when the query failed, 2 when the query could not
begin, or when one of its topics was recreated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from seqgate.spark_kafka_compat.landing import PARTITION_COLUMNS, checkpoint_topics, land
from seqgate.spark_kafka_compat.pipelines.streaming import (
    DONE,
    NOT_BEGUN,
    add_run,
    await_end,
    begin,
    program,
    source_options,
)
from seqgate.spark_kafka_compat.session import SparkCompatError


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
    try:
        spark = begin("land", chosen.bootstrap, chosen.master)
        options = source_options(chosen.option)
        kept = checkpoint_topics(
            spark, chosen.bootstrap, chosen.path, checkpoint=chosen.checkpoint, options=options
        )
        query = land(
            spark,
            chosen.bootstrap,
            chosen.topics or None,
            chosen.path,
            checkpoint=chosen.checkpoint,
            partition_by=[column for column in chosen.partition_by.split(",") if column],
            every=chosen.every,
            text=not chosen.binary,
            schema=chosen.schema,
            options=options,
            kept=kept,
        )
    except SparkCompatError as error:
        print(f"land: {error}", file=sys.stderr)
        return NOT_BEGUN
    status = await_end(query, "land", kept.check, verbose=chosen.verbose)
    if status == DONE:
        landed = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        print(f"landed {landed:,} records")
    return status


if __name__ == "__main__":
    sys.exit(main())
