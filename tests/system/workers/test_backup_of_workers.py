"""Backups of running workers, while workers, commands and the gateway stop or die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.system.commands.test_backup import SlowBackup
from tests.system.workers.scene import (
    PARTITIONS,
    assert_all_there,
    await_that,
    consecutive_ports,
    create_topic,
    kill,
    listed,
    load,
    present_pid,
    seqgate,
    stored,
    workers,
)

LIMIT_S = 300.0


def kill_all(gateway: GatewayProcess) -> None:
    """Kill the supervisor and its two workers, which may have ended by themselves."""
    gateway.kill()
    for number in (1, 2):
        with contextlib.suppress(ProcessLookupError):
            kill(present_pid(gateway, number))


def make(gateway: GatewayProcess, target: Path) -> Path:
    return Path(listed(gateway.data_dir, "backup", "create", str(target))["backup"]["path"])


def check_restored(backup: Path, data: Path, acknowledged: Mapping[int, list[int]], count: int) -> None:
    """Restore a backup, and check that a gateway of so many workers has what was acknowledged before."""
    seqgate(data, "backup", "restore", str(backup))
    with workers(data, count, consecutive_ports(count)) as restored:
        assert_all_there(dict(acknowledged), stored(restored.bootstrap))


def test_a_worker_that_does_not_answer_is_started_again_first(tmp_path: Path) -> None:
    """Workers that stand still for it go on: no round begins before all have said that they can."""
    quick = {"seqgate.workers.timeout.ms": "5000"}
    with workers(tmp_path / "data", 3, consecutive_ports(3), quick) as gateway:
        create_topic(gateway.bootstrap)
        with load(gateway.bootstrap) as running:
            running.await_progress()
            acknowledged = {index: list(numbers) for index, numbers in running.acknowledged.items()}
            stopped = present_pid(gateway, 2)
            os.kill(stopped, signal.SIGSTOP)
            backup = make(gateway, tmp_path / "backups")
            assert present_pid(gateway, 2) != stopped
            running.await_progress()
        assert not running.errors
    check_restored(backup, tmp_path / "restored", acknowledged, count=1)


def test_what_dies_meanwhile_harms_no_backup_and_leaves_nothing(tmp_path: Path) -> None:
    with workers(tmp_path / "data", 2, consecutive_ports(2)) as gateway:
        create_topic(gateway.bootstrap)
        with load(gateway.bootstrap) as running:
            running.await_progress()
        copied = SlowBackup(gateway, tmp_path / "backups", "8K")
        kill(present_pid(gateway, 1))  # it was asked for the backup
        assert copied.finish() == 0
        (backup,) = (tmp_path / "backups").glob("2*")
        check_restored(backup, tmp_path / "restored", running.acknowledged, count=2)
        await_that(lambda: "worker 1 serves again" in gateway.stderr_text(), "worker 1 is not there")
        staged = gateway.data_dir / ".backup"
        assert not staged.exists()
        killed = SlowBackup(gateway, tmp_path / "backups")
        assert staged.exists()
        kill(present_pid(gateway, 1))
        killed.kill()
        await_that(lambda: not staged.exists(), "what a killed command has staged is still there")
        kill_all(gateway)
        check_restored(make(gateway, tmp_path / "backups"), tmp_path / "again", running.acknowledged, count=1)
        gateway.start()
        assert sorted(stored(gateway.bootstrap)) == list(range(PARTITIONS))


def serves_again(gateway: GatewayProcess, number: int, dead: int) -> bool:
    return present_pid(gateway, number) != dead


def kill_amid_round(gateway: GatewayProcess, victim: int, target: Path) -> subprocess.CompletedProcess[str]:
    """Begin a backup, kill a worker as the supervisor lets all stand still, and wait until the command ends."""
    staged = gateway.data_dir / ".backup"
    await_that(lambda: not staged.exists(), "what an earlier backup has staged is still there")
    command = [sys.executable, "-m", "seqgate", "backup", "create", str(target)]
    with subprocess.Popen(
        [*command, "--data-dir", str(gateway.data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not staged.exists():
            assert process.poll() is None, process.communicate()
        kill(present_pid(gateway, victim))
        told, complaint = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(command, process.returncode, told, complaint)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_worker_that_dies_amid_a_round_leaves_a_whole_backup_or_a_failure(
    tmp_path: Path, victim: int
) -> None:
    """The command asks worker 1, whose death ends the command. After that of worker 2 all are held again."""
    target, whole = tmp_path / "backups", dict[Path, dict[int, list[int]]]()
    with workers(tmp_path / "data", 2, consecutive_ports(2)) as gateway:
        create_topic(gateway.bootstrap)
        with load(gateway.bootstrap) as running:
            limit_s = time.monotonic() + LIMIT_S
            while "the workers were not staged for a backup" not in gateway.stderr_text():
                assert time.monotonic() < limit_s, "no worker died in time"
                running.await_progress()
                acknowledged = {index: list(numbers) for index, numbers in running.acknowledged.items()}
                dead = present_pid(gateway, victim)
                done = kill_amid_round(gateway, victim, target)
                made = {path for path in target.glob("2*") if path.suffix != ".partial"} - set(whole)
                if done.returncode == 0:
                    (backup,) = made
                    whole[backup] = acknowledged
                else:
                    assert (done.returncode, made, done.stdout) == (1, set(), "")
                    assert done.stderr.startswith("seqgate: "), done.stderr
                    assert done.stderr.count("\n") == 1, done.stderr
                await_that(partial(serves_again, gateway, victim, dead), f"worker {victim} is not there")
            running.await_progress()
        assert not running.errors
        whole[make(gateway, target)] = dict(running.acknowledged)
        assert not (gateway.data_dir / ".backup").exists()
    for number, (backup, acknowledged) in enumerate(whole.items()):
        check_restored(backup, tmp_path / f"restored-{number}", acknowledged, count=1)
