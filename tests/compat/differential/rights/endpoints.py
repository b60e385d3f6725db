"""Apache Kafka and Seqgate with an authorizer, started alike.

Each has a PLAINTEXT listener where everybody is a super user, an SSL listener where a certificate names the
user, and a SASL_PLAINTEXT listener where the super user logs in with PLAIN.
"""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import AS_THE_PEER
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_peer import KafkaPeer

SUPER_USER = "admin"
PASSWORD = "admin-secret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Certificates:
    """The certificates of the listeners and of users, in files of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = Authority()
        self._numbers = itertools.count(1)
        self.trusted = self._authority.write(directory / "authority.pem")
        self.listener = self._authority.listener().write_pem(directory / "listener.pem")

    def context(self, user: str) -> ssl.SSLContext:
        """Return the TLS context with which this user connects."""
        context = ssl.create_default_context(cafile=self.trusted)
        context.load_cert_chain(
            self._authority.client(user).write_pem(self._directory / f"{next(self._numbers)}.pem")
        )
        return context

    def settings(self) -> dict[str, str]:
        return {
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": str(self.listener),
            "listener.name.ssl.ssl.truststore.type": "PEM",
            "listener.name.ssl.ssl.truststore.location": str(self.trusted),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
        }


@dataclass(frozen=True)
class Endpoint:
    """The addresses of one side: of the listener of super users, of that with certificates, and of that with
    logins.
    """

    admin: str
    certified: str
    logins: str
    certificates: Certificates


AUTHORIZATION = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{SUPER_USER}",
}
LOGINS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required "
    f'user_{SUPER_USER}="{PASSWORD}";',
}


def _addresses() -> tuple[str, str]:
    return f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"


@contextmanager
def secured_kafka(directory: Path, certificates: Certificates) -> Iterator[Endpoint]:
    certified, logins = _addresses()
    with KafkaPeer(
        directory,
        properties={**AUTHORIZATION, **LOGINS, **certificates.settings()},
        also_listen=[f"SSL://{certified}", f"SASL_PLAINTEXT://{logins}"],
    ) as peer:
        yield Endpoint(peer.bootstrap, certified, logins, certificates)


@contextmanager
def secured_gateway(directory: Path, certificates: Certificates) -> Iterator[Endpoint]:
    certified, logins = _addresses()
    with GatewayProcess(
        directory / "data",
        settings={**AS_THE_PEER, **AUTHORIZATION, **LOGINS, **certificates.settings()},
        also_listen=[f"SSL://{certified}", f"SASL_PLAINTEXT://{logins}"],
    ) as process:
        yield Endpoint(process.bootstrap, certified, logins, certificates)
