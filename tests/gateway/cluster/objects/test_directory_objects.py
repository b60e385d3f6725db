"""Objects in a directory: durable in the right order, and without a trace of what failed."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest

from seqgate.gateway.cluster.objects.directory_objects import (
    ABANDONED_AFTER_S,
    LOCK,
    TEMPORARY,
    DirectoryObjects,
)
from seqgate.gateway.cluster.objects.objects import AlreadyThere, Changed, Missing, Refused, StoreFailed


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The flushes and changes of names, in order; temporary files are called `*`."""
    found: list[str] = []
    fsync, link, mkdir, rename = os.fsync, os.link, Path.mkdir, Path.rename

    def shown(path: str | Path) -> str:
        name = str(Path(path).relative_to(tmp_path))
        return f"{TEMPORARY}/*" if name.startswith(f"{TEMPORARY}/") else name

    def noted_fsync(descriptor: int) -> None:
        found.append(f"fsync {shown(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        fsync(descriptor)

    def noted_link(source: Path, target: Path) -> None:
        found.append(f"link {shown(target)}")
        link(source, target)

    def noted_mkdir(path: Path, exist_ok: bool) -> None:
        found.append(f"mkdir {shown(path)}")
        mkdir(path, exist_ok=exist_ok)

    def noted_rename(path: Path, target: Path) -> None:
        found.append(f"rename {shown(target)}")
        rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(Path, "mkdir", noted_mkdir)
    monkeypatch.setattr(Path, "rename", noted_rename)
    return found


async def test_a_creation_is_durable_before_it_succeeds(tmp_path: Path, events: list[str]) -> None:
    objects = DirectoryObjects(tmp_path)
    await objects.create("wal/0/1", b"content")
    assert events == [
        f"mkdir {TEMPORARY}",
        "fsync .",
        f"fsync {TEMPORARY}/*",
        "mkdir wal",
        "fsync .",
        "mkdir wal/0",
        "fsync wal",
        "link wal/0/1",
        "fsync wal/0",
    ]
    events.clear()
    await objects.create("wal/0/2", b"content")
    assert events == [f"fsync {TEMPORARY}/*", "link wal/0/2", "fsync wal/0"]


async def test_what_others_created_is_durable_for_who_sees_it(tmp_path: Path, events: list[str]) -> None:
    await DirectoryObjects(tmp_path).create("wal/1", b"content")
    other = DirectoryObjects(tmp_path)
    events.clear()
    await other.get("wal/1")
    assert events == ["fsync wal"]
    events.clear()
    assert [entry.key async for entry in other.list("")] == ["wal/1"]
    assert events == ["fsync wal"]
    events.clear()
    with pytest.raises(AlreadyThere):
        await other.create("wal/1", b"other")
    assert events[-2:] == ["link wal/1", "fsync wal"]


async def test_a_replacement_is_durable_before_it_succeeds(tmp_path: Path, events: list[str]) -> None:
    objects = DirectoryObjects(tmp_path)
    version = await objects.replace("boundary", b"1", None)
    events.clear()
    await objects.replace("boundary", b"2", version)
    assert events == [f"fsync {TEMPORARY}/*", "rename boundary", "fsync ."]


async def test_a_deletion_is_durable_before_it_succeeds_whoever_removed_the_object(
    tmp_path: Path, events: list[str]
) -> None:
    objects = DirectoryObjects(tmp_path)
    await objects.create("wal/1", b"content")
    for _ in range(2):
        events.clear()
        await objects.delete("wal/1")
        assert events == ["fsync wal"]


async def test_nothing_is_flushed_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = DirectoryObjects(tmp_path)
    version = await objects.replace("boundary", b"1", None)
    fsync = os.fsync
    flushes = []

    def with_free_lock(descriptor: int) -> None:
        with (tmp_path / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fsync(descriptor)
        flushes.append(descriptor)

    monkeypatch.setattr(os, "fsync", with_free_lock)
    await objects.replace("boundary", b"2", version)
    await objects.delete("boundary")
    assert len(flushes) == 3, "the new content, and the directory after each change"


async def test_a_stopped_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    await DirectoryObjects(tmp_path).create("a", b"1")
    objects = DirectoryObjects(tmp_path, timeout_s=0.05)
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreFailed, match=r"another process holds the lock \.lock; end that process"):
            await objects.delete("a")
    await asyncio.get_running_loop().run_in_executor(None, objects._threads.shutdown)
    assert not (tmp_path / "a").exists(), "the call has continued"


async def test_nothing_is_left_of_what_lost(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    await objects.create("a", b"1")
    with pytest.raises(AlreadyThere):
        await objects.create("a", b"2")
    with pytest.raises(Changed):
        await objects.replace("a", b"2", "another version")
    assert list((tmp_path / TEMPORARY).iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([TEMPORARY, LOCK, "a"])


async def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / TEMPORARY
    folder.mkdir()
    for name, age_s in (("old", ABANDONED_AFTER_S + 60), ("young", ABANDONED_AFTER_S - 60)):
        (folder / name).touch()
        now_s = (folder / name).stat().st_mtime
        os.utime(folder / name, (now_s - age_s, now_s - age_s))
    await DirectoryObjects(tmp_path).create("a", b"")
    assert [path.name for path in folder.iterdir()] == ["young"]


@pytest.mark.parametrize(
    ("number", "kind", "sentence"),
    [
        (errno.ENOSPC, StoreFailed, "No space left on device"),
        (errno.EIO, StoreFailed, "Input/output error"),
        (errno.EROFS, Refused, "Read-only file system; mount the file system for writing"),
        (
            errno.EACCES,
            Refused,
            "Permission denied; let the user of the gateway read and write the directory",
        ),
        (errno.EPERM, Refused, "Operation not permitted; use a file system with hard links"),
    ],
)
async def test_errors_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], sentence: str
) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    objects = DirectoryObjects(tmp_path)
    await objects.create("before", b"")
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(kind, match=f"^{tmp_path}/a: {sentence}"):
        await objects.create("a", b"")
    monkeypatch.undo()
    with pytest.raises(Missing):
        await objects.get("a")
    assert list((tmp_path / TEMPORARY).iterdir()) == []
    await objects.create("a", b"")


async def test_a_link_whose_answer_was_lost_has_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        """Link twice, as a client of a network file system that got no answer."""
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", repeated)
    objects = DirectoryObjects(tmp_path)
    await objects.create("a", b"1")
    with pytest.raises(AlreadyThere):
        await objects.create("a", b"2")
    assert await objects.get("a") == b"1"


async def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path / "unmounted")
    for call in (
        objects.create("a", b""),
        objects.get("a"),
        objects.replace("a", b"", "v"),
        objects.delete("a"),
    ):
        with pytest.raises(
            Refused, match="unmounted is no directory; create it, or mount the file system that holds it"
        ):
            await call
    with pytest.raises(Refused, match="unmounted is no directory"):
        assert [entry async for entry in objects.list("")]
    assert not (tmp_path / "unmounted").exists()


