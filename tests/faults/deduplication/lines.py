"""A file of lines as an application reads it: each line's sequence and place, and where to continue. Pure.

`LineApplication.java` implements the same in Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple
from zlib import crc32

WORDS = 40
"""The number of words that may begin a line; the first word is the line's key."""
MOST_TEXT = 120
AGAIN = 0.02
"""The share of lines that repeat the text of an earlier line, so that only the sequence ids differ."""


class Line(NamedTuple):
    """`number` counts the lines, `position` is the byte of the file at which the line begins, `value` has no
    line end.
    """

    number: int
    position: int
    value: bytes

    @property
    def key(self) -> bytes:
        return self.value.partition(b" ")[0]

    def sequence(self, unit: str) -> int:
        return self.position if unit == "position" else self.number

    def partition(self, partitions: int) -> int:
        """Return the partition of the line, where the application chooses it."""
        return crc32(self.value) % partitions


def written_lines(rng: Random, count: int) -> bytes:
    """Return a file of `count` lines of very different lengths."""
    values: list[str] = []
    while len(values) < count:
        if values and rng.random() < AGAIN:
            values.append(rng.choice(values))
        else:
            text = "".join(rng.choices("abcdefgh ", k=rng.randint(0, MOST_TEXT)))
            values.append(f"word{rng.randrange(WORDS)} {len(values)} {text}")
    return "".join(f"{value}\n" for value in values).encode()


def lines_of(content: bytes) -> Iterator[Line]:
    position = 0
    for number, line in enumerate(content.splitlines(keepends=True)):
        yield Line(number, position, line.rstrip(b"\n"))
        position += len(line)


def first_unknown(
    lines: Sequence[Line], unit: str, partitions: int, persisted: Mapping[int, int], *, by_key: bool
) -> int:
    """Return the number of the first line that the gateway may lack; the number of lines if it has all.

    `persisted` is the gateway's answer: the last sequence id by partition, where there is one. An application
    that knows the partition of a line compares with this partition only, so that a partition without lines
    does not matter. An application whose library places lines by key must take the lowest of all partitions.
    """
    lowest = min((persisted.get(partition, -1) for partition in range(partitions)), default=-1)
    for line in lines:
        known = lowest if by_key else persisted.get(line.partition(partitions), -1)
        if line.sequence(unit) > known:
            return line.number
    return len(lines)
