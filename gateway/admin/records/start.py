"""The place from which a command reads a partition. Pure; parsing raises ValueError with a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

BEGINNING: Final = "beginning"
END: Final = "end"
_NUMBER: Final = re.compile(r"-?\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Start:
    """The first record to read: at an offset, a number of records before the end, or at a time."""

    kind: Literal["offset", "last", "time"]
    value: int


FROM_THE_BEGINNING: Final = Start("offset", 0)


def parse_start(text: str) -> Start:
    """Parse `beginning`, `end`, an offset, or -N for the last N records of each partition."""
    if text == BEGINNING:
        return FROM_THE_BEGINNING
    if text == END:
        return Start("last", 0)
    if not _NUMBER.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a place to read from; write {BEGINNING}, {END}, an offset, or -N for the last N records"
        )
    number = int(text)
    return Start("offset", number) if number >= 0 else Start("last", -number)


def first_offset(start: Start, log_start: int, log_end: int, at_time: int | None) -> int:
    """Return the first offset to read; `at_time` is the offset of the first record at the time of `start`, None: no record is so late."""
    match start.kind:
        case "offset":
            wanted = start.value
        case "last":
            wanted = log_end - start.value
        case "time":
            wanted = log_end if at_time is None else at_time
    return min(max(wanted, log_start), log_end)
