"""Changes that break formats of all kinds: extreme numbers, wrong lengths, missing and repeated pieces."""

from __future__ import annotations

import random
import struct

EXTREMES = (-(2**63), -(2**31), -(2**15), -2, -1, 0, 1, 2, 127, 128, 2**15 - 1, 2**31 - 1, 2**31, 2**63 - 1)
_SIZES = {1: "B", 2: ">H", 4: ">I", 8: ">Q"}


def extreme(chance: random.Random, bits: int) -> int:
    """Return a signed number of `bits` bits at or near a limit of arithmetic."""
    fitting = [value for value in EXTREMES if -(1 << bits - 1) <= value < 1 << bits - 1]
    value = chance.choice([*fitting, chance.getrandbits(bits) - (1 << bits - 1)]) + chance.choice(
        (0, 0, 0, 1, -1)
    )
    return max(-(1 << bits - 1), min(value, (1 << bits - 1) - 1))


def changed(data: bytes, chance: random.Random, times: int = 3) -> bytes:
    """Return the bytes with a few random changes."""
    for _ in range(chance.randint(1, times)):
        data = _changed_once(data, chance)
    return data


def _changed_once(data: bytes, chance: random.Random) -> bytes:
    position = chance.randrange(len(data) + 1)
    end = min(len(data), position + chance.choice((1, 2, 4, 8, 16, 64)))
    match chance.randrange(7):
        case 0:
            size = chance.choice((1, 2, 4, 8))
            number = struct.pack(_SIZES[size], extreme(chance, 8 * size) & (1 << 8 * size) - 1)
            return data[:position] + number + data[position + size :]
        case 1:
            return data[:position] + data[end:]
        case 2:
            return data[:end] + data[position:]
        case 3:
            return data[:position]
        case 4:
            return data[:position] + chance.randbytes(end - position) + data[end:]
        case 5:
            return data[:position] + chance.randbytes(chance.randint(1, 8)) + data[position:]
        case _:
            bits = bytearray(data)
            if bits:
                bits[chance.randrange(len(bits))] ^= 1 << chance.randrange(8)
            return bytes(bits)
