"""The power fails before each operation of `seqgate repair`: sound batches stay at their offsets, the others
are damaged or given up.
"""

from __future__ import annotations

from seqgate.log import LogDirectory, Storage
from seqgate.log.directory.damage_scan import scan_directory
from seqgate.log.directory.identity import give_up
from seqgate.log.directory.stored_logs import LOCK
from seqgate.log.format.record_batch import whole_batches
from tests.faults.crash_images import images, left_by_power_cut
from tests.faults.directory_life import ROOT, new_disk, now_ms
from tests.faults.scenario import CONFIG, TOPIC, Life
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.support import read_log

SAMPLES = 4


def damaged_life() -> tuple[SimulatedDisk, dict[int, bytes], set[int]]:
    """Return a disk with several segments, two of them damaged; the sound batches; and the base offsets of
    the damaged batches.
    """
    life = Life(new_disk())
    life.open()
    for number in range(24):
        life.append(number % 3, 1 + number % 2)
    life.stop()
    sound: dict[int, bytes] = {}
    damaged = set()
    paths = sorted(path for path in life.disk.files(str(ROOT)) if path.endswith(".log") and TOPIC in path)
    for number, path in enumerate(paths):
        content = life.disk.content(path)
        for position, header in whole_batches(content):
            sound[header.base_offset] = content[position : position + header.size_bytes]
        if number in {0, len(paths) - 1}:
            position, header = list(whole_batches(content))[-1]
            life.disk.flip_bit(path, 8 * (position + (70 if number else 8)))
            damaged.add(header.base_offset)
    for base_offset in damaged:
        del sound[base_offset]
    return life.disk, sound, damaged


def repair(disk: SimulatedDisk) -> None:
    storage = Storage(disk=disk.process())
    LogDirectory.open(ROOT, storage, node_id=1, now_ms=now_ms, config=CONFIG).close()
    storage.lock(str(ROOT / LOCK))
    for partition in list(scan_directory(storage, str(ROOT))):
        give_up(storage, str(ROOT), partition, now_ms())
    storage.unlock(str(ROOT / LOCK))


def check(disk: SimulatedDisk, sound: dict[int, bytes], *, clean: bool) -> None:
    life = Life(disk)
    life.open()
    log = life.log
    assert log.log_end_offset == 36
    for offset, batch in sound.items():
        assert bytes(read_log(log, offset, 1, upper_bound=36)[: len(batch)]) == batch
    known = list(life.directory.known_damage() if life.directory else ())
    assert not clean or not known
    life.stop()


def test_without_a_crash() -> None:
    disk, sound, damaged = damaged_life()
    repair(disk)
    check(disk, sound, clean=True)
    assert not list(scan_directory(Storage(disk=disk.process()), str(ROOT)))
    life = Life(disk)
    life.open()
    for offset in damaged:
        found = read_log(life.log, offset, 1 << 20, upper_bound=36)
        assert all(header.base_offset > offset for _, header in whole_batches(found)), (
            "the damaged batch must be skipped"
        )


def test_power_cut_before_any_operation() -> None:
    disk, sound, _ = damaged_life()
    seen: set[object] = set()
    checked = 0
    for image in images(disk, lambda: repair(disk), lambda: None):
        for left in left_by_power_cut(image, SAMPLES, seen):
            try:
                check(left.disk, sound, clean=False)
                repair(left.disk)
                check(left.disk, sound, clean=True)
            except Exception as error:
                raise AssertionError(f"{left.described}: {error!r}") from error
            checked += 1
    assert checked > 15
