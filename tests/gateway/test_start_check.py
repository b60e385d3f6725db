"""The check before a restart refuses what a start refuses, imports what it imports, and changes no file."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seqgate.gateway import start_check
from seqgate.gateway.admin.restart.live import Passed
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.cluster.rebuild.local_session import LocalSession, encode_local_session
from seqgate.gateway.config import Listener, load_config
from seqgate.gateway.start_check import check_start
from seqgate.log.rebuilding import BUCKET_SESSION
from tests.gateway.handlers.support import open_node

ADDRESS = "listeners=PLAINTEXT://127.0.0.1:0"
LOGINS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
)
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config="


@pytest.fixture(autouse=True)
def _logging_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_check, "begin_logging", lambda _: None)


def assert_refused(path: Path, reason: str, *settings: str) -> None:
    before = sorted(path.rglob("*"))
    config = load_config(None, {}, [f"log.dirs={path}", ADDRESS, *settings])
    with pytest.raises(StartFailed, match=reason):
        check_start(config, Passed(), console=False)
    assert sorted(path.rglob("*")) == before


def bucket(path: Path) -> str:
    return f"file://{path / 'bucket'}"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    session = LocalSession(bucket(tmp_path), "cluster", 1)
    (path / BUCKET_SESSION).write_bytes(encode_local_session(session))
    return path


async def a_directory_with_records(path: Path) -> None:
    async with open_node(path):
        pass


def test_a_cluster_that_is_added_to_a_directory_with_records(tmp_path: Path) -> None:
    path = tmp_path / "data"
    asyncio.run(a_directory_with_records(path))
    assert_refused(path, "holds files that are no cache of file://", f"seqgate.cluster={bucket(tmp_path)}")


def test_a_cluster_that_is_removed_from_its_cache(cache: Path) -> None:
    assert_refused(cache, "is a cache of file://")


def test_another_cluster_for_a_cache(cache: Path) -> None:
    assert_refused(cache, "not of file:///elsewhere; name", "seqgate.cluster=file:///elsewhere")


def test_several_workers_on_the_cache_of_one(tmp_path: Path, cache: Path) -> None:
    assert_refused(
        cache,
        "several workers of a bucket have their caches in",
        f"seqgate.cluster={bucket(tmp_path)}",
        "seqgate.workers=2",
    )


def test_a_file_of_users_that_is_missing(tmp_path: Path) -> None:
    users = f"listener.name.sasl_plaintext.plain.seqgate.sasl.plain.users.file={tmp_path / 'users'}"
    assert_refused(
        tmp_path, "listener SASL_PLAINTEXT can't log clients in: .* can't be read: No such", *LOGINS, users
    )


def test_a_port_on_more_addresses_than_before_is_free_once_the_gateway_gives_it_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        wide = {f"0.0.0.0:{port}": Listener("PLAINTEXT", "0.0.0.0", port)}
        with pytest.raises(StartFailed, match="Address already in use"):
            start_check._check_listeners(wide, Passed(sockets={f"127.0.0.1:{port}1": []}))
        start_check._check_listeners(wide, Passed(sockets={f"127.0.0.1:{port}": []}))


MODULES = """
import os, sys
from seqgate.gateway import serving

def show():
    print("loaded:", *(name for name in sys.modules if name.startswith("seqgate.")), flush=True)

def announce_and_stop(*_, **options):
    show()
    os.kill(os.getpid(), SIGNAL)
serving.announce = announce_and_stop
code = serving.run_with(serving.Options(data_dir=sys.argv[1], settings=sys.argv[2:], listen=[]))
if IS_CHECK:
    show()
sys.exit(code)
"""


def modules(path: Path, settings: list[str], *, is_check: bool) -> set[str]:
    script = MODULES.replace("SIGNAL", str(int(signal.SIGTERM))).replace("IS_CHECK", str(is_check))
    environment = dict(os.environ)
    if is_check:
        environment["_SEQGATE_RESTART"] = '{"is_check": true}'
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path), *settings],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("loaded:"))
    return set(line.split()[1:])


@pytest.mark.parametrize("kind", ["disk", "cluster"])
def test_all_that_a_start_imports_is_imported(tmp_path: Path, kind: str) -> None:
    settings = [
        *LOGINS,
        f'{JAAS}org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";',
        "seqgate.metrics.listener=127.0.0.1:0",
        "seqgate.otlp.endpoint=http://127.0.0.1:9/v1/metrics",
    ]
    if kind == "cluster":
        (tmp_path / "bucket").mkdir()
        settings = [ADDRESS, f"seqgate.cluster={bucket(tmp_path)}"]
    path = tmp_path / "data"
    checked = modules(path, settings, is_check=True)
    assert not path.exists()
    started = modules(path, settings, is_check=False)
    assert "seqgate.gateway.gateway" in started
    assert started - checked == set()
