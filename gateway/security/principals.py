"""Principals: the names under which clients act, such as `User:ANONYMOUS`. Source: Kafka's KafkaPrincipal."""

from __future__ import annotations

from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""


class LoginSettingsError(Exception):
    """A listener's settings can't log clients in. The message says why and what to do, without secrets."""


class Unidentified(Exception):
    """The client's certificate gives no principal, so its connection closes. The message is the reason."""


def user(name: str) -> str:
    return f"User:{name}"
