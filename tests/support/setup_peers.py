"""Prepares the programs that the tests of a tier run beside the gateway: `python -m tests.support.setup_peers
TIER`.

`make test` needs Java and jars that Maven fetches: Apache Kafka, its Streams and Spark's connector. `make
test-all` needs Redis, PostgreSQL, kcat, Chromium and axe-core, too. `make test-nightly` needs the S3 store
versitygw, Prometheus, what runs and checks the files for deployment, and the packages of the examples in
Java, Go, Rust and Node. Each tier has the peers of those before it.

The program leaves existing peers alone, so a second run takes no time. It prints one line for each peer that
it can't prepare, with the consequence; with ``CI=true`` in the environment that is an error. Programs come
through the system's package manager, jars through Maven with the repositories it is configured for, versitygw
through Go's module proxy; Go builds it once, in five minutes. axe-core comes through npm.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tests.support.testing_examples import EXAMPLES, MORE_PLACES, PREPARE_LIMIT_S, Example

PROJECT = Path(__file__).resolve().parents[2]
POMS = Path(__file__).resolve().parent / "peer"
CACHE = PROJECT / ".cache"
KAFKA_VERSION = "4.4.0"
EARLIER_CLIENTS = ("2.8", "4.3")
"""Lines of Kafka's Java client that stay in the tests beside KAFKA_VERSION's."""
COMPOSE_GO_VERSION = "v2.16.2"
KUSTOMIZE_VERSION = "v5.6.0"
VERSITYGW_VERSION = "v1.8.0"
"""The first release of versitygw whose conditional writes have one winner among many racers (its pull request
2288).
"""
AXE_VERSION = "4.10.3"
INSTALL_TIMEOUT_S = 600
BUILD_TIMEOUT_S = 1800
NOBODY = "--bootstrap-server 127.0.0.1:1"
LOADING = (
    f"org.apache.kafka.tools.consumer.group.ConsumerGroupCommand {NOBODY} --list --timeout 300",
    f"org.apache.kafka.tools.consumer.group.ShareGroupCommand {NOBODY} --list --timeout 300",
    f"org.apache.kafka.tools.consumer.ConsoleConsumer {NOBODY} --topic t --timeout-ms 300",
    f"org.apache.kafka.tools.consumer.ConsoleShareConsumer {NOBODY} --topic t --timeout-ms 300",
    f"org.apache.kafka.tools.ConsoleProducer {NOBODY} --topic t",
)
"""Commands that together load most of the classes that Kafka's tools and clients need, without a broker."""


class Unavailable(Exception):
    """A peer can't be prepared; the message is a sentence for people."""


TIERS = ("test", "all", "nightly")
"""The tiers of `tests/tiers.py`, each with the peers of those before it."""


@dataclass(frozen=True)
class Peer:
    """A peer to prepare: `prepare` returns its place or raises `Unavailable`. `tier` is the first tier that
    needs it.
    """

    tier: str
    name: str
    consequence: str
    prepare: Callable[[], str]
    is_needed: bool = True


def kafka_libs() -> Path:
    """Return the directory of Apache Kafka's jars."""
    return CACHE / f"kafka-{KAFKA_VERSION}" / "libs"


def streams_libs() -> Path:
    """Return the directory of Kafka Streams' jars."""
    return CACHE / f"kafka-{KAFKA_VERSION}" / "streams"


def earlier_client_libs(version: str) -> Path:
    """Return the directory of an earlier Java client, one of EARLIER_CLIENTS, and what it needs."""
    return CACHE / f"kafka-clients-{version}"


def class_archive() -> Path:
    """Return the archive with the loaded classes of Kafka's tools, which halves a tool's start."""
    return CACHE / f"kafka-{KAFKA_VERSION}" / "tools.jsa"


def spark_connector_libs() -> Path:
    """Return the directory of the Kafka connector's jars for the installed pyspark; raise `Unavailable`
    without pyspark.
    """
    return CACHE / f"spark-{_pyspark_version()}"


def versitygw_program() -> Path | None:
    """Return the S3 store that `make peers` builds, or None when it has not."""
    return _built_program("versitygw", VERSITYGW_VERSION)


def compose_go_program() -> Path | None:
    """Return the loader of compose files that Docker's own command has, which `make peers` builds, or None
    when it has not.
    """
    return _built_program("compose-go", COMPOSE_GO_VERSION)


def kustomize_program() -> Path | None:
    """Return the program that makes manifests for Kubernetes, which `make peers` builds, or None when it has
    not.
    """
    return _built_program("kustomize", KUSTOMIZE_VERSION)


