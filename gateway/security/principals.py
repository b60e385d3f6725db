"""Principals: the names under which clients act, such as `User:ANONYMOUS`; and what else identifies a client.
Source: Kafka's KafkaPrincipal, ClientInformation.
"""

from __future__ import annotations

from typing import Final

import msgspec

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""


class LoginSettingsError(Exception):
    """A listener's settings can't log clients in. The message says why and what to do, without secrets."""


class Unidentified(Exception):
    """The client's certificate gives no principal, so its connection closes. The message is the reason."""


def user(name: str) -> str:
    return f"User:{name}"


LONGEST_TEXT: Final = 80
"""Characters of a client id, principal or library that are kept. A client id may have 32 KiB, and a client
sends a new one with each batch.
"""


class ClientIdentity(msgspec.Struct, frozen=True):
    """A client as its connection knows it; `library` is the name and version that it gave in ApiVersions
    (KIP-511), None for a client that gave none.
    """

    client_id: str
    address: str
    principal: str
    library: str | None

    def __str__(self) -> str:
        """Return the client for people: `checkout-service (10.0.0.7, librdkafka 2.11.0, User:ann)`."""
        principal = None if self.principal == ANONYMOUS else self.principal
        details = ", ".join(filter(None, (self.address, self.library, principal)))
        return f"{self.client_id or 'a client'} ({details})"

    def to_json(self) -> str:
        """Return the client as an answer carries it in a tagged field (`CLIENT_TAG`)."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes | None) -> ClientIdentity | None:
        """Return the client that an answer carries; None without one, or where the text is something else."""
        try:
            return None if text is None else msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return None
