"""The secured demo: the settings of the gateway, the rights of the users, and the attempts of an intruder."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from gateway.demo.certificates import write_certificates
from gateway.demo.login import LOGIN_MODULES, PLAIN, PROTOCOL, SCRAM, Login
from gateway.demo.proxy import ProxyTls

ADMIN, PRODUCERS, SPARK, INTRUDER = "admin", "producers", "spark", "mallory"
_LISTENER = "listener.name.sasl_ssl"
_ANSWER_TIMEOUT_S = 10.0
_ITERATIONS = 4096


class Attempt(NamedTuple):
    """An attempt of an intruder, and the answer of the gateway; `refused` is False when the intruder got in."""

    what: str
    answer: str
    refused: bool


class DemoSecurity:
    """The certificates, users and entries of one run, in the files of one folder. Every run draws new passwords."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trusted = folder / "authority.pem"
        self.listener = folder / "listener.pem"
        self.settings_path = folder / "settings.toml"
        write_certificates(self.trusted, self.listener)
        self._passwords = {user: secrets.token_urlsafe(18) for user in (ADMIN, PRODUCERS, SPARK, INTRUDER)}
        self.settings_path.touch(mode=0o600)
        self.settings_path.write_text(
            "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self._settings().items())
        )

    def login(self, user: str) -> Login:
        """Return the login of a user: the administrator's with PLAIN, all others with SCRAM."""
        mechanism = PLAIN if user == ADMIN else SCRAM
        return Login(user, self._passwords[user], mechanism, str(self.trusted))

    def _settings(self) -> dict[str, str]:
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
            f"{_LISTENER}.ssl.keystore.type": "PEM",
            f"{_LISTENER}.ssl.keystore.location": str(self.listener),
            f"{_LISTENER}.sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
            f"{_LISTENER}.{PLAIN.lower()}.sasl.jaas.config": (
                f'{LOGIN_MODULES[PLAIN]} required user_{ADMIN}="{self._passwords[ADMIN]}";'
            ),
            f"{_LISTENER}.{SCRAM.lower()}.sasl.jaas.config": f"{LOGIN_MODULES[SCRAM]} required;",
        }

    def proxy_tls(self) -> ProxyTls:
        """Return the TLS of a proxy that shows the certificate of the gateway to its clients."""
        for_clients = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        for_clients.load_cert_chain(self.listener)
        return ProxyTls(for_clients, ssl.create_default_context(cafile=self.trusted))

    def admit(self, bootstrap: str, topic: str) -> None:
        """Create the users, and let the producers write and Spark read the topic; the intruder gets no right."""
        from confluent_kafka import admin as exported

        api: Any = exported
        admin = api.AdminClient(client(bootstrap, self.login(ADMIN)))
        hashing = api.ScramCredentialInfo(api.ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
        users = [
            api.UserScramCredentialUpsertion(user, hashing, self._passwords[user].encode())
            for user in (PRODUCERS, SPARK, INTRUDER)
        ]
        for stored in admin.alter_user_scram_credentials(users).values():
            stored.result()
        rights = ((PRODUCERS, api.AclOperation.WRITE), (SPARK, api.AclOperation.READ))
        entries = [
            api.AclBinding(
                api.ResourceType.TOPIC,
                topic,
                api.ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                api.AclPermissionType.ALLOW,
            )
            for user, operation in rights
        ]
        for created in admin.create_acls(entries).values():
            created.result()

    def intrude(self, bootstrap: str, topic: str) -> list[Attempt]:
        """Try to get in without TLS, with a wrong password, and as a user without rights."""
        intruder = self.login(INTRUDER)
        return [
            _without_tls(bootstrap),
            _log_in("log in with a wrong password", bootstrap, intruder._replace(password="guessed")),  # noqa: S106 - wrong on purpose
            _find("find the topic without the right", bootstrap, intruder, topic),
            _write("write to the topic without the right", bootstrap, intruder, topic),
            _write("write with the login that may only read", bootstrap, self.login(SPARK), topic),
        ]


def client(bootstrap: str, login: Login | None, **more: Any) -> dict[str, Any]:
    """Return the settings of a client of confluent-kafka, with a login if there is one."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        **(login.for_librdkafka() if login else {}),
        **more,
    }


def _without_tls(bootstrap: str) -> Attempt:
    """Send ApiVersions without TLS."""
    host, _, port = bootstrap.rpartition(":")
    answer = b""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection((host, int(port)), _ANSWER_TIMEOUT_S) as connection,
    ):
        connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        answer = connection.recv(64)
    is_alert = answer[:1] == b"\x15"
    return Attempt(
        "speak without TLS",
        "connection closed" if is_alert or not answer else "answered",
        is_alert or not answer,
    )


def _log_in(what: str, bootstrap: str, login: Login) -> Attempt:
    from confluent_kafka import KafkaError, KafkaException, Producer

    errors: list[KafkaError] = []
    connecting = Producer(client(bootstrap, login, error_cb=errors.append))
    try:
        connecting.list_topics(timeout=_ANSWER_TIMEOUT_S / 2)
    except KafkaException:
        connecting.poll(0)
        refused = [error for error in errors if error.name() == "_AUTHENTICATION"]
        return Attempt(what, _words(refused[0]) if refused else "no answer", bool(refused))
    return Attempt(what, "logged in", refused=False)


def _find(what: str, bootstrap: str, login: Login, topic: str) -> Attempt:
    """Ask for the topic's partitions, which every consumer does first."""
    from confluent_kafka import Producer

    error = Producer(client(bootstrap, login)).list_topics(topic, _ANSWER_TIMEOUT_S).topics[topic].error
    if error is None:
        return Attempt(what, "the partitions", refused=False)
    return Attempt(what, _words(error), _is_authorization(error))


def _write(what: str, bootstrap: str, login: Login, topic: str) -> Attempt:
    from confluent_kafka import Producer

    errors: list[Any] = []
    producer = Producer(client(bootstrap, login, **{"message.timeout.ms": int(_ANSWER_TIMEOUT_S * 1000)}))
    producer.produce(topic, b"forged", on_delivery=lambda error, _: errors.append(error))
    producer.flush(_ANSWER_TIMEOUT_S)
    error = errors[0] if errors else None
    if error is None:
        return Attempt(what, "written" if errors else "no answer", refused=False)
    return Attempt(what, _words(error), _is_authorization(error))


def _is_authorization(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)


def _words(error: Any) -> str:
    return f"refused: {error.name().strip('_')}"


__all__ = ["ADMIN", "PRODUCERS", "PROTOCOL", "SPARK", "Attempt", "DemoSecurity", "client"]
