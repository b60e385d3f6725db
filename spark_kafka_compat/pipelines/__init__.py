"""The pipelines as programs: `python -m seqgate.spark_kafka_compat.pipelines.NAME`, or spark-submit."""

from typing import Final

PROGRAMS: Final = """\
Run one of the pipelines, with --help for its options:

  python -m seqgate.spark_kafka_compat.pipelines.audit           find gaps, duplicates \
and reorderings per producer
  python -m seqgate.spark_kafka_compat.pipelines.land            land topics as Parquet files
  python -m seqgate.spark_kafka_compat.pipelines.into_database   write topics into SQLite or PostgreSQL
"""
