from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.spark_kafka_compat import SparkCompatError
from seqgate.spark_kafka_compat.session import connector_coordinates, java_requirement, scala_binary_version

ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10"


@pytest.mark.parametrize(
    ("version", "coordinates"),
    [
        ("4.0.0", f"{ARTIFACT}_2.13:4.0.0"),
        ("4.1.2", f"{ARTIFACT}_2.13:4.1.2"),
        ("3.5.4", f"{ARTIFACT}_2.12:3.5.4"),
        ("3.3.0+vendor7", f"{ARTIFACT}_2.12:3.3.0"),
    ],
)
def test_coordinates_fit_the_version_of_spark(version: str, coordinates: str) -> None:
    assert connector_coordinates(version) == coordinates


def test_the_scala_version_can_be_given() -> None:
    assert connector_coordinates("3.5.4", "2.13") == f"{ARTIFACT}_2.13:3.5.4"


@pytest.mark.parametrize("version", ["2.4.8", "main"])
def test_versions_without_a_connector_are_refused(version: str) -> None:
    with pytest.raises(SparkCompatError, match=version):
        connector_coordinates(version)


def test_scala_is_read_from_the_jars(tmp_path: Path) -> None:
    (tmp_path / "scala-library-2.13.8.jar").touch()
    assert scala_binary_version("3.5.0", tmp_path) == "2.13"
    assert scala_binary_version("3.5.0", tmp_path / "none") == "2.12"


def test_the_oldest_java_of_each_spark() -> None:
    assert (java_requirement("4.0.0"), java_requirement("3.5.1")) == (17, 8)
