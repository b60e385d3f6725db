"""The PySpark side of Seqgate: a session with the right connector, sources and sinks, pipelines.

The package speaks to a Kafka endpoint over the wire, as any client does, so it works with Apache Kafka too.

    from seqgate.spark_kafka_compat import session, sink, source

    spark = session("first look")
    source(spark, "127.0.0.1:9092", "flights").groupBy("partition").count().show()
"""

from __future__ import annotations

from seqgate.spark_kafka_compat.endpoints import sink, source
from seqgate.spark_kafka_compat.options import OPTIONS, Option, Use, checked_options
from seqgate.spark_kafka_compat.session import (
    ConnectorMissingError,
    SparkCompatError,
    UnknownOptionError,
    session,
)

__all__ = [
    "OPTIONS",
    "ConnectorMissingError",
    "Option",
    "SparkCompatError",
    "UnknownOptionError",
    "Use",
    "checked_options",
    "session",
    "sink",
    "source",
]
