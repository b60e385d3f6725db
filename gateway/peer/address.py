"""The address of another gateway."""

from __future__ import annotations

from typing import NamedTuple


class PeerAddress(NamedTuple):
    """The address of another gateway's listener between brokers."""

    host: str
    port: int
