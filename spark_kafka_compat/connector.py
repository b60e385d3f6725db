"""The artifact of Spark's Kafka connector that fits a pyspark.

The connector is published as `org.apache.spark:spark-sql-kafka-0-10_SCALA:SPARK`. It must match Spark's version and
Scala's binary version exactly.
"""

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path

from spark_kafka_compat.errors import SparkCompatError

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)(\.?(?:dev|rc|preview)\w*)?")


def installed_pyspark_version() -> str:
    """Return the version of the installed pyspark. Raises `SparkCompatError` when pyspark is not installed."""
    for distribution in ("pyspark", "pyspark-client"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    raise SparkCompatError('PySpark is not installed; install it with: pip install "seqgate[spark]"')


def scala_binary_version(pyspark_version: str, jars: Path | None = None) -> str:
    """Return the Scala binary version, such as "2.13": of the `jars` of pyspark, otherwise the default of that Spark line."""
    if jars is not None:
        for jar in sorted(jars.glob("scala-library-*.jar")):
            major, minor = jar.stem.removeprefix("scala-library-").split(".")[:2]
            return f"{major}.{minor}"
    major_version, _ = _release(pyspark_version)
    return "2.13" if major_version >= 4 else "2.12"


def connector_coordinates(pyspark_version: str | None = None, scala_version: str | None = None) -> str:
    """Return the Maven coordinates of the connector, for `spark.jars.packages`.

    Without arguments the coordinates fit the installed pyspark. Raises `SparkCompatError` for versions older than 3.0 (whose
    Kafka 2.4 clients do not work with a current broker), and for strings that are not a Spark version.
    """
    if pyspark_version is None:
        pyspark_version = installed_pyspark_version()
        scala_version = scala_version or scala_binary_version(pyspark_version, pyspark_jars())
    major, release = _release(pyspark_version)
    if major < 3:
        raise SparkCompatError(
            f"Spark {pyspark_version} is too old: its Kafka clients do not work with current brokers. "
            "Install Spark 3.0 or newer."
        )
    scala = scala_version or scala_binary_version(pyspark_version)
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{release}"


def shown_coordinates() -> str:
    """Return the coordinates of the connector for a help text, which is printed without PySpark as well."""
    try:
        return connector_coordinates()
    except SparkCompatError:
        return "org.apache.spark:spark-sql-kafka-0-10_SCALA:SPARK"


def java_requirement(pyspark_version: str) -> int:
    """Return the oldest Java version that this Spark runs on."""
    major, _ = _release(pyspark_version)
    return 17 if major >= 4 else 8


def pyspark_jars() -> Path | None:
    """Return the folder of jars inside the installed pyspark; None when pyspark comes without its own Spark."""
    spec = util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    return jars if jars.is_dir() else None


def _release(pyspark_version: str) -> tuple[int, str]:
    match = _RELEASE.match(pyspark_version)
    if match is None:
        raise SparkCompatError(f"{pyspark_version!r} is not a Spark version such as 4.0.0.")
    major, minor, patch, _ = match.groups()
    return int(major), f"{major}.{minor}.{patch}"
