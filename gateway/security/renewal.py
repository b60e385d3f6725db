"""The port of a listener with TLS for alterations of its settings: the altered stores are checked before the
change, and used after it.
"""

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
        """Use the stores that were checked last for new connections, if the listener has these settings now."""
