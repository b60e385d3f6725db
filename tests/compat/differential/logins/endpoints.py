"""Apache Kafka and Seqgate with every mechanism, delegation tokens and an authorizer, started alike.

Each has a PLAINTEXT listener where everybody is a super user; USERS, where a login never ends; and AGAIN,
where a client must log in again after `SESSION_MS`. A user of PLAIN has the password `password_of(user)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import AS_THE_PEER
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_peer import KafkaPeer

SESSION_MS = 3_000
SUPER_USER = "admin"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PLAIN_USERS = (SUPER_USER, "alice", "bob", *(f"measured-{number}" for number in range(32)))
LISTENERS = ("users", "again")
MODULES = "org.apache.kafka.common.security."


def password_of(user: str) -> str:
    """Return the password of a user of PLAIN."""
    return f"{user}-secret"


@dataclass(frozen=True)
class Endpoint:
    """The addresses of the listeners of Apache Kafka or of Seqgate."""

    admin: str
    users: str
    again: str


def _jaas() -> dict[str, str]:
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in PLAIN_USERS)
    lines = {
        "plain": f"{MODULES}plain.PlainLoginModule required {users};",
        "scram-sha-256": f"{MODULES}scram.ScramLoginModule required;",
        "scram-sha-512": f"{MODULES}scram.ScramLoginModule required;",
        "oauthbearer": f"{MODULES}oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="x";',
    }
    return {
        f"listener.name.{listener}.{mechanism}.sasl.jaas.config": line
        for listener in LISTENERS
        for mechanism, line in lines.items()
    }


SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ";".join(
        f"User:{user}" for user in ("ANONYMOUS", *PLAIN_USERS) if user not in {"alice", "bob"}
    ),
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "delegation.token.secret.key": "the key of both",
    "listener.name.again.connections.max.reauth.ms": str(SESSION_MS),
    **_jaas(),
}
PROTOCOLS = "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,AGAIN:SASL_PLAINTEXT"


def _listeners() -> tuple[list[str], list[str]]:
    """Return the addresses of USERS and AGAIN, and the same as listeners."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in LISTENERS]
    return addresses, [
        f"{name.upper()}://{address}" for name, address in zip(LISTENERS, addresses, strict=True)
    ]


@contextmanager
def kafka_with_logins(directory: Path) -> Iterator[Endpoint]:
    (users, again), listeners = _listeners()
    protocols = {"listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{PROTOCOLS}"}
    with KafkaPeer(directory, properties={**SETTINGS, **protocols}, also_listen=listeners) as peer:
        yield Endpoint(peer.bootstrap, users, again)


@contextmanager
def gateway_with_logins(directory: Path) -> Iterator[Endpoint]:
    (users, again), listeners = _listeners()
    own = {"listener.security.protocol.map": PROTOCOLS, "seqgate.allow.insecure.oauthbearer.tokens": "true"}
    with GatewayProcess(
        directory / "data", settings={**AS_THE_PEER, **SETTINGS, **own}, also_listen=listeners
    ) as process:
        yield Endpoint(process.bootstrap, users, again)
