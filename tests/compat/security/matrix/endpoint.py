"""A gateway with an authorizer that takes certificates and all mechanisms of SASL over TLS, and accounts on
it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.tokens import Issuer, key_set
from tests.support.wire import Wire

TIMEOUT_S = 120.0
AUDIENCE = "seqgate"
ACCOUNTS = 100


class Way(StrEnum):
    """A way in which a client authenticates itself."""

    CERTIFICATE = "certificate"
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    DELEGATION_TOKEN = "delegation token"


SCRAM = {Way.SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256, Way.SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512}


@dataclass(frozen=True)
class Account:
    """A principal, and what a client needs to log in as it; without a certificate a client shows none."""

    endpoint: Endpoint
    way: Way
    principal: str
    login: str
    secret: str
    certificate: Path | None = None

    @property
    def bootstrap(self) -> str:
        return self.endpoint.mutual if self.way is Way.CERTIFICATE else self.endpoint.logins

    @property
    def mechanism(self) -> str:
        return Way.SCRAM_SHA_256.value if self.way is Way.DELEGATION_TOKEN else self.way.value

    @property
    def token(self) -> str:
        """The bearer token of an account that logs in with OAUTHBEARER."""
        return self.endpoint.bearer_token(self.login, self.secret)

    def mistaken(self) -> Account:
        """Return the account with a wrong password, with a token for another audience, or without
        certificate.
        """
        return replace(self, secret="wrong", certificate=None)

    def allow(self, kind: ResourceType, name: str, *operations: Operation) -> None:
        self.endpoint.allow(self.principal, kind, name, *operations)


class Endpoint:
    """The gateway, its listeners, and who signs certificates and tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mutual, self.logins = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._authority = Authority()
        self._issuer = Issuer("first", "RS256")
        self._numbers = itertools.count()
        self.authorities = self._authority.write(folder / "ca.pem")
        self.gateway = GatewayProcess(
            folder / "data",
            settings=self._settings(),
            also_listen=[f"MUTUAL://{self.mutual}", f"LOGINS://{self.logins}"],
        )

    def _settings(self) -> dict[str, str]:
        users, keys = self.folder / "users", self.folder / "keys.json"
        users.touch(0o600)
        users.write_text("".join(f"user-{number}:secret of {number}\n" for number in range(ACCOUNTS)))
        keys.write_bytes(key_set(self._issuer.jwk(alg="RS256", use="sig")))
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL,LOGINS:SASL_SSL",
            "ssl.keystore.location": str(self._authority.listener().write_pem(self.folder / "own.pem")),
            "listener.name.mutual.ssl.truststore.location": str(self.authorities),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.logins.plain.seqgate.sasl.plain.users.file": str(users),
            "listener.name.logins.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": "a secret of the gateway",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "auto.create.topics.enable": "false",
        }

    def account(self, way: Way) -> Account:
        """Return a new account without any right."""
        number = next(self._numbers)
        name, secret = f"user-{number}", f"secret of {number}"
        certificate = None
        if way is Way.CERTIFICATE:
            certificate = self._authority.client(name).write_pem(self.folder / f"{name}.pem")
        elif way in SCRAM:
            admin = AdminClient({"bootstrap.servers": self.gateway.bootstrap})
            credential = ScramCredentialInfo(SCRAM[way], 4096)
            upsertion = UserScramCredentialUpsertion(name, credential, secret.encode())
            admin.alter_user_scram_credentials([upsertion])[name].result(TIMEOUT_S)
        return Account(self, way, f"User:{name}", name, secret, certificate)

    def bearer_token(self, subject: str, secret: str) -> str:
        """Return a signed token, for another audience if the secret is wrong."""
        now_s = int(time.time())
        audience = "others" if secret == "wrong" else AUDIENCE
        return self._issuer.token(iss="idp", aud=audience, sub=subject, iat=now_s, exp=now_s + 3_600)

    def create_topic(self, name: str) -> None:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        with Wire(self.gateway.bootstrap) as wire:
            wire.call("create_topics", 7, topics=[topic], timeout=30_000)

    def store(self, topic: str, value: bytes) -> None:
        """Store a record in a topic, as an administrator."""
        producer = Producer({"bootstrap.servers": self.gateway.bootstrap})
        producer.produce(topic, value)
        assert producer.flush(TIMEOUT_S) == 0

    def allow(self, principal: str, kind: ResourceType, name: str, *operations: Operation) -> None:
        entry = {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": PatternType.LITERAL,
            "principal": principal,
            "host": "*",
            "permission_type": Permission.ALLOW,
        }
        with Wire(self.gateway.bootstrap) as wire:
            answer = wire.call(
                "create_acls", 3, creations=[{**entry, "operation": operation} for operation in operations]
            ).fields
        assert not any(row["error_code"] for row in answer["results"])


@contextmanager
def running_endpoint(folder: Path) -> Iterator[Endpoint]:
    """Run the gateway in a folder."""
    endpoint = Endpoint(folder)
    with endpoint.gateway:
        yield endpoint
