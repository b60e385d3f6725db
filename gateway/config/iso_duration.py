"""Durations in the notation of ISO 8601, in days and shorter units (java.time.Duration.parse)."""

from __future__ import annotations

import re
from typing import Final

_PATTERN: Final = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_MAX_MS: Final = 2**63 - 1


def parse_iso_duration(text: str) -> int:
    """Return the whole milliseconds of a duration such as `P1DT2H3M4.5S`, cut towards zero.

    Raises:
        ValueError: the text is malformed, or the duration does not fit into 64 bits.
    """
    found = _PATTERN.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{text!r} is not a duration such as P1DT2H3M4.5S")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    milliseconds = (
        int(days or 0) * 86_400_000
        + int(hours or 0) * 3_600_000
        + int(minutes or 0) * 60_000
        + int(seconds or 0) * 1000
    )
    if fraction:
        part = int(fraction.ljust(9, "0")) // 1_000_000
        milliseconds += -part if seconds.startswith("-") else part
    if abs(milliseconds) > _MAX_MS:
        raise ValueError(f"{text!r} is longer than {_MAX_MS} ms")
    return -milliseconds if sign == "-" else milliseconds
