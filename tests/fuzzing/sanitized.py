"""Feeds fuzzed bytes to a compiled module of the core: `python -m tests.fuzzing.sanitized MODULE PATH SEED COUNT`.

`tests/test_core.py` compiles MODULE to PATH with sanitizers, which end the process at the
first byte that is read beyond the input. The answers must be those of the interpreted module.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from typing import NamedTuple

from seqgate.log.format.record_batch import HEADER_BYTES
from tests.fuzzing.changes import changed
from tests.fuzzing.record_batches import mutated, seeds
from tests.gateway.handlers.records.test_produce_repeats import request
from tests.log.format.test_record_walk import FOREVER, Limits
from tests.support.core_modules import compiled, interpreted

BATCHES = list(seeds())
REQUESTS = [
    (version, size, request(version, name, (5, bytes(size))))
    for version in range(5, 14)
    for size in (0, 1, 126, 127, 16_382, 16_383)
    for name in ("t", "t" * 100, "t" * 200)
]
"""Produce requests for one partition: their versions, the sizes of their records, and their bytes."""


class Input(NamedTuple):
    """Bytes, and the further arguments of the function that reads them."""

    data: bytes
    arguments: tuple[int, ...]


def records(chance: random.Random) -> Input:
    """Return an input of `largest_timestamp`."""
    data = mutated(chance.choice(BATCHES), chance)
    plain = data[HEADER_BYTES:]
    base_timestamp = int.from_bytes(data[27:35], "big", signed=True)
    record_count = int.from_bytes(data[57:61], "big")
    if chance.random() < 0.5:  # the limits of a topic without rules, so that whole batches are walked, too
        return Input(plain, (0, len(plain), *Limits(record_count, base_timestamp=base_timestamp)))
    limits = Limits(
        chance.choice((1, 2, 3, 20, record_count)),
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
    return Input(plain, (start, end, *limits))


def produce_request(chance: random.Random) -> Input:
    """Return an input of `split_request`."""
    version, size, data = chance.choice(REQUESTS)
    if chance.random() < 0.9:  # the changes are near the prefix, because the records are not read
        head, content = data[8 : len(data) - size], data[len(data) - size :]
        data = data[:8] + changed(head, chance) + content[chance.choice((0, 0, 0, 1, 9)) :]
    return Input(data, (version, int.from_bytes(data[8:10], "big", signed=True)))


READERS: dict[str, tuple[str, Callable[[random.Random], Input]]] = {
    "seqgate.log.format.record_walk": ("largest_timestamp", records),
    "seqgate.gateway.protocol.produce_prefix": ("split_request", produce_request),
}
"""The function of each module that reads bytes, and its inputs."""


def at_the_end_of_a_block(data: bytes) -> memoryview:
    """Return the bytes in memory behind which nothing is. Behind those of Python's own types is a zero."""
    before = bytes(64)  # ctypes keeps smaller blocks inside of the object
    block = (ctypes.c_ubyte * (len(before) + len(data))).from_buffer_copy(before + data)
    return memoryview(block).cast("B")[len(before) :]


def main(module: str, path: str, seed: str, count: str) -> None:
    """Feed `count` inputs, chosen by `seed`. Raises AssertionError where the answers differ."""
    function, make = READERS[module]
    read = getattr(compiled(module, path), function)
    read_exactly = getattr(interpreted(module), function)
    chance, understood = random.Random(seed), 0
    for number in range(int(count)):
        data, arguments = make(chance)
        found = read(at_the_end_of_a_block(data), *arguments)
        expected = read_exactly(memoryview(data), *arguments)
        assert found == expected, f"seed {seed}, input {number}: {data.hex()}"
        understood += found is not None
    assert understood > int(count) // 100, "nearly all inputs are refused at once"


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("done")
