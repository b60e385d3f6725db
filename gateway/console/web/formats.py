"""Numbers, sizes and times as templates show them."""

from __future__ import annotations

import datetime as dt
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from gateway.admin.printing import duration, shown

UNKNOWN: Final = "–"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_TEN: Final = 10


def count(value: float | None) -> str:
    """Return a number with thousands separators; a dash for an unknown one."""
    return UNKNOWN if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Return bytes in the unit that gives at most four digits; a dash for an unknown size."""
    if value is None or value < 0:
        return UNKNOWN
    amount, unit = float(value), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    number = f"{amount:.0f}" if unit == 0 or amount >= _TEN else f"{amount:.1f}"
    return f"{number} {_UNITS[unit]}"


def moment(time_ms: int | None) -> Markup | str:
    """Return a time as an element that the browser shows in its own time zone; a dash for an unknown time."""
    if time_ms is None or time_ms < 0:
        return UNKNOWN
    try:
        exact = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    written = exact.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return Markup('<time datetime="{}">{} UTC</time>').format(
        exact.isoformat(timespec="milliseconds").replace("+00:00", "Z"), written
    )


def span(length_ms: int | None) -> str:
    """Return a length of time in its largest two units; a dash for an unknown length."""
    return UNKNOWN if length_ms is None else duration(length_ms)


def segment(text: str) -> str:
    """Return a text as one part of a path."""
    return quote(text, safe="")


FILTERS: Final = {
    "count": count,
    "size": size,
    "moment": moment,
    "span": span,
    "segment": segment,
    "shown": shown,
}
