"""Errors of a session that can't start. Creating a session imports pyspark first."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.spark_kafka_compat import SparkCompatError, session
from seqgate.spark_kafka_compat.session import JARS_VARIABLE


@pytest.fixture
def java_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the script `java`, the only program on PATH. The test writes the script."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "java"


def test_a_missing_java_is_reported(java_says: Path) -> None:
    with pytest.raises(SparkCompatError, match="needs Java 17 or newer and no java is on the PATH"):
        session()


def test_a_wrong_java_home_is_reported(
    java_says: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SparkCompatError, match="there is no bin/java in it"):
        session()


def test_an_old_java_is_reported(java_says: Path) -> None:
    java_says.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java_says.chmod(0o755)
    with pytest.raises(SparkCompatError, match="is Java 11"):
        session()


def test_a_missing_connector_jar_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    with pytest.raises(SparkCompatError, match="no spark-sql-kafka-0-10 jar"):
        session(master="local[1]")
