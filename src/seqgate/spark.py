"""Spark sessions, sources, sinks and pipelines over Kafka; the names that Spark programs import.

from seqgate.spark import session, source

spark = session("first look") source(spark, "127.0.0.1:9092", "flights").groupBy("partition").count().show()
"""

from seqgate.spark_kafka_compat import (
    OPTIONS,
    ConnectorMissingError,
    Option,
    SparkCompatError,
    UnknownOptionError,
    Use,
    checked_options,
    session,
    sink,
    source,
)
from seqgate.spark_kafka_compat.database_reader import DatabaseReader
from seqgate.spark_kafka_compat.databases import Database, Transaction
from seqgate.spark_kafka_compat.endpoints import named_by_source
from seqgate.spark_kafka_compat.into_database import into_database, into_table
from seqgate.spark_kafka_compat.landing import land

__all__ = [
    "OPTIONS",
    "ConnectorMissingError",
    "Database",
    "DatabaseReader",
    "Option",
    "SparkCompatError",
    "Transaction",
    "UnknownOptionError",
    "Use",
    "checked_options",
    "into_database",
    "into_table",
    "land",
    "named_by_source",
    "session",
    "sink",
    "source",
]
