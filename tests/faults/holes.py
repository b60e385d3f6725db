"""The holes of a file on the simulated disk. Reading one is a mistake of the reader, so it fails the test."""

from __future__ import annotations


class Holes:
    """Ranges of bytes (start, end), ascending and apart from each other."""

    def __init__(self, ranges: tuple[tuple[int, int], ...] = ()) -> None:
        self.ranges = list(ranges)

    def punch(self, position: int, size_bytes: int) -> None:
        self.fill(position, size_bytes)
        self.ranges = sorted([*self.ranges, (position, position + size_bytes)])

    def fill(self, position: int, size_bytes: int) -> None:
        """Take these bytes out of the holes: they were written."""
        end = position + size_bytes
        left: list[tuple[int, int]] = []
        for first, last in self.ranges:
            left += [
                part for part in ((first, min(last, position)), (max(first, end), last)) if part[0] < part[1]
            ]
        self.ranges = left

    def cut(self, size_bytes: int) -> None:
        """End all holes where the file ends now."""
        self.ranges = [(first, min(last, size_bytes)) for first, last in self.ranges if first < size_bytes]

    def check_read(self, position: int, size_bytes: int, path: str) -> None:
        """Raise AssertionError if one of the bytes is in a hole."""
        for first, last in self.ranges:
            assert position >= last or position + size_bytes <= first, (
                f"bytes {position} to {position + size_bytes - 1} of {path} were read, "
                f"and bytes {first} to {last - 1} are a hole"
            )

    def copy(self) -> Holes:
        return Holes(tuple(self.ranges))
