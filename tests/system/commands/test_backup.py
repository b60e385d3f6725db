"""`seqgate backup`: running and stopped gateways, killed commands, damaged backups, and where it is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.system.commands.clients import create_topic, produce
from tests.system.commands.conftest import seqgate

WAIT_S = 60.0


def make(gateway: GatewayProcess, target: Path, *options: str) -> Path:
    made = seqgate("backup", "create", target, "--data-dir", gateway.data_dir, "--json", *options)
    return Path(made.json["backup"]["path"])


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def orders(gateway: GatewayProcess) -> GatewayProcess:
    """A gateway with one topic of 3 records, and producer 77 that has sent them."""
    create_topic(gateway.bootstrap, "orders", 1)
    assert produce(gateway.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)
    return gateway


def test_a_restored_directory_judges_retries_as_before(orders: GatewayProcess, tmp_path: Path) -> None:
    backup = make(orders, tmp_path / "backups")
    assert produce(orders.bootstrap, "orders", 0, 77, 3, 2) == (0, 3)
    with GatewayProcess(tmp_path / "restored") as restored:
        restored.stop()
        seqgate("backup", "restore", backup, "--data-dir", restored.data_dir, code=1)
    told = seqgate("backup", "restore", backup, "--data-dir", tmp_path / "second", "--json").json
    with GatewayProcess(tmp_path / "second") as second:
        assert produce(second.bootstrap, "orders", 0, 77, 0, 3) == (0, 0), "a retry gets the first offset"
        assert produce(second.bootstrap, "orders", 0, 77, 3, 1) == (0, 3)
        page = seqgate("pids", "list", "--data-dir", second.data_dir, "--json").json
        assert page["next_producer_id"] >= told["next_producer_id"] > 10**12


def test_a_stopped_directory(orders: GatewayProcess, tmp_path: Path) -> None:
    live = make(orders, tmp_path / "backups")
    orders.stop()
    stopped = make(orders, tmp_path / "backups")
    rows = seqgate("backup", "list", tmp_path / "backups", "--json").json
    assert [(row["path"], row["is_live"]) for row in rows] == [(str(live), True), (str(stopped), False)]
    assert rows[1]["copied_bytes"] < rows[1]["size_bytes"]
    full = make(orders, tmp_path / "backups", "--full")
    assert seqgate("backup", "verify", full, "--json").json["damaged"] == []
    make(orders, tmp_path / "backups", "--keep", "2")
    assert min(path.name for path in (tmp_path / "backups").glob("2*")) == full.name
    verified = seqgate("backup", "verify", tmp_path / "backups", "--json").json["backup"]["path"]
    assert Path(verified).name == max(path.name for path in (tmp_path / "backups").glob("2*"))
    for wrong in ((), (tmp_path / "one", "--data-dir", tmp_path / "other")):
        seqgate("backup", "restore", full, *wrong, code=2)
    seqgate("backup", "restore", tmp_path / "backups", tmp_path / "restored")
    with GatewayProcess(tmp_path / "restored") as restored:
        assert produce(restored.bootstrap, "orders", 0, 77, 3, 1) == (0, 3)
    orders.start()


def test_every_damaged_file_is_found_and_restores_nothing(orders: GatewayProcess, tmp_path: Path) -> None:
    backup = make(orders, tmp_path / "backups")
    files = [path for path in (backup / "data").rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 5
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        found = seqgate("backup", "verify", backup, "--json", code=1).document
        assert [row["path"] for row in found["damaged"]] == [str(path.relative_to(backup / "data"))]
        told = seqgate("backup", "restore", backup, "--data-dir", tmp_path / "restored", code=1)
        assert "nothing is restored" in told.stderr
        assert list((tmp_path / "restored").iterdir()) == []
        path.unlink()
        told = seqgate("backup", "restore", backup, "--data-dir", tmp_path / "restored", code=1)
        assert "is missing" in told.stderr
        path.write_bytes(whole)
    manifest = backup / "manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b'"partitions":', b'"partitionz":'))
    assert "checksum is wrong" in seqgate("backup", "verify", backup, code=1).stderr
    manifest.write_bytes(whole)
    assert "is sound" in seqgate("backup", "verify", backup).stdout


class SlowBackup:
    """A `seqgate backup create` in a process of its own, which copies for half a minute or longer."""

    def __init__(self, gateway: GatewayProcess, target: Path, rate: str = "30") -> None:
        command = [sys.executable, "-m", "seqgate", "backup", "create", str(target), "--rate", rate]
        self.process = subprocess.Popen(
            [*command, "--data-dir", str(gateway.data_dir)],
            cwd=REPOSITORY,
            env=os.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        await_that(lambda: self.process.poll() is not None or any(target.glob("*.partial/data/*/*.log")))
        assert self.process.poll() is None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.finish()

    def finish(self) -> int:
        code = self.process.wait(WAIT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def test_a_killed_command_leaves_the_gateway_as_it_was(orders: GatewayProcess, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    slow = SlowBackup(orders, target)
    told = seqgate("backup", "create", tmp_path / "other", "--data-dir", orders.data_dir, code=1)
    assert "another backup" in told.stderr
    told = seqgate("backup", "create", target, "--data-dir", orders.data_dir, code=1)
    assert "another command makes a backup" in told.stderr
    assert (orders.data_dir / ".backup").is_dir()
    slow.kill()
    await_that(lambda: not (orders.data_dir / ".backup").exists())
    (partial,) = target.glob("*.partial")
    assert "was never finished" in seqgate("backup", "list", target).stdout
    for command in ("verify", "restore"):
        options = ("--data-dir", tmp_path / "restored") if command == "restore" else ()
        assert "was never finished" in seqgate("backup", command, partial, *options, code=1).stderr
    assert produce(orders.bootstrap, "orders", 0, 77, 3, 1) == (0, 3)
    backup = make(orders, target)
    assert not partial.exists()
    assert "is sound" in seqgate("backup", "verify", backup).stdout


def test_a_killed_gateway_does_not_harm_the_backup(orders: GatewayProcess, tmp_path: Path) -> None:
    slow = SlowBackup(orders, tmp_path / "backups", "300")
    orders.restart(kill=True)
    assert produce(orders.bootstrap, "orders", 0, 77, 3, 1) == (0, 3)
    assert slow.finish() == 0
    assert not (orders.data_dir / ".backup").exists()
    (backup,) = (tmp_path / "backups").glob("2*")
    seqgate("backup", "restore", backup, "--data-dir", tmp_path / "restored")
    with GatewayProcess(tmp_path / "restored") as restored:
        assert produce(restored.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)


def test_refusals(orders: GatewayProcess, tmp_path: Path) -> None:
    data = orders.data_dir
    assert (
        "is in the data directory"
        in seqgate("backup", "create", data / "x", "--data-dir", data, code=1).stderr
    )
    told = seqgate("backup", "create", tmp_path / "b", "--data-dir", data, "--rate", "fast", code=2)
    assert "is not a size" in told.stderr
    assert (
        "no data directory"
        in seqgate("backup", "create", tmp_path / "b", "--data-dir", tmp_path / "none", code=1).stderr
    )
    told = seqgate("backup", "verify", tmp_path / "nothing", code=1)
    assert "is no backup" in told.stderr
    backup = make(orders, tmp_path / "b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    told = seqgate("backup", "restore", backup, "--data-dir", tmp_path / "full", code=1)
    assert "is not empty" in told.stderr


def test_the_cache_of_a_bucket_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    settings = {"seqgate.cluster": f"file://{tmp_path / 'bucket'}"}
    with GatewayProcess(tmp_path / "data", settings=settings) as gateway:
        for _ in ("running", "stopped"):
            told = seqgate("backup", "create", tmp_path / "b", "--data-dir", gateway.data_dir, code=1)
            assert "bucket" in told.stderr
            gateway.stop()
    assert not (gateway.data_dir / ".backup").exists()
