"""A data directory is shared out among workers, and is whole again afterwards: whatever a worker or a crash
has left.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from seqgate.log import (
    DirectoryShare,
    IncompatibleFormat,
    LocalDurability,
    LogDirectory,
    Storage,
    StorageFailed,
)
from seqgate.log.directory.stored_logs import CLEAN_SHUTDOWN, RECOVERY_POINTS, stopped_logs
from seqgate.log.files.checkpoints import (
    CLEANER_OFFSETS,
    decode_offsets,
    encode_offsets,
    read_cleaned_offsets,
    write_cleaned_offsets,
)
from seqgate.log.files.disk import SystemDisk
from seqgate.log.files.sparse_disk import DIRECTORY_VERSION, META, WORKERS_VERSION, read_properties
from seqgate.log.segments.damage import DAMAGED_BATCHES, DamagedRange, DamageRegister
from seqgate.log.sharing import WORKERS, hand_on, hold, is_shared, merge, release, split
from tests.log.support import NOW_MS, SMALL, fill

TOPIC_ID = uuid.UUID(int=5)
OWNERS = {0: "1", 1: "2", 2: "1", 3: "2"}
DAMAGE = DamagedRange(0, 10, 20, 3, 5, is_framed=True, reason="its CRC is wrong")


def owner_of(topic: str, partition: int) -> str | None:
    return OWNERS.get(partition) if topic == "t" else None


def opened(root: Path, share: DirectoryShare | None = None) -> LogDirectory:
    return LogDirectory.open(root, Storage(), node_id=1, now_ms=lambda: NOW_MS, config=SMALL, share=share)


def worker(root: Path, name: str) -> LogDirectory:
    share = DirectoryShare(
        root / WORKERS / name, lambda topic, index: owner_of(topic, index) == name, takes_leftovers=False
    )
    return opened(root, share)


def written(root: Path) -> None:
    directory = opened(root)
    for partition in OWNERS:
        fill(directory.create("t", TOPIC_ID, partition, SMALL), 10 + partition)
    directory.close()


def shared_out(root: Path, storage: Storage | None = None) -> None:
    storage = storage or Storage()
    split(storage, LocalDurability(storage), str(root), ["1", "2"], owner_of)


def made_whole(root: Path, storage: Storage | None = None) -> None:
    storage = storage or Storage()
    merge(storage, LocalDurability(storage), str(root), owner_of)


def points(files: Path) -> Mapping[tuple[str, int], int]:
    return decode_offsets((files / RECOVERY_POINTS).read_bytes(), "points")


def version(root: Path) -> int:
    return int(read_properties(Storage(), str(root / META))["version"])


def test_each_worker_has_its_partitions(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    assert is_shared(Storage(), str(tmp_path))
    assert version(tmp_path) == WORKERS_VERSION
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    first, second = worker(tmp_path, "1"), worker(tmp_path, "2")
    assert set(first.stored()) == {("t", 0), ("t", 2)}
    assert set(second.stored()) == {("t", 1), ("t", 3)}
    assert first.was_clean
    assert second.was_clean
    log = second.get("t", 3)
    assert log is not None
    assert log.log_end_offset == 13
    assert second.create("u", TOPIC_ID, 0, SMALL).log_end_offset == 0
    first.close()
    second.close()


def test_a_clean_stop_of_all_is_a_clean_stop(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    for name in ("1", "2"):
        directory = worker(tmp_path, name)
        fill(directory.get("t", int(name) - 1) or pytest.fail("no log"), 5)
        directory.close()
    made_whole(tmp_path)
    assert not is_shared(Storage(), str(tmp_path))
    assert version(tmp_path) == DIRECTORY_VERSION
    whole = opened(tmp_path)
    assert whole.was_clean
    assert [(whole.get("t", index) or pytest.fail("no log")).log_end_offset for index in OWNERS] == [
        15,
        16,
        12,
        13,
    ]
    whole.close()


def test_the_death_of_one_is_no_clean_stop(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    first, second = worker(tmp_path, "1"), worker(tmp_path, "2")
    first.close()
    second.close(clean=False)
    made_whole(tmp_path)
    whole = opened(tmp_path)
    assert not whole.was_clean
    assert {key for key, log in whole.stored().items() if log.stop is not None} == {("t", i) for i in OWNERS}
    whole.close()


def test_the_owner_is_right_about_a_partition(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    files = tmp_path / WORKERS
    # worker 1 had an earlier topic of this name; nobody has the topic `gone` any more
    (files / "1" / RECOVERY_POINTS).write_bytes(encode_offsets({("t", 0): 10, ("t", 1): 999, ("gone", 0): 7}))
    (files / "2" / RECOVERY_POINTS).write_bytes(encode_offsets({("t", 1): 4, ("gone", 0): 3}))
    made_whole(tmp_path)
    assert points(tmp_path) == {("t", 0): 10, ("t", 1): 4, ("gone", 0): 3}


def test_damage_and_compaction_are_shared_out_and_joined(tmp_path: Path) -> None:
    written(tmp_path)
    storage = Storage()
    write_cleaned_offsets(storage, str(tmp_path), {("t", 0): 3, ("t", 1): 4})
    register = DamageRegister()
    register.load(storage, LocalDurability(storage), str(tmp_path))
    register.note(f"{tmp_path}/t-1", [DAMAGE], is_durable=True)
    shared_out(tmp_path)
    files = tmp_path / WORKERS
    assert read_cleaned_offsets(storage, str(files / "1")) == {("t", 0): 3}
    assert not (files / "1" / DAMAGED_BATCHES).exists()
    assert (files / "2" / DAMAGED_BATCHES).exists()
    directory = worker(tmp_path, "2")
    assert directory.environment.damage.of(f"{tmp_path}/t-1") == (DAMAGE,)
    directory.close()
    made_whole(tmp_path)
    assert read_cleaned_offsets(storage, str(tmp_path)) == {("t", 0): 3, ("t", 1): 4}
    whole = opened(tmp_path)
    assert whole.environment.damage.of(f"{tmp_path}/t-1") == (DAMAGE,)
    whole.close()


@pytest.mark.parametrize("lost", [RECOVERY_POINTS, DAMAGED_BATCHES])
def test_what_one_worker_has_lost_is_lost(tmp_path: Path, lost: str) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    (tmp_path / WORKERS / "2" / lost).write_bytes(b"\x00garbage")
    made_whole(tmp_path)
    directory = opened(tmp_path)
    if lost == RECOVERY_POINTS:
        assert directory.environment.recovery_points_lost
        assert (tmp_path / CLEANER_OFFSETS).exists()
    else:
        assert len(list(directory.logs())) == len(OWNERS)  # each was checked
    directory.close()


def test_a_shared_directory_is_refused_as_a_whole(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    with pytest.raises(IncompatibleFormat, match="several workers had"):
        opened(tmp_path)


def test_the_lock_is_held(tmp_path: Path) -> None:
    storage = Storage()
    hold(storage, LocalDurability(storage), str(tmp_path), 1)
    with pytest.raises(Exception, match="in use by another process"):
        opened(tmp_path)
    release(storage, str(tmp_path))
    opened(tmp_path).close()


class DyingDisk(SystemDisk):
    """A disk whose process dies before its n-th change of a name or a file."""

    left = 10**9

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise SystemExit

    def pwritev(self, *arguments: Any) -> int:
        self._count()
        return super().pwritev(*arguments)

    def replace(self, *arguments: Any) -> None:
        self._count()
        super().replace(*arguments)

    def unlink(self, *arguments: Any) -> None:
        self._count()
        super().unlink(*arguments)

    def mkdir(self, *arguments: Any) -> None:
        self._count()
        super().mkdir(*arguments)

    def rmdir(self, *arguments: Any) -> None:
        self._count()
        super().rmdir(*arguments)


def dies_in(work: Callable[[Path, Storage], None], root: Path, steps: int) -> bool:
    """Return whether the work dies before its n-th change."""
    disk = DyingDisk()
    disk.left = steps
    try:
        work(root, Storage(disk=disk))
    except SystemExit:
        return True
    return False


@pytest.mark.parametrize("work", [shared_out, made_whole], ids=["split", "merge"])
def test_a_death_at_any_step_loses_no_fact(tmp_path: Path, work: Callable[[Path, Storage], None]) -> None:
    steps = 0
    written(tmp_path / "sound")
    while True:
        root = tmp_path / str(steps)
        shutil.copytree(tmp_path / "sound", root)
        expected = points(root)
        if work is made_whole:
            shared_out(root)
        died = dies_in(work, root, steps)
        if is_shared(Storage(), str(root)):
            made_whole(root)
        assert points(root) == expected
        logs, is_clean = stopped_logs(Storage(), str(root))
        assert is_clean
        assert {name: stored.recovery_point for name, stored in logs.items()} == {
            f"t-{index}": 10 + index for index in OWNERS
        }
        directory = opened(root)
        assert directory.was_clean
        assert version(root) == DIRECTORY_VERSION
        directory.close()
        shared_out(root)  # what the death has left is in nobody's way
        made_whole(root)
        if not died:
            return
        steps += 1


def test_the_facts_about_a_partition_are_handed_on(tmp_path: Path) -> None:
    written(tmp_path)
    storage = Storage()
    write_cleaned_offsets(storage, str(tmp_path), {("t", 0): 3, ("t", 1): 4})
    register = DamageRegister()
    register.load(storage, LocalDurability(storage), str(tmp_path))
    register.note(f"{tmp_path}/t-1", [DAMAGE], is_durable=True)
    shared_out(tmp_path)
    one, two = (str(tmp_path / WORKERS / name) for name in ("1", "2"))
    hand_on(storage, LocalDurability(storage), str(tmp_path), [("t", 1)], two, one)
    share = DirectoryShare(
        Path(one), lambda topic, index: topic == "t" and index in {0, 1, 2}, takes_leftovers=False
    )
    directory = opened(tmp_path, share)
    assert directory.was_clean
    assert directory.environment.damage.of(f"{tmp_path}/t-1") == (DAMAGE,)
    assert {key: stored.recovery_point for key, stored in directory.stored().items()} == {
        ("t", index): 10 + index for index in range(3)
    }
    assert read_cleaned_offsets(storage, one) == {("t", 0): 3, ("t", 1): 4}
    directory.close()
    # and back: what the first owner still knows of its time is replaced
    fewer = DamageRegister()
    fewer.load(storage, LocalDurability(storage), str(tmp_path), one)
    fewer.note(f"{tmp_path}/t-1", [], is_durable=True)
    hand_on(storage, LocalDurability(storage), str(tmp_path), [("t", 1)], one, two)
    again = worker(tmp_path, "2")
    assert again.environment.damage.of(f"{tmp_path}/t-1") == ()
    assert again.was_clean
    again.close()


def test_the_log_of_a_worker_that_did_not_stop_cleanly_is_checked_by_the_next_one(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    storage = Storage()
    directory = worker(tmp_path, "2")
    fill(directory.get("t", 1), 5)  # type: ignore[arg-type]
    directory.close(clean=False)
    one, two = (str(tmp_path / WORKERS / name) for name in ("1", "2"))
    hand_on(storage, LocalDurability(storage), str(tmp_path), [("t", 1)], two, one)
    share = DirectoryShare(
        Path(one), lambda topic, index: topic == "t" and index in {0, 1, 2}, takes_leftovers=False
    )
    directory = opened(tmp_path, share)
    log = directory.get("t", 1)
    assert log is not None
    assert log.log_end_offset == 16
    directory.close()


def test_lost_facts_are_not_handed_on(tmp_path: Path) -> None:
    written(tmp_path)
    shared_out(tmp_path)
    storage = Storage()
    one, two = (str(tmp_path / WORKERS / name) for name in ("1", "2"))
    before = (tmp_path / WORKERS / "1" / RECOVERY_POINTS).read_bytes()
    (tmp_path / WORKERS / "2" / RECOVERY_POINTS).write_bytes(b"0\n9\n")
    with pytest.raises(StorageFailed, match="lacks facts about its partitions"):
        hand_on(storage, LocalDurability(storage), str(tmp_path), [("t", 1)], two, one)
    assert (tmp_path / WORKERS / "1" / RECOVERY_POINTS).read_bytes() == before


def test_a_death_while_facts_are_handed_on_loses_none(tmp_path: Path) -> None:
    written(tmp_path / "sound")
    storage = Storage()
    register = DamageRegister()
    register.load(storage, LocalDurability(storage), str(tmp_path / "sound"))
    register.note(f"{tmp_path}/sound/t-0", [DAMAGE], is_durable=True)
    steps, died = 0, True
    while died:
        root = tmp_path / str(steps)
        shutil.copytree(tmp_path / "sound", root)
        expected = points(root)
        shared_out(root)

        def handed(root: Path, storage: Storage) -> None:
            one, two = (str(root / WORKERS / name) for name in ("1", "2"))
            hand_on(storage, LocalDurability(storage), str(root), [("t", 1), ("t", 3)], two, one)
            hand_on(storage, LocalDurability(storage), str(root), [("t", 0)], one, two)

        died = dies_in(handed, root, steps)
        made_whole(root)
        assert points(root) == expected
        logs, is_clean = stopped_logs(Storage(), str(root))
        assert is_clean
        assert set(logs) == {f"t-{index}" for index in OWNERS}
        found = DamageRegister()
        found.load(storage, LocalDurability(storage), str(root))
        assert found.all() == {f"{root}/t-0": (DAMAGE,)}
        steps += 1
    assert steps > 5
