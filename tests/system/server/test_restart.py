"""`seqgate restart`: the process executes itself again, and clients only wait."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from kafka import KafkaConsumer, TopicPartition

from seqgate.log import DirectoryLocked, Storage
from seqgate.log.stopped import LOCK
from tests.support.certificates import Authority
from tests.support.gateway_process import REPOSITORY, SOURCES, GatewayProcess
from tests.system.workers.scene import (
    DEADLINE_S,
    PARTITIONS,
    TOPIC,
    Load,
    assert_all_there,
    await_that,
    consecutive_ports,
    create_topic,
    load,
    seqgate,
    stored,
    workers,
)
from tests.tiers import in_tiers

REFUSED = "seqgate: the gateway does not restart, and serves on: the next process could not start: "


class Repeated(threading.Thread):
    """A thread that does something again and again until the end of a `with` block, and notes its errors."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self._act = act
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.01):
            try:
                self._act()
            except BaseException as error:
                self.errors.append(error)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()
        assert not self.errors


@contextlib.contextmanager
def reader(bootstrap: str, **login: str) -> Iterator[dict[int, list[tuple[int, bytes]]]]:
    """Let a consumer read all partitions; yield the offsets and values that it has read."""
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **login)
    consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])

    def read() -> None:
        for place, records in consumer.poll(timeout_ms=100).items():
            found[place.partition] += [(record.offset, record.value) for record in records]

    with contextlib.closing(consumer), Repeated(read):
        yield found


class Secured:
    """A listener with TLS, and one with TLS and logins, each worker's on the next port."""

    def __init__(self, folder: Path, count: int) -> None:
        self.ports = consecutive_ports(count), consecutive_ports(count)
        self.listeners = [
            f"{name}://127.0.0.1:{port}" for name, port in zip(("SSL", "SASL_SSL"), self.ports, strict=True)
        ]
        authority = Authority()
        self.trusted = str(authority.write(folder / "ca.pem"))
        self.settings = {
            "ssl.keystore.location": str(authority.listener().write_pem(folder / "listener.pem")),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }

    def load(self) -> contextlib.AbstractContextManager[Load]:
        """Return a producer over TLS."""
        return load(f"127.0.0.1:{self.ports[0]}", security_protocol="SSL", ssl_ca_location=self.trusted)

    def reader(self) -> contextlib.AbstractContextManager[dict[int, list[tuple[int, bytes]]]]:
        """Return a consumer that logs in over TLS."""
        return reader(
            f"127.0.0.1:{self.ports[1]}",
            security_protocol="SASL_SSL",
            ssl_cafile=self.trusted,
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="ann",
            sasl_plain_password="pencil",
        )


@pytest.mark.parametrize(
    ("count", "is_secured"), in_tiers([(1, False), (1, True), (2, True)], test=[(1, False)])
)
def test_through_three_restarts_no_client_sees_an_error_and_nobody_gets_the_directory(
    tmp_path: Path, count: int, is_secured: bool
) -> None:
    port, metrics = consecutive_ports(count), consecutive_ports(count)
    secured = Secured(tmp_path, count) if is_secured else None
    dialed = (port, metrics, *(secured.ports if secured else ()))

    def dial() -> None:
        for number in (first + worker for first in dialed for worker in range(count)):
            socket.create_connection(("127.0.0.1", number), DEADLINE_S).close()

    def steal() -> None:
        with pytest.raises(DirectoryLocked):
            Storage().lock(str(tmp_path / "data" / LOCK))

    settings = {"seqgate.metrics.listener": f"127.0.0.1:{metrics}", **(secured.settings if secured else {})}
    made = workers(tmp_path / "data", count, port, settings)
    made.also_listen = tuple(secured.listeners) if secured else ()
    with made as gateway:
        pid = gateway.pid
        create_topic(gateway.bootstrap)
        (tmp_path / "password").write_text("pencil\n")
        seqgate(tmp_path / "data", "users", "add", "ann", "--password-file", str(tmp_path / "password"))
        loading = secured.load() if secured else load(gateway.bootstrap)
        reading = secured.reader() if secured else reader(gateway.bootstrap)
        with loading as producer, reading as read:
            with Repeated(dial), Repeated(steal):
                for _ in range(3):
                    producer.await_progress()
                    told = seqgate(tmp_path / "data", "restart")
                    assert told.startswith(f"Restarted: version 0.1.0 → 0.1.0, pid {pid}. Clients waited for")
                    assert gateway.pid == pid
                producer.await_progress()
            producer.stop()
            assert not producer.errors
            found = stored(gateway.bootstrap)
            assert_all_there(producer.acknowledged, found)
            await_that(
                lambda: all(len(read[number]) >= len(values) for number, values in found.items()),
                "the consumer has not read everything",
            )
            for number, values in found.items():
                assert read[number] == list(enumerate(values))


