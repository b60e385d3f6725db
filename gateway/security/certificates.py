"""The certificates of listeners: the error of a store, a certificate's greatest age, the port to renew it."""

from __future__ import annotations

from typing import Final, Protocol

from seqgate.gateway.config import Config


class StoreError(Exception):
    """A store or its settings can't be used. The message says why and what to do, without secrets."""


WARNING_DAYS: Final = 14
"""The days before the expiry of a certificate in which the gateway warns of it."""
_DAY_MS: Final = 86_400_000


def age_warning(valid_until_ms: int, now_ms: int) -> str | None:
    """Return the warning about a certificate that has expired or expires soon; None for any other."""
    left_ms = valid_until_ms - now_ms
    if left_ms < 0:
        return "the certificate has expired, so clients refuse it"
    days = left_ms // _DAY_MS
    if days >= WARNING_DAYS:
        return None
    left = "less than a day" if not days else "1 day" if days == 1 else f"{days} days"
    return f"the certificate expires in {left}; replace it before, otherwise clients refuse it"


class RenewableListener(Protocol):
    """A listener whose key and trust store can be altered: the stores are checked before, and used after."""

    @property
    def valid_until_ms(self) -> int:
        """The time (ms) at which the certificate that new connections get expires."""

    async def check(self, proposed: Config) -> None:
        """Read the stores of the proposed settings in a thread. Raises StoreError when they can't be used."""

    def take_checked(self) -> None:
        """Use the stores checked last for new connections, if the listener has these settings now."""
