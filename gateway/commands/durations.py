"""Lengths of time as options give them."""

from __future__ import annotations

import re
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(rf"(\d+)\s*({'|'.join(_UNITS_MS)})", re.ASCII)


def duration_ms(text: str) -> int:
    """Milliseconds of `500ms`, `30s`, `5m`, `2h` or `1d`. Raises ValueError with a sentence."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text} is no length of time; write 500ms, 30s, 5m, 2h or 1d")
    return int(match[1]) * _UNITS_MS[match[2]]
