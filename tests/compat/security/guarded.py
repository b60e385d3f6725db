"""A gateway with an authorizer, and users without rights who connect to it with client certificates."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.wire import Wire


class Guarded:
    """A gateway with an authorizer: a listener on which everybody is a super user, and one with certificates."""

    def __init__(self, gateway: GatewayProcess, secured: str, folder: Path, authority: Authority) -> None:
        self.admin = gateway.bootstrap
        self.bootstrap = secured
        self._folder = folder
        self._authority = authority
        self._numbers = itertools.count()
        self.authorities = authority.write(folder / "ca.pem")

    def user(self) -> User:
        """Return a user without any right."""
        name = f"user-{next(self._numbers)}"
        return User(self, name, self._authority.client(name).write_pem(self._folder / f"{name}.pem"))


class User:
    """A principal, with the settings that each library needs to connect as it."""

    def __init__(self, guarded: Guarded, name: str, shown: Path) -> None:
        self.topic = f"of-{name}"
        self._guarded = guarded
        self._name = name
        self._shown = shown
        with Wire(guarded.admin) as wire:
            wire.call(
                "create_topics",
                7,
                topics=[{"name": self.topic, "num_partitions": 1, "replication_factor": 1}],
                timeout=30_000,
            )

    def allow(
        self, *operations: Operation, kind: ResourceType = ResourceType.TOPIC, name: str | None = None
    ) -> None:
        entries = [
            {
                "resource_type": kind,
                "resource_name": name or self.topic,
                "resource_pattern_type": PatternType.LITERAL,
                "principal": f"User:{self._name}",
                "host": "*",
                "operation": operation,
                "permission_type": Permission.ALLOW,
            }
            for operation in operations
        ]
        with Wire(self._guarded.admin) as wire:
            answer = wire.call("create_acls", 3, creations=entries).fields
        assert not any(row["error_code"] for row in answer["results"])

    @property
    def python(self) -> dict[str, Any]:
        files = {
            "ssl_cafile": str(self._guarded.authorities),
            "ssl_certfile": str(self._shown),
            "ssl_keyfile": str(self._shown),
        }
        return {"bootstrap_servers": self._guarded.bootstrap, "security_protocol": "SSL", **files}

    @property
    def aio(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self._guarded.authorities)
        context.load_cert_chain(self._shown)
        return {
            "bootstrap_servers": self._guarded.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context,
        }

    @property
    def librdkafka(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._guarded.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self._guarded.authorities),
            "ssl.certificate.location": str(self._shown),
            "ssl.key.location": str(self._shown),
        }


@contextmanager
def guarded_gateway(folder: Path) -> Iterator[Guarded]:
    """Run a gateway that lets in nobody but super users, in a folder."""
    authority = Authority()
    port = free_port()
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SSL",
        "listener.name.secured.ssl.keystore.location": str(
            authority.listener().write_pem(folder / "own.pem")
        ),
        "listener.name.secured.ssl.truststore.location": str(authority.write(folder / "trusted.pem")),
        "listener.name.secured.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
    }
    also = [f"SECURED://127.0.0.1:{port}"]
    with GatewayProcess(folder / "data", settings=settings, also_listen=also) as gateway:
        yield Guarded(gateway, f"127.0.0.1:{port}", folder, authority)
