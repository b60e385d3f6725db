"""Times at which a coordinator has something to do, in ms."""

from __future__ import annotations

from typing import Final

NEVER: Final = 2**63 - 1
