"""The simulated disk behaves as the system's disk. A power cut loses only data that a real disk may lose."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from seqgate.log import DirectoryLocked, LocalDurability, Storage
from seqgate.log.files.disk import Disk, SystemDisk
from seqgate.log.files.storage import DataFile
from tests.faults.disk_contents import Enumeration
from tests.faults.disk_faults import FaultRates
from tests.faults.simulated_disk import PowerCut, SimulatedDisk, SimulatedProcess

CREATE = os.O_RDWR | os.O_CREAT


def new_disk(**options: object) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(0), **options)  # type: ignore[arg-type]
    disk.provide_directory("/d")
    return disk


def write(
    process: SimulatedProcess, path: str, data: bytes, position: int = 0, *, synced: bool = False
) -> None:
    descriptor = process.open(path, CREATE)
    process.pwritev(descriptor, (data,), position)
    if synced:
        process.fdatasync(descriptor)
    process.close(descriptor)


def sync_directory(process: SimulatedProcess, path: str = "/d") -> None:
    Storage(disk=process).fsync_directory(path)


def states(make: Callable[[SimulatedDisk], None]) -> set[tuple[tuple[str, bytes], ...]]:
    """Return every state that a power cut can leave after `make`, with whole writes."""
    found = set()
    choices = Enumeration()
    while True:
        disk = new_disk()
        make(disk)
        disk.power_cut(choices, tears=False)
        found.add(tuple((path, disk.content(path)) for path in disk.files()))
        if not choices.advance():
            return found


def random_call(chance: random.Random, disk: Disk, root: str, descriptors: list[int]) -> object:
    def path() -> str:
        above = chance.choice(("", "/x", "/y", "/x/z"))
        return f"{root}{above}/{chance.choice('abxyz')}"

    def first_byte(descriptor: int) -> bytes:
        return disk.pread(descriptor, 1, 0)  # compare the sizes of files only

    calls: list[Callable[[], object]] = [
        lambda: descriptors.append(disk.open(path(), CREATE | chance.choice((0, 0, os.O_TRUNC)), 0o644)),
        lambda: descriptors.append(disk.open(path(), os.O_RDONLY)),
        lambda: disk.pread(chance.choice(descriptors), chance.randrange(1, 30), chance.randrange(20)),
        lambda: disk.pwritev(
            chance.choice(descriptors), (chance.randbytes(chance.randrange(9)), b"x"), chance.randrange(20)
        ),
        lambda: disk.ftruncate(chance.choice(descriptors), chance.randrange(30)),
        lambda: disk.fdatasync(chance.choice(descriptors)),
        lambda: disk.close(descriptors.pop(chance.choice(range(len(descriptors))))),
        lambda: disk.unlink(path()),
        lambda: disk.mkdir(path()),
        lambda: disk.rmdir(path()),
        lambda: sorted(disk.list_directory(f"{root}/{chance.choice('xy')}")),
        lambda: disk.list_files(root),
        lambda: sorted(entry.name for entry in disk.entries(root) if entry.is_directory),
        lambda: (disk.exists(one := path()), disk.is_directory(one)),
        lambda: disk.is_directory(one := path()) or disk.size_bytes(one),
        lambda: [
            call(one) for one in [chance.choice(descriptors)] for call in (first_byte, disk.open_size_bytes)
        ],
    ]

    def rename() -> None:
        above = chance.choice(("", "/x"))
        disk.replace(f"{root}{above}/{chance.choice('abxyz')}", f"{root}{above}/{chance.choice('abxyz')}")

    return chance.choice([*calls, rename])()


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except OSError as error:
        return type(error), errno.errorcode[error.errno or 0]
    except IndexError:
        return "nothing is open"


@pytest.mark.parametrize("seed", range(20))
def test_does_what_the_system_does(tmp_path: Path, seed: int) -> None:
    root = str(tmp_path)
    simulated = SimulatedDisk()
    simulated.provide_directory(root)
    mine, theirs = random.Random(seed), random.Random(seed)
    descriptors: tuple[list[int], list[int]] = ([], [])
    process, system = simulated.process(), SystemDisk()
    for step in range(400):
        expected = outcome(lambda: random_call(theirs, system, root, descriptors[1]))
        got = outcome(lambda: random_call(mine, process, root, descriptors[0]))
        if (
            not isinstance(expected, int) or expected != 4096
        ):  # the size of a directory depends on the file system
            assert got == expected, (seed, step)
        assert len(descriptors[0]) == len(descriptors[1])
    real = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: simulated.content(path) for path in simulated.files(root)} == real
    for descriptor in descriptors[1]:
        os.close(descriptor)


class TestPowerCut:
    def test_keeps_what_was_synced(self) -> None:
        def make(disk: SimulatedDisk) -> None:
            process = disk.process()
            write(process, "/d/a", b"one", synced=True)
            sync_directory(process)

        assert states(make) == {(("/d/a", b"one"),)}

    def test_loses_names_and_bytes_apart(self) -> None:
        assert states(lambda disk: write(disk.process(), "/d/a", b"one")) == {
            (),
            (("/d/a", b""),),
            (("/d/a", b"\0\0\0"),),
            (("/d/a", b"one"),),
        }

    def test_keeps_any_of_several_writes(self) -> None:
        def make(disk: SimulatedDisk) -> None:
            process = disk.process()
            write(process, "/d/a", b"....", synced=True)
            sync_directory(process)
            write(process, "/d/a", b"A", 0)
            write(process, "/d/a", b"B", 2)

        assert {content for ((_, content),) in states(make)} == {b"....", b"A...", b"..B.", b"A.B."}

    def test_may_lose_the_content_and_keep_the_rename(self) -> None:
        def make(disk: SimulatedDisk) -> None:
            process = disk.process()
            write(process, "/d/a", b"old", synced=True)
            sync_directory(process)
            write(process, "/d/a.tmp", b"new")
            process.replace("/d/a.tmp", "/d/a")

        assert (("/d/a", b""),) in states(make)
        assert (("/d/a", b"old"),) in states(make)
        assert (("/d/a", b"old"), ("/d/a.tmp", b"new")) in states(make)
        assert all(dict(state).get("/d/a") is not None for state in states(make)), "a rename is atomic"

    def test_brings_back_what_was_deleted(self) -> None:
        def make(disk: SimulatedDisk) -> None:
            disk.put("/d/a", b"one")
            disk.put("/d/b", b"two")
            process = disk.process()
            process.unlink("/d/a")
            process.unlink("/d/b")

        one, two = ("/d/a", b"one"), ("/d/b", b"two")
        assert states(make) == {(), (one,), (two,), (one, two)}

    def test_tears_writes_between_sectors(self) -> None:
        seen = set()
        for seed in range(300):
            disk = new_disk()
            disk.put("/d/a", b"." * 3000)
            write(disk.process(), "/d/a", b"x" * 2000, 500)
            disk.power_cut(random.Random(seed))
            content = disk.content("/d/a")
            seen.add(content)
            assert len(content) == 3000
            for start, end in ((500, 512), (512, 1024), (1024, 1536), (1536, 2048), (2048, 2500)):
                assert len(set(content[start:end])) == 1, "a sector is whole"
        assert len(seen) > 20

    def test_by_seed(self) -> None:
        for seed, expected in ((0, {}), (1, {"/d/a": 3})):
            disk = new_disk()
            write(disk.process(), "/d/a", b"one")
            disk.power_cut_by_seed(seed)
            assert disk.files() == expected

    def test_leaves_nothing_to_a_dead_process(self) -> None:
        disk = new_disk()
        process = disk.process()
        storage = Storage(disk=process)
        file = DataFile("/d/a")
        storage.create(file)
        storage.lock("/d/.lock")
        disk.kill()
        for call in (
            lambda: storage.write(file, (b"x",), 0),
            lambda: storage.read(file, 1, 0),
            lambda: storage.fdatasync(file),
            lambda: storage.exists("/d"),
            lambda: storage.rename("/d/a", "/d/b"),
            lambda: storage.list_directory("/d"),
        ):
            with pytest.raises(PowerCut):
                call()
        storage.descriptors.release(file)
        Storage(disk=disk.process()).lock("/d/.lock")
        assert disk.content("/d/a") == b""


class TestKill:
    def test_keeps_the_page_cache(self) -> None:
        disk = new_disk()
        write(disk.process(), "/d/a", b"one")
        disk.kill()
        assert disk.content("/d/a") == b"one"
        disk.power_cut(None)
        assert disk.files() == {}


class TestFailedSync:
    def test_has_later_ones_lie(self) -> None:
        disk = SimulatedDisk()
        disk.provide_directory("/d")
        process = disk.process()
        write(process, "/d/a", b"one", synced=True)
        sync_directory(process)
        descriptor = process.open("/d/a", os.O_RDWR)
        process.pwritev(descriptor, (b"two",), 3)
        disk.plan.fail_at = disk.plan.operations + 1
        with pytest.raises(OSError, match="Input/output"):
            process.fdatasync(descriptor)
        process.fdatasync(descriptor)
        assert process.pread(descriptor, 9, 0) == b"onetwo"
        process.drop_cached(descriptor, 0, 0)
        assert process.pread(descriptor, 9, 0) == b"one\0\0\0"
        process.pwritev(descriptor, (b"six",), 3)
        process.fdatasync(descriptor)
        disk.power_cut(None)
        assert disk.content("/d/a") == b"onesix"


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "number"), [("EIO", errno.EIO), ("ENOSPC", errno.ENOSPC), ("EMFILE", errno.EMFILE)]
    )
    def test_by_number(self, kind: str, number: int) -> None:
        disk = new_disk()
        disk.plan.fail_at, disk.plan.kind = 2, kind
        with pytest.raises(OSError, match=os.strerror(number)):
            write(disk.process(), "/d/a", b"one")
        assert disk.content("/d/a") == b""
        assert disk.faults == {kind: 1}
        assert list(disk.log) == ["create /d/a", "write /d/a"]

    def test_short_writes(self) -> None:
        disk = new_disk()
        disk.plan.fail_at, disk.plan.kind = 2, "short"
        with pytest.raises(OSError, match="only a part of the bytes"):
            Storage(disk=disk.process()).write_file("/d/a", b"1234")
        assert disk.content("/d/a") == b"12"

    def test_a_cut_ends_the_process(self) -> None:
        disk = new_disk()
        disk.plan.fail_at, disk.plan.kind = 2, "cut"
        process = disk.process()
        with pytest.raises(PowerCut):
            write(process, "/d/a", b"one")
        assert not process.is_alive
        with pytest.raises(PowerCut):
            process.exists("/d/a")

    def test_reads_are_numbered_apart(self) -> None:
        disk = new_disk()
        disk.put("/d/a", b"one")
        disk.plan.fail_read_at = 2
        storage = Storage(disk=disk.process())
        with pytest.raises(OSError, match="Input/output"):
            storage.read_file("/d/a")
        assert storage.read_file("/d/a") == b"one"
        assert disk.plan.operations == 0

    def test_by_chance(self) -> None:
        disk = new_disk()
        disk.plan.rates = FaultRates(write_eio=0.2, write_short=0.2, sync_eio=0.5, read_eio=0.1, name_eio=0.1)
        storage = Storage(disk=disk.process())
        durability = LocalDurability(storage)
        for number in range(300):
            outcome(lambda number=number: durability.replace(f"/d/{number}", b"1234"))
            outcome(lambda number=number: storage.read_file(f"/d/{number}"))
        assert disk.faults["EIO"] > 100
        assert disk.faults["short"] > 10
        disk.plan.heal()
        durability.replace("/d/last", b"1234")

    def test_a_full_disk(self) -> None:
        disk = new_disk(capacity_bytes=10)
        process = disk.process()
        descriptor = process.open("/d/a", CREATE)
        assert process.pwritev(descriptor, (b"12345678",), 0) == 8
        assert process.pwritev(descriptor, (b"12345678",), 8) == 2
        with pytest.raises(OSError, match="No space"):
            process.pwritev(descriptor, (b"1",), 10)
        assert process.pwritev(descriptor, (b"abc",), 0) == 3, (
            "an existing file must be changeable although the disk is full"
        )
        process.unlink("/d/a")
        assert disk.used_bytes == 10
        process.close(descriptor)
        assert disk.used_bytes == 0

    def test_descriptors_are_bounded(self) -> None:
        disk = new_disk(max_descriptors=1)
        disk.put("/d/a", b"")
        process = disk.process()
        descriptor = process.open("/d/a", os.O_RDONLY)
        with pytest.raises(OSError, match="Too many open files"):
            process.open("/d/a", os.O_RDONLY)
        process.close(descriptor)
        process.close(process.open("/d/a", os.O_RDONLY))

    def test_latency(self) -> None:
        waited: list[float] = []
        disk = new_disk(on_latency=waited.append)
        disk.plan.rates = FaultRates(latency=1.0, latency_s=2.0)
        write(disk.process(), "/d/a", b"one")
        assert len(waited) == 2
        assert all(0.0 <= seconds < 2.0 for seconds in waited)

    def test_a_bit_flips(self) -> None:
        disk = new_disk()
        disk.put("/d/a", b"\0\0")
        disk.flip_bit("/d/a", 9)
        assert disk.content("/d/a") == b"\0\2"
        disk.power_cut(None)
        assert disk.content("/d/a") == b"\0\2"


class TestLock:
    def test_is_one_process_s(self) -> None:
        disk = new_disk()
        first, second = Storage(disk=disk.process()), Storage(disk=disk.process())
        first.lock("/d/.lock")
        with pytest.raises(DirectoryLocked):
            second.lock("/d/.lock")
        first.unlock("/d/.lock")
        second.lock("/d/.lock")


def test_the_page_cache_can_be_asked() -> None:
    disk = new_disk(tells_cached=True)
    disk.put("/d/a", b"one")
    storage = Storage(disk=disk.process())
    file = DataFile("/d/a")
    storage.descriptors.pin(file)
    storage.waits = False
    assert storage.read(file, 9, 0) == b"one"
    disk.make_cold("/d/a")
    assert not storage.is_cached(file, 0, 3)


def test_a_copy_is_another_disk() -> None:
    disk = new_disk()
    process = disk.process()
    write(process, "/d/a", b"one", synced=True)
    twin = disk.copy()
    write(process, "/d/a", b"two")
    twin.power_cut_by_seed(1)
    assert twin.content("/d/a") == b"one"
    assert disk.content("/d/a") == b"two"
    twin = disk.copy()
    twin.power_cut_by_seed(0)
    assert twin.files() == {}