async def test_a_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    await objects.create("wal/1", b"")
    (tmp_path / "wal" / "1").unlink()
    (tmp_path / "wal").rmdir()
    with pytest.raises(StoreFailed):
        await objects.create("wal/1", b"")
    await objects.create("wal/1", b"")


async def test_a_listing_removes_folders_that_have_been_empty_for_long(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    for key in ("parts/old/0/manifest", "parts/young/0/manifest", "parts/used/0/manifest"):
        await objects.create(key, b"")
    for key in ("parts/old/0/manifest", "parts/young/0/manifest"):
        await objects.delete(key)
    folders = {name: tmp_path / "parts" / name / "0" for name in ("old", "young", "used")}
    for name, age_s in (("old", 60), ("young", -60), ("used", 60)):
        written_s = tmp_path.stat().st_mtime - ABANDONED_AFTER_S - age_s
        os.utime(folders[name], (written_s, written_s))
    only_reads = DirectoryObjects(tmp_path)
    assert [entry.key async for entry in only_reads.list("parts/")] == ["parts/used/0/manifest"]
    assert all(folder.exists() for folder in folders.values())
    assert [entry.key async for entry in objects.list("parts/")] == ["parts/used/0/manifest"]
    assert [name for name, folder in folders.items() if folder.exists()] == ["young", "used"]
    await objects.create("parts/old/0/manifest", b"")


async def test_a_folder_whose_parent_somebody_removed_is_made_again(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    await objects.create("parts/1/0", b"")
    shutil.rmtree(tmp_path / "parts")
    with pytest.raises(StoreFailed):
        await objects.create("parts/2/0", b"")
    await objects.create("parts/2/0", b"")


async def test_a_key_that_is_another_keys_folder(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    await objects.create("a/b", b"")
    await objects.create("c", b"")
    with pytest.raises(Refused, match="remove the directory that stands where an object must be"):
        await objects.create("a", b"")
    with pytest.raises(Refused, match="remove the file that stands where a directory must be"):
        await objects.create("c/d", b"")


async def test_a_file_system_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    fsync = os.fsync

    def hanging(descriptor: int) -> None:
        assert goes_on.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", hanging)
    objects = DirectoryObjects(tmp_path, timeout_s=0.05)
    with pytest.raises(StoreFailed, match=r"the file system did not answer in 0\.05 s"):
        await objects.create("a", b"late")
    assert not (tmp_path / "a").exists()
    goes_on.set()
    await asyncio.get_running_loop().run_in_executor(None, objects._threads.shutdown)
    assert (tmp_path / "a").read_bytes() == b"late"


async def test_many_buffers_are_written_whole(tmp_path: Path) -> None:
    buffers = [b"%d," % number for number in range(3000)]
    objects = DirectoryObjects(tmp_path)
    await objects.create("a", buffers)
    assert await objects.get("a") == b"".join(buffers)


async def test_a_cancelled_call_ends_though_its_answer_comes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    running: asyncio.Future[bytes] = loop.create_future()
    monkeypatch.setattr(loop, "run_in_executor", lambda *_: running)
    call = asyncio.create_task(DirectoryObjects(tmp_path).get("a/1"))
    await asyncio.sleep(0)
    running.set_exception(Missing("a/1"))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
