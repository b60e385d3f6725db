"""Damage to the files of a directory, as bytes that a fuzzer can change.

An input is a number that chooses the directory, followed by steps. A step has one byte for the file, one for
the kind of damage, two for a position (counted from the end of the file if bit 7 of the kind is set), one for
a length, and that many bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from crc32c import crc32c

from tests.fuzzing.changes import extreme

Files = Mapping[str, bytes]
"""File contents by path below the directory."""
_STEP = struct.Struct(">BBHB")
CUT, OVERWRITE, INSERT, REMOVE, DELETE, REPLACE, SEAL, COPY = range(8)
_FROM_THE_END = 0x80
SUFFIXES = (".swap", ".cleaned", ".deleted", ".tmp", "-delete", ".log", ".index", ".snapshot", "0")
MOST_STEPS = 8


@dataclass
class Damaged:
    """The files after the damage, and which files were damaged."""

    files: dict[str, bytes]
    touched: set[str] = field(default_factory=set)
    sealed: set[str] = field(default_factory=set)
    """The files whose checksums were recomputed after the damage."""


def damaged(files: Files, steps: bytes) -> Damaged:
    """Return the files after the steps."""
    names = sorted(files)
    result = Damaged(dict(files))
    position = 0
    for _ in range(MOST_STEPS):
        if len(steps) - position < _STEP.size:
            break
        number, what, at, size = _STEP.unpack_from(steps, position)
        position += _STEP.size
        argument = steps[position : position + size]
        position += size
        _take_step(result, names[number % len(names)], what, at, size, argument)
    return result


def _take_step(result: Damaged, name: str, what: int, at: int, size: int, argument: bytes) -> None:
    content = result.files.get(name)
    if content is None:
        return
    if what & 7 != COPY:
        result.touched.add(name)
    at = min(at, len(content))
    if what & _FROM_THE_END:
        at = len(content) - at
    match what & 7:
        case 0:
            result.files[name] = content[:at]
        case 1:
            result.files[name] = content[:at] + argument + content[at + len(argument) :]
        case 2:
            result.files[name] = content[:at] + argument + content[at:]
        case 3:
            result.files[name] = content[:at] + content[at + size :]
        case 4:
            del result.files[name]
        case 5:
            result.files[name] = argument
        case 6:
            result.files[name] = sealed(content)
            result.sealed.add(name)
        case 7:
            copy = name + SUFFIXES[size % len(SUFFIXES)]
            result.files[copy] = content
            result.touched.add(copy)


def sealed(content: bytes) -> bytes:
    """Return the bytes with a correct checksum at the end."""
    return content[:-4] + struct.pack(">I", crc32c(content[:-4]))


def steps_of(*steps: tuple[int, int, int, bytes]) -> bytes:
    """Encode an input without its first byte, from (file, what, position, bytes) for each step."""
    return b"".join(_STEP.pack(number, what, at, len(data)) + data for number, what, at, data in steps)


def mutated_steps(data: bytes, files: Files, chance: random.Random) -> bytes:
    """Return another input: one step is added, removed or changed."""
    names = sorted(files)
    steps = data[1:] if len(data) > 1 and chance.random() < 0.6 else b""
    number = chance.randrange(len(names))
    content = files[names[number]]
    what = chance.choice(
        (CUT, OVERWRITE, OVERWRITE, OVERWRITE, OVERWRITE, INSERT, REMOVE, DELETE, REPLACE, COPY)
    )
    at = chance.randint(0, min(len(content), 0xFFFF))
    if chance.random() < 0.3:
        what |= _FROM_THE_END
        at = chance.randint(0, min(len(content), 40))
    step = _step(number, what, at, content, chance)
    if chance.random() < 0.4 and names[number].endswith((".snapshot", "delayed-records")):
        step += _STEP.pack(number, SEAL, 0, 0)
    return data[:1] + (steps + step if chance.random() < 0.8 else step + steps)


def _step(number: int, what: int, at: int, content: bytes, chance: random.Random) -> bytes:
    bits = chance.choice((8, 16, 32, 64))
    argument = (extreme(chance, bits) & (1 << bits) - 1).to_bytes(bits // 8, "big")
    if chance.random() < 0.3 and at < len(content):
        argument = bytes([content[at] ^ 1 << chance.randrange(8)])
    elif chance.random() < 0.2:
        argument = chance.choice((b"", b"\n", b"9" * 30, b"-1", b" 0 ", b"\xff", b"\0" * 40, b"{}", b'"'))
    if what & 7 == REPLACE:
        argument = content[: chance.randint(0, 200)] + argument
    if what & 7 in {REMOVE, COPY}:
        argument = bytes(chance.randint(1, 40))
    return _STEP.pack(number, what, at, len(argument[:255])) + argument[:255]
