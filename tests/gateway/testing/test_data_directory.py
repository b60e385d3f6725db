"""Where temporary data of brokers is, and who removes it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from seqgate.gateway.testing import Broker, data_directory
from seqgate.gateway.testing.data_directory import (
    MEMORY,
    MIN_FREE_BYTES,
    VARIABLE,
    TemporaryDirectory,
    empty,
    temporary_place,
)

MAKES_ONE_AND_IS_KILLED = """
import os, signal
from seqgate.gateway.testing.data_directory import TemporaryDirectory
kept = TemporaryDirectory()
print(kept.path, flush=True)
(kept.path / "data").mkdir()
os.kill(os.getpid(), signal.SIGKILL)
"""


def free(bytes_: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, 0, 0, bytes_ // 4096, 0, 0, 0, 0, 255))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("room", [MIN_FREE_BYTES, MIN_FREE_BYTES - 4096, None])
def test_data_is_in_memory_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, room: int | None
) -> None:
    def statvfs(path: Path) -> os.statvfs_result:
        assert path == tmp_path / "shm"
        if room is None:
            raise FileNotFoundError
        return free(room)

    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(data_directory, "MEMORY", tmp_path / "shm")
    monkeypatch.setattr(os, "statvfs", statvfs)
    in_memory = room == MIN_FREE_BYTES
    assert temporary_place() == (tmp_path / "shm" if in_memory else Path(tempfile.gettempdir()))


def test_memory_is_a_file_system_in_memory_where_it_is_chosen() -> None:
    mounted = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    kinds = {fields[2] for fields in mounted if fields[1] == str(MEMORY)}
    assert kinds <= {"tmpfs", "ramfs"}


def test_a_broker_keeps_its_data_where_the_variable_says(place: Path) -> None:
    with Broker() as broker:
        assert broker.directory.parent.parent == place
        assert broker.directory.parent.stat().st_mode & 0o077 == 0
    assert list(place.iterdir()) == []


def test_directories_of_killed_processes_are_removed_and_no_others(place: Path) -> None:
    mine = TemporaryDirectory()
    kept = mine.path
    (place / "seqgate-other").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", MAKES_ONE_AND_IS_KILLED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    left = Path(done.stdout.strip())
    assert left.parent == place
    assert (left / "data").is_dir()
    other = TemporaryDirectory()
    made = other.path
    assert set(place.iterdir()) == {kept, made, place / "seqgate-other"}
    mine.remove()
    mine.remove()
    assert not kept.exists()
    del other
    gc.collect()
    assert list(place.iterdir()) == [place / "seqgate-other"]


def test_a_forked_child_removes_nothing_and_its_parent_all(place: Path) -> None:
    mine = TemporaryDirectory()
    kept = mine.path
    child = os.fork()
    if child == 0:
        try:
            mine.remove()
            TemporaryDirectory().remove()
        finally:
            os._exit(0 if kept.is_dir() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kept.is_dir()
    mine.remove()
    assert not kept.exists()


def test_an_emptied_directory_keeps_what_no_broker_wrote(tmp_path: Path) -> None:
    empty(tmp_path / "none")
    with Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
    (tmp_path / "notes-1").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "notes-1")
    (tmp_path / "t.txt").touch()
    empty(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"notes-1", "link", "t.txt", "meta.properties"}
    with Broker(tmp_path) as broker:
        assert broker.topics() == []
