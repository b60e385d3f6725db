"""Feeds fuzzed bytes to a compiled module of the core: `python -m tests.fuzzing.sanitized MODULE PATH SEED COUNT`.

`tests/test_core.py` compiles MODULE to PATH with sanitizers, which end the process at the
first byte that is read beyond the input. The answers must be those of the interpreted module.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from seqgate.log.compaction.offset_map import ENTRY_BYTES
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


def stored_records(chance: random.Random) -> Input:
    """Return an input of `sound_records`."""
    data = mutated(chance.choice(BATCHES), chance)
    count = chance.choice((int.from_bytes(data[57:61], "big") % 5000, 1, 256))
    return Input(data[HEADER_BYTES:], (0, count, -1, chance.choice((0, 2**62)), 2**31 - 1))


def keys(chance: random.Random) -> Input:
    """Return an input of `offsets_of_keys`: bytes that are the keys of an offset map, some more than once."""
    return Input(chance.randbytes(chance.randrange(60)), (chance.randint(2, 40), chance.randint(1, 2)))


def offsets_of_keys(module: Any) -> Callable[[memoryview, int, int], list[int]]:
    """Return a function that puts keys of some bytes each into an offset map, and returns their offsets."""

    def read(data: memoryview, slots: int, key_bytes: int) -> list[int]:
        offset_map = module.OffsetMap(slots * ENTRY_BYTES, load_factor=1.0)
        found = [bytes(data[at : at + key_bytes]) for at in range(0, len(data), key_bytes)]
        for offset, key in enumerate(found):
            offset_map.put(key, offset)
        offsets = [offset_map.get(key) for key in found]
        offset_map.close()
        return offsets

    return read


Reader = tuple[Callable[[Any], Callable[..., Any]], Callable[[random.Random], Input]]
READERS: dict[str, list[Reader]] = {
    "seqgate.log.format.record_walk": [
        (attrgetter("largest_timestamp"), records),
        (attrgetter("sound_records"), stored_records),
    ],
    "seqgate.gateway.protocol.produce_prefix": [(attrgetter("split_request"), produce_request)],
    "seqgate.log.compaction.offset_map": [(offsets_of_keys, keys)],
}
"""The functions of each module that read bytes, and their inputs."""


def at_the_end_of_a_block(data: bytes) -> memoryview:
    """Return the bytes in memory behind which nothing is. Behind those of Python's own types is a zero."""
    before = bytes(64)  # ctypes keeps smaller blocks inside of the object
    block = (ctypes.c_ubyte * (len(before) + len(data))).from_buffer_copy(before + data)
    return memoryview(block).cast("B")[len(before) :]


def main(module: str, path: str, seed: str, count: str) -> None:
    """Feed `count` inputs, chosen by `seed`. Raises AssertionError where the answers differ."""
    modules = compiled(module, path), interpreted(module)
    for function_of, make in READERS[module]:
        read, read_exactly = map(function_of, modules)
        compare(read, read_exactly, make, seed, int(count))


def compare(
    read: Callable[..., Any],
    read_exactly: Callable[..., Any],
    make: Callable[[random.Random], Input],
    seed: str,
    count: int,
) -> None:
    """Raises AssertionError where the answers of both functions differ."""
    chance, understood = random.Random(seed), 0
    for number in range(count):
        data, arguments = make(chance)
        found = read(at_the_end_of_a_block(data), *arguments)
        expected = read_exactly(memoryview(data), *arguments)
        assert found == expected, f"seed {seed}, input {number}: {data.hex()}"
        understood += found is not None and found != []
    assert understood > count // 100, "nearly all inputs are refused at once"


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("done")
