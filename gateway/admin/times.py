"""Parses lengths of time and times that a person writes. Raises ValueError with a sentence."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(rf"(\d+)\s*({'|'.join(_UNITS_MS)})", re.ASCII)

_MOST_DIGITS: Final = 18
"""Digits of the longest number of milliseconds, which a request carries in 8 bytes."""


def duration_ms(text: str) -> int:
    """Return the milliseconds of `500ms`, `30s`, `5m`, `2h` or `1d`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or len(match[1]) > _MOST_DIGITS - len(str(_UNITS_MS["d"])):
        raise ValueError(f"{text!r} is not a length of time; write 500ms, 30s, 5m, 2h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]


def timestamp_ms(text: str, zone: dt.tzinfo | None = None) -> int:
    """Parse milliseconds since the Unix epoch, or ISO 8601, in `zone` unless the text names one.
    Without `zone` that is local time.

    A time before 1970 becomes 0, because ListOffsets gives negative numbers a meaning: -1 is the log end.
    """
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        moment = moment.astimezone()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a valid time; write 2026-01-31T13:45:00, with Z or +02:00 for another time "
            "zone, or milliseconds"
        ) from None
    return max(0, int(moment.timestamp() * 1000))


def time_or_age_ms(text: str, now_ms: int) -> int:
    """Parse a time, or a length of time before now, such as `10m`."""
    if _DURATION.fullmatch(text.strip()):
        return max(0, now_ms - duration_ms(text))
    try:
        return timestamp_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}, or how long ago: 10m, 2h, 1d") from None
