"""Reads a node id from text: requests name a broker's configuration or quota resource by its node id."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT32: Final = range(-(2**31), 2**31)


def node_id_of(text: str) -> int | None:
    """Return the node id that a client wrote; None when the text is no 32-bit number."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number in _INT32 else None