def _built_program(name: str, version: str) -> Path | None:
    program = CACHE / f"{name}-{version}" / name
    return program if program.is_file() else None


def chromium_program() -> str | None:
    """Return the path of Chromium, or None without it."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def axe_core() -> Path:
    """Return the file of axe-core, the checker of accessibility."""
    return CACHE / f"axe-core-{AXE_VERSION}" / "axe.min.js"


def _run(
    command: list[str],
    what: str,
    timeout_s: int = INSTALL_TIMEOUT_S,
    environment: dict[str, str] | None = None,
) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | (environment or {}),
        )
    except FileNotFoundError:
        raise Unavailable(f"{what}: the program {command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what}: {command[0]} took longer than {timeout_s} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise Unavailable(f"{what}: {lines[-1] if lines else f'exit status {done.returncode}'}")


def postgresql_program(program: str) -> str | None:
    """Return the path of one of PostgreSQL's programs; Debian keeps the server's programs off the PATH."""
    found = shutil.which(program)
    if found is None:
        versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=_major_version)
        found = str(versions[-1]) if versions else None
    return found


def _major_version(program: Path) -> int:
    version = program.parents[1].name
    return int(version) if version.isdigit() else 0


def _program(program: str, package: str, find: Callable[[str], str | None] = shutil.which) -> str:
    found = find(program)
    if found is not None:
        return found
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{program} is not installed, and there is no apt-get to install it with")
    if os.geteuid() == 0:
        as_root = []
    elif shutil.which("sudo") is not None:
        as_root = ["sudo", "-n"]
    else:
        raise Unavailable(f"{program} is not installed, and installing it needs root or sudo")
    install = [*as_root, "apt-get", "install", "-y", "--no-install-recommends", package]
    try:
        _run(install, f"installing {package}")
    except Unavailable:
        _run([*as_root, "apt-get", "update"], "reading the package lists")
        _run(install, f"installing {package}")
    found = find(program)
    if found is None:
        raise Unavailable(f"{package} was installed, but {program} is still missing")
    return found


@dataclass(frozen=True)
class _Jars:
    """The jars that one of the poms names. `versions` are properties of the pom."""

    pom: Path
    directory: Path
    versions: Mapping[str, str]

    @property
    def stamp(self) -> Path:
        return self.directory / ".complete"

    @property
    def wanted(self) -> str:
        return self.pom.read_text() + repr(sorted(self.versions.items()))

    @property
    def is_complete(self) -> bool:
        return self.stamp.is_file() and self.stamp.read_text() == self.wanted


def _all_jars() -> list[_Jars]:
    kafka = {"kafka.version": KAFKA_VERSION}
    found = [
        _Jars(POMS / "kafka.xml", kafka_libs(), kafka),
        _Jars(POMS / "streams.xml", streams_libs(), kafka),
        *(_Jars(POMS / f"clients-{each}.xml", earlier_client_libs(each), {}) for each in EARLIER_CLIENTS),
    ]
    with contextlib.suppress(Unavailable):
        spark = {"spark.version": _pyspark_version(), "scala.binary.version": _scala_binary_version()}
        found.append(_Jars(POMS / "spark.xml", spark_connector_libs(), spark))
    return found


def _jars(directory: Path) -> str:
    """Fetch all jars that are missing in one run of Maven, which starts slowly; return the directory."""
    jars = {each.directory: each for each in _all_jars()}
    if not jars[directory].is_complete:
        _fetch([each for each in jars.values() if not each.is_complete])
    if not jars[directory].is_complete:
        raise Unavailable(f"Maven did not fetch the jars of {jars[directory].pom.name}")
    return str(directory)


@cache
def _maven() -> str:
    found = shutil.which("mvn")
    if found is None:
        raise Unavailable("Maven (mvn) is not installed; it needs a JDK 17 too")
    return found


def _fetch(missing: Sequence[_Jars]) -> None:
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        flags = {f"-D{name}={value}" for each in missing for name, value in each.versions.items()}
        projects = ",".join(each.pom.name for each in missing)
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-Djars={place}"]
        command = [_maven(), "-B", "-q", "-T", "2", "-f", str(POMS / "jars.xml"), "-pl", projects]
        _run([*command, *goal, *sorted(flags)], f"fetching the jars of {projects}")
        for each in missing:
            shutil.rmtree(each.directory, ignore_errors=True)
            each.directory.parent.mkdir(parents=True, exist_ok=True)
            (Path(place) / each.pom.stem).rename(each.directory)
            each.stamp.write_text(each.wanted)


def _pyspark_version() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise Unavailable("pyspark is not installed") from None


def _scala_binary_version() -> str:
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for jar in (Path(spec.origin).parent / "jars").glob("scala-library-*.jar"):
            return ".".join(jar.stem.removeprefix("scala-library-").split(".")[:2])
    raise Unavailable("pyspark's own jars are missing, so its Scala version is unknown")


def _java() -> str:
    found = shutil.which("java")
    if found is None:
        raise Unavailable("java is not installed; Java 17 or newer is needed")
    return found


def _kafka() -> str:
    return _jars(kafka_libs())


def _kafka_class_archive() -> str:
    archive, libs = class_archive(), kafka_libs().resolve()
    stamp = archive.with_suffix(".made-of")
    complete = libs / ".complete"
    if not complete.is_file():
        raise Unavailable("Apache Kafka's jars are missing")
    version = subprocess.run([_java(), "-version"], capture_output=True, text=True, check=False).stderr
    wanted = f"{version}{libs} {complete.stat().st_mtime_ns} {LOADING}"
    if archive.is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return str(archive)
    made = archive.with_suffix(f".{os.getpid()}")
    flags = [f"-XX:ArchiveClassesAtExit={made}", "-XX:+UseSerialGC", "-Xlog:disable", "-cp", f"{libs}/*"]
    flags.append(f"-Dlog4j2.configurationFile={POMS / 'log4j2-tools.yaml'}")
    _run([_java(), *flags, str(POMS / "LoadClasses.java"), *LOADING], "loading Kafka's classes")
    if not made.is_file():
        raise Unavailable("this Java can't create class archives")
    made.replace(archive)
    stamp.write_text(wanted)
    return str(archive)


def _streams() -> str:
    return _jars(streams_libs())


def _earlier_clients() -> str:
    return ", ".join(_jars(earlier_client_libs(each)) for each in EARLIER_CLIENTS)


def _spark_connector() -> str:
    _scala_binary_version()
    return _jars(spark_connector_libs())


def go_program() -> str:
    """Return the path of Go; raise `Unavailable` without it."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise Unavailable("Go is not installed; version 1.26 or newer is needed")
    return found


