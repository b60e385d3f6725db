from __future__ import annotations

import pyspark

from seqgate.spark_kafka_compat.session import connector_coordinates


def test_the_installed_pyspark_is_the_default() -> None:
    assert connector_coordinates().endswith(f":{pyspark.__version__}")
