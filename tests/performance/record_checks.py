"""What the check of every record costs: `python -m tests.performance.record_checks`.

Prints the time in which a batch is checked with its header only, with a compiled core, and with an interpreted
one, each the best of several rounds in one process.
"""

from __future__ import annotations

import random
import timeit
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Final, NamedTuple

from seqgate.log.config import LogConfig
from seqgate.log.format import batch_validation
from seqgate.log.format.batch_validation import IF_QUICK
from seqgate.log.format.compression import CODEC_IDS, compress
from tests.log.format.test_record_walk import WALKS
from tests.support.batches import Batch, Record

ROUNDS: Final = 20
ROUND_S: Final = 0.02
NOW_MS: Final = 1_700_000_000_000
DEEP: Final = LogConfig(max_message_bytes=1 << 30)
BATCHES: Final[Sequence[tuple[str, int, int, str]]] = (
    ("1 record of 100 bytes", 1, 100, "none"),
    ("160 records of 100 bytes", 160, 100, "none"),
    ("10,000 records of 100 bytes", 10_000, 100, "none"),
    ("1 record of 100 bytes, lz4", 1, 100, "lz4"),
    ("1 record of 100 bytes, zstd", 1, 100, "zstd"),
    ("60 records of 1,000 bytes of words, lz4", 60, 1000, "lz4"),
    ("60 records of 1,000 bytes of words, zstd", 60, 1000, "zstd"),
)


class Row(NamedTuple):
    """The times (s) of one batch."""

    name: str
    records: int
    header_only_s: float
    compiled_s: float
    interpreted_s: float


def best_s(batch: memoryview, config: LogConfig) -> float:
    """Return the shortest time of one check."""

    def check() -> None:
        batch_validation.check_batch(batch, config, NOW_MS, is_client=True, record_check=IF_QUICK)

    count = max(1, int(ROUND_S / timeit.timeit(check, number=1)))
    return min(timeit.repeat(check, number=count, repeat=ROUNDS)) / count


def row(name: str, count: int, size_bytes: int, codec: str) -> Row:
    """Measure one batch. Raises AssertionError where the core is not compiled."""
    chance = random.Random(5)
    words = [bytes(chance.choices(ascii_lowercase.encode(), k=chance.randint(2, 9))) for _ in range(800)]
    text = b" ".join(chance.choices(words, k=count * size_bytes // 4))
    pieces = (text[number * size_bytes :][:size_bytes] for number in range(count))
    values = tuple(Record(piece, timestamp_delta=number) for number, piece in enumerate(pieces))
    plain = b"".join(record.encode(number) for number, record in enumerate(values))
    payload = compress(CODEC_IDS[codec], plain)
    sent = Batch(values, codec=codec, payload=payload, base_timestamp=NOW_MS)
    batch = memoryview(sent.encode())
    assert len(WALKS) == 2, "the core is not compiled: run `python hatch_build.py`"
    times = [best_s(batch, replace(DEEP, deep_validation=False))]
    used = batch_validation.largest_timestamp
    for walk in reversed(WALKS):
        batch_validation.largest_timestamp = walk  # type: ignore[assignment]
        times.append(best_s(batch, DEEP))
    batch_validation.largest_timestamp = used
    return Row(name, count, *times)


def main() -> None:
    print("| batch | header only | every record, compiled | every record, interpreted |")
    print("| --- | ---: | ---: | ---: |")
    for measured in (row(*batch) for batch in BATCHES):
        shown = [
            f"{spent * 1e6:,.1f} µs"
            for spent in (measured.header_only_s, measured.compiled_s, measured.interpreted_s)
        ]
        print(f"| {' | '.join((measured.name, *shown))} |")


if __name__ == "__main__":
    main()
