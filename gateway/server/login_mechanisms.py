"""The mechanisms with which the clients of a listener log in, by their names: one function makes each
mechanism. The function imports its mechanism only when a listener has it, so that other gateways start
without cryptography.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.config.jaas import parse_jaas
from gateway.config.logins import enabled_mechanisms
from gateway.config.sasl import JAAS, USERS_FILE
from gateway.config.setting import SettingValue
from gateway.runtime.services import Services
from gateway.security.errors import LoginSettingsError
from gateway.security.sasl.exchange import Mechanism


@dataclass(frozen=True, slots=True)
class Wanted:
    """One mechanism that a listener enables, and the services that it may need."""

    listener_name: str
    name: str
    services: Services

    def value(self, setting: str) -> SettingValue | None:
        """Return the value of a setting for this mechanism of the listener; None when the setting is unset."""
        return self.services.node.config.of_mechanism(self.listener_name, self.name, setting)


def _plain(wanted: Wanted) -> Mechanism:
    from gateway.security.sasl.users_file import (  # noqa: PLC0415
        FixedUsers,
        Plain,
        UsersFile,  # noqa: PLC0415
    )

    file = wanted.value(USERS_FILE)
    if file:
        return Plain(UsersFile(str(file)))
    users = parse_jaas(str(wanted.value(JAAS))).users
    if not users:
        raise LoginSettingsError(f'{JAAS} of PLAIN names no user; add user_NAME="PASSWORD"')
    return Plain(FixedUsers(users))


def _scram(wanted: Wanted) -> Mechanism:
    from gateway.security.sasl.scram import Scram  # noqa: PLC0415
    from gateway.security.sasl.scram_credential import ScramHash  # noqa: PLC0415

    (hashing,) = (each for each in ScramHash if each.mechanism == wanted.name)
    security = wanted.services.security
    find_credential = security.metadata_log.image.users.find
    return Scram(hashing, find_credential, security.tokens, lambda: secrets.token_urlsafe(24).encode())


def _oauthbearer(wanted: Wanted) -> Mechanism:
    from gateway.security.sasl.oauthbearer import oauthbearer  # noqa: PLC0415

    node = wanted.services.node
    return oauthbearer(wanted.value, node.loop, node.clock.now_ms)


MAKERS: Final[Mapping[str, Callable[[Wanted], Mechanism]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
}
"""The functions that make the mechanisms for a listener, by the mechanisms' names. Each raises LoginSettingsError."""


def login_mechanisms(services: Services, listener_name: str) -> dict[str, Mechanism]:
    """Return the mechanisms of a listener, by their names, in the order of the setting. Raises LoginSettingsError."""
    made: dict[str, Mechanism] = {}
    for name in enabled_mechanisms(services.node.config, listener_name):
        make = MAKERS.get(name)
        if make is None:
            raise LoginSettingsError(
                f"the mechanism {name} is not served yet; choose from {', '.join(MAKERS)}"
            )
        made[name] = make(Wanted(listener_name, name, services))
    return made
