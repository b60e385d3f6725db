"""The SparkSession with the Kafka connector `org.apache.spark:spark-sql-kafka-0-10_SCALA:SPARK`. The
connector must match Spark's version and Scala's binary version exactly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JARS_VARIABLE = "SEQGATE_SPARK_JARS"
_END_OF_START = b"\0end of start\0"
_PIPE_BYTES = 65_536
QUIET_LOGGING = Path(__file__).parent / "log4j2-quiet.properties"
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_BROUGHT_BY_PYSPARK = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.lz4:lz4-java",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)
"""The dependencies of the connector that pyspark's own jars contain: most of the connector's 60 MB."""


def session(
    app_name: str = "seqgate",
    *,
    master: str | None = None,
    jars_dir: str | Path | None = None,
    packages: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkSession:
    """Return a SparkSession with the Kafka connector that fits the installed pyspark.

    Without `master` Spark runs on the cores of this machine (`local[*]`), with 8 shuffle partitions, without
    the web UI, and with times in UTC. The connector comes from the jars in `jars_dir`, or in the folder of
    the environment variable SEQGATE_SPARK_JARS, or else through Maven (`spark.jars.packages`). `packages`
    adds Maven coordinates, `conf` overrides any setting, and with `quiet` Spark logs errors only, without
    their stacks, and a start that succeeds prints nothing. Inside `spark-submit` the class path and the
    master are those of spark-submit: pass `--packages` there.

    Raises `SparkCompatError` when pyspark or a suitable Java is missing.
    """
    version = installed_pyspark_version()
    from pyspark.sql import SparkSession

    settings = {"spark.sql.session.timeZone": "UTC"}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not inside spark-submit
        _require_java(java_requirement(version))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= _standalone_settings(master, jars_dir, packages)
        if quiet:
            settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={QUIET_LOGGING.as_uri()}"
    elif master is not None:
        settings["spark.master"] = master
    settings |= dict(conf or {})
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _silent_start() if quiet else nullcontext():
        return builder.getOrCreate()


@contextmanager
def _silent_start() -> Iterator[None]:
    """Drop what is written to stderr while Spark starts, or print it if the start fails. Ivy, which resolves
    the connector, writes some forty lines there, past every setting of logging.

    The JVM keeps its stderr for its life: a pipe, which a thread copies to the stderr of this process. A mark
    in the pipe parts the start from what follows.
    """
    own = os.dup(2)
    read_end, write_end = os.pipe()
    os.dup2(write_end, 2)
    os.close(write_end)
    has_started = False
    is_told = threading.Event()

    def copy() -> None:
        try:
            held = b""
            while _END_OF_START not in held:
                held += os.read(read_end, _PIPE_BYTES)
            start, _, rest = held.partition(_END_OF_START)
            os.write(own, rest if has_started else start + rest)
        finally:
            is_told.set()
        while written := os.read(read_end, _PIPE_BYTES):
            os.write(own, written)
        os.close(read_end)
        os.close(own)

    threading.Thread(target=copy, name="stderr of Spark", daemon=True).start()
    try:
        yield
        has_started = True
    finally:
        os.write(2, _END_OF_START)
        os.dup2(own, 2)
        is_told.wait()


def _standalone_settings(
    master: str | None, jars_dir: str | Path | None, packages: Sequence[str]
) -> dict[str, str]:
    chosen_master = master or os.environ.get("MASTER") or "local[*]"
    settings = {"spark.master": chosen_master}
    if chosen_master.startswith("local"):
        settings |= _LOCAL_DEFAULTS
    directory = jars_dir or os.environ.get(JARS_VARIABLE)
    coordinates = list(packages)
    if directory:
        settings["spark.jars"] = ",".join(_jars_in(Path(directory)))
    else:
        coordinates.insert(0, connector_coordinates())
    if coordinates:
        settings["spark.jars.packages"] = ",".join(coordinates)
        settings["spark.jars.excludes"] = ",".join(_BROUGHT_BY_PYSPARK)
    return settings


def _jars_in(directory: Path) -> list[str]:
    jars = sorted(str(jar) for jar in directory.glob("*.jar"))
    if not any("spark-sql-kafka-0-10_" in jar for jar in jars):
        raise SparkCompatError(
            f"There is no spark-sql-kafka-0-10 jar in {directory}; put the connector and its dependencies "
            f"there, or leave {JARS_VARIABLE} unset to resolve {connector_coordinates()} through Maven."
        )
    return jars


def _require_java(oldest: int) -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, but there is no bin/java in it" if home else "no java is on the PATH"
        raise SparkCompatError(
            f"Spark needs Java {oldest} or newer and {where}; install a JDK or set JAVA_HOME."
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = java_major_version(answer.stderr + answer.stdout)
    if found is not None and found < oldest:
        raise SparkCompatError(
            f"Spark needs Java {oldest} or newer, but {java} is Java {found}; install a newer JDK or set "
            "JAVA_HOME."
        )


def java_major_version(version_text: str) -> int | None:
    """Return Java's major version from the output of `java -version`: 8 for "1.8.0_392", 17 for "17.0.15"."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', version_text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)(\.?(?:dev|rc|preview)\w*)?")


def installed_pyspark_version() -> str:
    """Return the version of the installed pyspark. Raises `SparkCompatError` without one."""
    for distribution in ("pyspark", "pyspark-client"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    raise SparkCompatError('PySpark is not installed; install it with: pip install "seqgate[spark]"')


def scala_binary_version(pyspark_version: str, jars: Path | None = None) -> str:
    """Return the Scala version, such as 2.13: of pyspark's `jars`, else that Spark line's default."""
    if jars is not None:
        for jar in sorted(jars.glob("scala-library-*.jar")):
            major, minor = jar.stem.removeprefix("scala-library-").split(".")[:2]
            return f"{major}.{minor}"
    major_version, _ = _release(pyspark_version)
    return "2.13" if major_version >= 4 else "2.12"


def connector_coordinates(pyspark_version: str | None = None, scala_version: str | None = None) -> str:
    """Return the Maven coordinates of the connector, for `spark.jars.packages`.

    Without arguments the coordinates fit the installed pyspark. Raises `SparkCompatError` for versions older
    than 3.0 (whose Kafka 2.4 clients do not work with a current broker), and for strings that are not a Spark
    version.
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
    """Return the folder of jars in the installed pyspark; None when it comes without its own Spark."""
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


# The errors of this package. Every message is a sentence for the user that says what to do.


class SparkCompatError(Exception):
    """The setup is wrong: a program is missing, an endpoint is unreachable, or an option is invalid."""


class ConnectorMissingError(SparkCompatError):
    """Spark runs without its Kafka connector on the class path."""


class UnknownOptionError(SparkCompatError):
    """The Kafka connector does not know an option, or does not know it for this use."""


class EndpointError(SparkCompatError):
    """The endpoint is unreachable, or answered with an error. `retriable`: a retry may succeed."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class MissingTopicError(EndpointError):
    """The Kafka endpoint has no topic of this name."""


class FencedError(SparkCompatError):
    """Another copy of the same pipeline has started since, so this copy must end."""


class PositionError(SparkCompatError):
    """The next records do not continue the database: deleted, or a checkpoint is ahead of it."""


class RecreatedTopicError(PositionError):
    """A topic was recreated, so the stored offsets belong to another topic of the same name."""
