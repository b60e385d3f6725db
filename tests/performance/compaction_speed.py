"""Measures what compaction costs for each record: `python -m tests.performance.compaction_speed`.

Prints the CPU time of both passes over records of 100 bytes with keys of 16 bytes, with a compiled core and
with an interpreted one, in one process and without files: the best of several rounds.
"""

from __future__ import annotations

import random
import time
from typing import Any, Final
from unittest import mock

from seqgate.log.compaction.cleaner import KeptRecords
from seqgate.log.format import batch_validation
from seqgate.log.format.record_batch import BatchHeader, parse_header
from tests.support.batches import Batch, Record
from tests.support.core_modules import both_ways

ROUNDS: Final = 5
BATCHES: Final = 500
PER_BATCH: Final = 100
KEYS: Final = BATCHES * PER_BATCH // 3
"""So many keys that two of three records have a newer one."""
MAP_BYTES: Final = 16 << 20
LIMIT_BYTES: Final = 1 << 27


def batches() -> list[tuple[BatchHeader, memoryview]]:
    """Return the batches of a log, the same in every run."""
    chance = random.Random(5)
    found = []
    for number in range(BATCHES):
        records = tuple(
            Record(chance.randbytes(100), key=b"key-%012d" % chance.randrange(KEYS)) for _ in range(PER_BATCH)
        )
        batch = memoryview(Batch(records, base_offset=number * PER_BATCH).encode())
        found.append((parse_header(batch), batch))
    return found


def passes(log: list[tuple[BatchHeader, memoryview]], offset_map: Any) -> tuple[float, float]:
    """Return the seconds of the pass that maps keys, and of the pass that finds the records that stay."""
    begun_s = time.process_time()
    for header, batch in log:
        plain = batch_validation.plain_records(header, batch, LIMIT_BYTES)
        assert offset_map.put_all(batch_validation.stored_records(header, plain), 0)
    mapped_s = time.process_time()
    kept = KeptRecords(offset_map, {}, 0, 0, BATCHES * PER_BATCH)
    for header, batch in log:
        kept.of_batch(header, batch)
    assert 0 < kept.records_kept <= KEYS
    return mapped_s - begun_s, time.process_time() - mapped_s


def main() -> None:
    log = batches()
    walks, maps = both_ways("seqgate.log.format.record_walk"), both_ways("seqgate.log.compaction.offset_map")
    assert len(walks) == len(maps) == 2, "the core is not compiled: run `python hatch_build.py`"
    print("| core | map the keys | find what stays |")
    print("| --- | ---: | ---: |")
    for name, walk, map_of in zip(("interpreted", "compiled"), walks, maps, strict=True):
        with mock.patch.object(batch_validation, "sound_records", walk.sound_records):
            rounds = [passes(log, map_of.OffsetMap(MAP_BYTES)) for _ in range(ROUNDS)]
        shown = [f"{min(times) / BATCHES / PER_BATCH * 1e6:.2f} µs" for times in zip(*rounds, strict=True)]
        print(f"| {name} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
