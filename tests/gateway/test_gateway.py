"""A refused start leaves nothing behind: no thread, task or lock, and the directory as the last clean stop
left it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.config import load_config
from seqgate.gateway.gateway import Gateway
from seqgate.log import LogDirectory, Storage
from tests.upgrade.planting import NOW_MS, Plant, record

ANY_PORT = "127.0.0.1:0"
NEWER = struct.pack(">h", 99) + b"\x7f" * 40


def without_metadata(root: Path) -> None:
    shutil.rmtree(root / "__cluster_metadata-0")


REFUSED: dict[str, tuple[Plant, str]] = {
    "no metadata": (without_metadata, "can't be read"),
    "group": (record("__consumer_offsets", struct.pack(">hh", 2, 1) + b"g", NEWER), "version 99"),
    "transaction": (record("__transaction_state", struct.pack(">hh", 0, 1) + b"t", NEWER), "version 99"),
    "share state": (
        record("__share_group_state", struct.pack(">hh", 0, 1) + b"g" + bytes(20), NEWER),
        "version 99",
    ),
}


def gateway(root: Path, *listeners: str) -> Gateway:
    served = ",".join(
        f"{name}://{listener}" for name, listener in zip(("PLAINTEXT", "PLAINTEXT1"), listeners, strict=False)
    )
    one = [
        f"{topic}.num.partitions=1"
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    ]
    return Gateway(load_config(overrides=[f"log.dirs={root}", f"listeners={served}", *one]))


async def stopped(root: Path) -> None:
    """Return a cleanly stopped directory with all coordinators' topics, each with a record."""
    before = gateway(root, ANY_PORT)
    await before.start()
    services = before.services
    for coordinator in (
        services.coordinators.groups,
        services.coordinators.transactions,
        services.coordinators.shares,
    ):
        await coordinator.ensure_topic()
        assert services.partitions.registry.get(coordinator.shards.topic, 0) is not None
    await before.stop()
    plant = record("__consumer_offsets", struct.pack(">hh", 2, 1) + b"h", b"")
    plant(root)


async def refused(root: Path, *listeners: str) -> str:
    """Return why a gateway does not start; check that the attempt leaves nothing behind."""
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    with pytest.raises(StartFailed) as refusal:
        await gateway(root, *listeners).start()
    assert {thread.name for thread in set(threading.enumerate()) - threads} == set()
    assert {task.get_name() for task in asyncio.all_tasks() - tasks} == set()
    directory = LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS)
    assert directory.was_clean
    directory.close()
    return str(refusal.value)


class TestARefusedStart:
    @pytest.mark.parametrize("what", REFUSED)
    async def test_for_what_is_stored(self, what: str, tmp_path: Path) -> None:
        await stopped(tmp_path)
        plant, sentence = REFUSED[what]
        plant(tmp_path)
        assert sentence in await refused(tmp_path, ANY_PORT)

    async def test_for_a_port_that_is_taken(self, tmp_path: Path) -> None:
        """Listeners that were already open are closed again."""
        await stopped(tmp_path)
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
            first = "{}:{}".format(*free.getsockname())
            free.close()
            second = "{}:{}".format(*taken.getsockname())
            assert f"can't listen on {second}" in await refused(tmp_path, first, second)
        with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
            pass

    def test_for_a_port_that_is_taken_before_there_is_a_data_directory(self, tmp_path: Path) -> None:
        root = tmp_path / "data"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "{}:{}".format(*taken.getsockname())
            command = [sys.executable, "-m", "seqgate", "serve", "--listen", address, "--data-dir", str(root)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert re.fullmatch(
            rf"seqgate: can't listen on {address}: [A-Za-z ]+ \(pid {os.getpid()}\)\n", done.stderr
        )
        assert not root.exists()

    async def test_for_a_data_directory_that_is_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "data"
        file.touch()
        with pytest.raises(
            StartFailed, match=f"data directory {file} can't be opened: {file}[^ ]*: Not a directory$"
        ):
            await gateway(file, ANY_PORT).start()

    async def test_for_a_directory_of_somebody_else(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        with pytest.raises(
            StartFailed, match=f"{tmp_path} can't be opened: it holds 'photos' and no meta.properties"
        ):
            await gateway(tmp_path, ANY_PORT).start()
        assert [path.name for path in tmp_path.iterdir()] == ["photos"]
