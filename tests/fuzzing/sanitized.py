"""Feeds fuzzed records to a compiled walk: `python -m tests.fuzzing.sanitized WALK SEED COUNT`.

`tests/test_core.py` compiles WALK with sanitizers, which end the process at the first byte
that is read beyond the records. The answers must be those of the interpreted walk.
"""

from __future__ import annotations

import ctypes
import random
import sys
from importlib.machinery import ExtensionFileLoader, SourceFileLoader

from seqgate.core import source_of
from seqgate.log.format.record_batch import HEADER_BYTES
from tests.fuzzing.record_batches import mutated, seeds
from tests.log.format.test_record_walk import FOREVER, Limits, loaded


def at_the_end_of_a_block(data: bytes) -> memoryview:
    """Return the bytes in memory behind which nothing is. Behind those of Python's own types is a zero."""
    before = bytes(64)  # ctypes keeps smaller blocks inside of the object
    block = (ctypes.c_ubyte * (len(before) + len(data))).from_buffer_copy(before + data)
    return memoryview(block).cast("B")[len(before) :]


def main(path: str, seed: str, count: str) -> None:
    """Feed `count` inputs, chosen by `seed`. Raises AssertionError where the answers differ."""
    compiled = loaded(ExtensionFileLoader("record_walk", path))
    interpreted = loaded(SourceFileLoader("record_walk", source_of("seqgate.log.format.record_walk")))
    chance, inputs = random.Random(seed), list(seeds())
    for number in range(int(count)):
        data = mutated(chance.choice(inputs), chance)
        plain = data[HEADER_BYTES:]
        record_count = chance.choice((1, 2, 3, 20, int.from_bytes(data[57:61], "big")))
        base_timestamp = int.from_bytes(data[27:35], "big", signed=True)
        limits = Limits(
            record_count,
            chance.choice((0, 3, 100_000)),
            chance.choice((0, 10)),
            chance.choice((0, base_timestamp)),
            base_timestamp >> 2,
            chance.choice((0, FOREVER)),
            chance.choice((0, FOREVER)),
            chance.random() < 0.5,
        )
        start = chance.choice((0, 0, chance.randint(0, len(plain))))
        end = chance.choice((len(plain), chance.randint(0, len(plain))))
        found = compiled(at_the_end_of_a_block(plain), start, end, *limits)
        expected = interpreted(memoryview(plain), start, end, *limits)
        assert found == expected, f"seed {seed}, input {number}: {data.hex()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("done")
