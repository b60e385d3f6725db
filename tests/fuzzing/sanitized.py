"""Feeds fuzzed records to a compiled walk: `python -m tests.fuzzing.sanitized WALK SEED COUNT`.

`tests/test_core.py` compiles WALK with bounds checks and sanitizers, which end the process at the first byte
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
from tests.log.format.test_record_walk import loaded


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
        limits = (record_count, chance.choice((0, 3, 100_000)), chance.choice((0, 10)))
        found = compiled(at_the_end_of_a_block(plain), *limits)
        assert found == interpreted(plain, *limits), f"seed {seed}, input {number}: {data.hex()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("done")