def _built(name: str, version: str, package: str) -> str:
    """Build a program with Go unless that was done before, and return its path."""
    found = _built_program(name, version)
    if found is not None:
        return str(found)
    folder = CACHE / f"{name}-{version}"
    building = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        # One process at the lowest priority: the build takes minutes, and other work goes on meanwhile.
        command = ["nice", "-n", "19", go_program(), "install", "-p", "1", f"{package}@{version}"]
        environment = {"GOBIN": str(building), "GOMAXPROCS": "1"}
        _run(command, f"building {name} {version}", BUILD_TIMEOUT_S, environment)
        folder.mkdir(parents=True, exist_ok=True)
        # Go names a program for the last folder of its package.
        (made,) = building.iterdir()
        made.replace(folder / name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return str(folder / name)


def _versitygw() -> str:
    return _built("versitygw", VERSITYGW_VERSION, "github.com/versity/versitygw/cmd/versitygw")


def _compose_go() -> str:
    return _built("compose-go", COMPOSE_GO_VERSION, "github.com/compose-spec/compose-go/v2/cmd")


def _kustomize() -> str:
    return _built("kustomize", KUSTOMIZE_VERSION, "sigs.k8s.io/kustomize/kustomize/v5")


def _pythons() -> str:
    from tests.release.pythons import pythons  # its packages are not in the extra `test`

    found = pythons()
    if "3.13" not in found:
        raise Unavailable(f"Python 3.13 is not installed, only {', '.join(found)}")
    return ", ".join(found)


def _axe() -> str:
    file = axe_core()
    if file.is_file():
        return str(file)
    folder = file.parent
    building = folder.with_name(f"{folder.name}.{os.getpid()}")
    building.mkdir(parents=True)
    try:
        destination = ["--pack-destination", str(building), "--silent"]
        _run(["npm", "pack", f"axe-core@{AXE_VERSION}", *destination], f"fetching axe-core {AXE_VERSION}")
        with tarfile.open(building / f"axe-core-{AXE_VERSION}.tgz") as archive:
            archive.extract("package/axe.min.js", building, filter="data")
        folder.mkdir(exist_ok=True)
        (building / "package" / "axe.min.js").replace(file)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return str(file)


def _example(example: Example) -> str:
    wanted = example.digest()
    if example.stamp.is_file() and example.stamp.read_text() == wanted:
        return str(example.folder)
    search = os.pathsep.join((os.environ.get("PATH", os.defpath), *MORE_PLACES))
    _program(example.program, example.package, partial(shutil.which, path=search))
    with tempfile.TemporaryDirectory() as place:
        try:
            done = example.run(example.prepare, example.copy_to(Path(place)), PREPARE_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"preparing {example.folder}: no end after {error.timeout:.0f} s") from None
    if done.returncode != 0:
        raise Unavailable(f"preparing {example.folder}: {done.stdout.strip()[-2000:]}")
    example.stamp.parent.mkdir(parents=True, exist_ok=True)
    example.stamp.write_text(wanted)
    return str(example.folder)


PEERS = (
    Peer("test", "Java", "tests with Spark and with Kafka's own tools will fail", _java),
    Peer(
        "test",
        f"Apache Kafka {KAFKA_VERSION}",
        "the differential test and tests with Kafka's tools will fail",
        _kafka,
    ),
    Peer("test", "Spark's Kafka connector", "tests with Spark will fail", _spark_connector),
    Peer("all", f"Kafka Streams {KAFKA_VERSION}", "tests with Kafka Streams will fail", _streams),
    Peer(
        "all",
        f"Java clients {' and '.join(EARLIER_CLIENTS)}",
        "tests with earlier Java clients will fail",
        _earlier_clients,
    ),
    Peer(
        "all",
        "Archive of Kafka's classes",
        "Kafka's tools will start more slowly",
        _kafka_class_archive,
        is_needed=False,
    ),
    Peer(
        "all",
        "Redis server",
        "tests of the Redis block store will fail",
        lambda: _program("redis-server", "redis-server"),
    ),
    Peer(
        "all",
        "PostgreSQL",
        "tests of reading into PostgreSQL will fail",
        lambda: _program("postgres", "postgresql", postgresql_program),
    ),
    Peer("all", "kcat", "tests with kcat will fail", lambda: _program("kcat", "kcat")),
    Peer(
        "all",
        "Chromium",
        "tests of the console in a browser will fail",
        lambda: _program("chromium", "chromium", lambda _: chromium_program()),
    ),
    Peer("all", f"axe-core {AXE_VERSION}", "tests of the console in a browser will fail", _axe),
    Peer(
        "nightly",
        f"versitygw {VERSITYGW_VERSION}",
        "tests of the object store will run with moto alone",
        _versitygw,
        is_needed=False,
    ),
    Peer(
        "nightly",
        "Prometheus and promtool",
        "tests of the alerts and the dashboard will be skipped",
        lambda: _program("promtool", "prometheus"),
    ),
    Peer("nightly", "Python 3.13", "tests of the image and of a wheel on another Python will fail", _pythons),
    Peer(
        "nightly",
        "bubblewrap",
        "tests of the image, the compose file and the manifests will fail",
        lambda: _program("bwrap", "bubblewrap"),
    ),
    Peer(
        "nightly",
        "systemd-analyze",
        "tests of the service unit will fail",
        lambda: _program("systemd-analyze", "systemd"),
    ),
    Peer("nightly", f"compose-go {COMPOSE_GO_VERSION}", "tests of the compose file will fail", _compose_go),
    Peer("nightly", f"kustomize {KUSTOMIZE_VERSION}", "tests of the manifests will fail", _kustomize),
    *(
        Peer(
            "nightly",
            f"Example with {example.client}",
            "the test of this example will fail",
            partial(_example, example),
        )
        for example in EXAMPLES
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Prepare the peers of a tier, by default of all, and print a line for each; return the exit status."""
    tier = arguments[0] if arguments else TIERS[-1]
    if tier not in TIERS:
        print(f"there is no tier {tier!r}: name one of {', '.join(TIERS)}", file=sys.stderr)
        return 2
    missing = 0
    for peer in PEERS:
        if TIERS.index(peer.tier) > TIERS.index(tier):
            continue
        try:
            print(f"ready    {peer.name}: {peer.prepare()}", flush=True)
        except Unavailable as error:
            missing += peer.is_needed
            print(f"MISSING  {peer.name}: {error}; {peer.consequence}.", file=sys.stderr)
    in_ci = os.environ.get("CI", "").lower() == "true"
    return 1 if missing and in_ci else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