def run_restart(data_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqgate", "restart", "--data-dir", str(data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def assert_refused(gateway: GatewayProcess, reason: str, data_dir: Path | None = None) -> None:
    """A restart is refused with one sentence, and the gateway serves on."""
    refused = run_restart(data_dir or gateway.data_dir)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"{REFUSED}{reason}\n"
    assert "restarting" not in gateway.stderr_text()
    create_topic(gateway.bootstrap, "served")


@pytest.mark.parametrize("count", [1, 2])
def test_a_settings_file_that_is_wrong_now_is_refused(tmp_path: Path, count: int) -> None:
    file = tmp_path / "seqgate.toml"
    file.write_text("")
    gateway = workers(tmp_path / "data", count, consecutive_ports(count))
    gateway.environment["SEQGATE_CONFIG"] = str(file)
    with gateway:
        file.write_text('"log.retention.ms" = "soon"\n')
        assert_refused(
            gateway,
            f"Setting log.retention.ms can't be 'soon' (in {file}); allowed: a whole number, at least -1.",
        )


@pytest.mark.parametrize("count", [1, 2])
def test_another_data_directory_than_that_of_the_gateway_is_refused(tmp_path: Path, count: int) -> None:
    """The command would wait at the former directory in vain."""
    former, other, named = tmp_path / "former", tmp_path / "other", tmp_path / "named"
    former.mkdir()
    named.symlink_to(former)
    with workers(named, count, consecutive_ports(count)) as gateway:
        named.unlink()
        named.symlink_to(other)
        reason = (
            f"log.dirs differs from the directory of the running gateway, {other} instead of {former}: stop "
            "and start instead"
        )
        assert_refused(gateway, reason, former)
        assert not other.exists()


def test_a_package_that_is_installed_by_half_is_refused(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    path = os.pathsep.join([str(installed), str(SOURCES), str(REPOSITORY)])
    with GatewayProcess(tmp_path / "data", environment={"PYTHONPATH": path}) as gateway:
        (installed / "uvloop.py").write_text("raise ImportError('half of it is missing')\n")
        assert_refused(gateway, "ImportError: half of it is missing")


def test_an_address_that_the_settings_name_now_and_another_program_has_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "seqgate.toml"
    file.write_text("")
    gateway = GatewayProcess(tmp_path / "data", environment={"SEQGATE_CONFIG": str(file)})
    with gateway, socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        file.write_text(f'"seqgate.metrics.listener" = "127.0.0.1:{taken}"\n')
        assert_refused(
            gateway, f"can't listen on 127.0.0.1:{taken}: Address already in use (pid {os.getpid()})"
        )


@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_that_comes_during_a_restart_stops_the_gateway(tmp_path: Path, count: int) -> None:
    gateway = workers(tmp_path / "data", count, consecutive_ports(count)).start()
    command = [sys.executable, "-m", "seqgate", "restart", "--data-dir", str(gateway.data_dir)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as restart:
        await_that(lambda: " restarting\n" in gateway.stderr_text(), "the restart has not begun")
        os.kill(gateway.pid, signal.SIGTERM)
        assert gateway.await_end() == 0
        restart.wait()
    assert not Storage().exists(str(gateway.data_dir / "workers"))
