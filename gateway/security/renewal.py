"""What alterations of settings need of a listener with TLS: its stores are checked before, and taken after the change."""

from __future__ import annotations

from typing import Protocol

from gateway.config import Config


class RenewableListener(Protocol):
    """A running listener whose key store and trust store can be altered."""

    @property
    def valid_until_ms(self) -> int:
        """The time (ms) at which the certificate that new connections get expires."""

    async def check(self, proposed: Config) -> None:
        """Read the stores of the proposed settings in a thread. Raises StoreError when the listener can't use them."""

    def take_checked(self) -> None:
        """Give new connections what was checked last, if the listener has these settings now."""
