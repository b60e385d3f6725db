"""The secured demo: the settings of the gateway, the rights of the users, and the attempts of an intruder."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import secrets
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from examples.demo.proxy import ProxyTls

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
    """The certificates, users and entries of one run, in the files of one folder. Every run draws new
    passwords.
    """

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


# Makes the certificates of the demo on the spot: an authority, and a key with a certificate for the loopback
# address.

_DAY = dt.timedelta(days=1)
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""The use of an authority's key, which clients on Python 3.13 and later require."""


def write_certificates(trusted: Path, listener: Path) -> None:
    """Write the authority's certificate to `trusted`, and key and certificate of the listener to `listener`,
    as PEM.
    """
    authority_key, listener_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer, subject = _name("Seqgate demo authority"), _name("localhost")
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    authority = (
        _builder(issuer, issuer, authority_key, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(SIGNS_CERTIFICATES, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(issuer, subject, listener_key, authority_key)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    trusted.write_bytes(authority.public_bytes(Encoding.PEM))
    listener.touch(mode=0o600)
    key = listener_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    listener.write_bytes(key + certificate.public_bytes(Encoding.PEM))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    """Return a certificate to sign. It names both keys, because clients since Python 3.13 refuse one that
    does not.
    """
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )


# The login of one client of the demo, in the words of each client library.

PROTOCOL = "SASL_SSL"
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
LOGIN_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class Login(NamedTuple):
    """The name and password of a user, the mechanism, and the file with the authority that the client trusts."""

    user: str
    password: str
    mechanism: str
    trusted: str

    def write(self, path: Path) -> Path:
        """Write the login to a file that only its owner may read."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(self._asdict()))
        return path

    @classmethod
    def read(cls, path: Path) -> Login:
        """Return the login that `write` wrote."""
        return cls(**json.loads(path.read_text()))

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the settings of confluent-kafka."""
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.trusted,
        }

    def for_kafka_python(self) -> dict[str, Any]:
        """Return the arguments of kafka-python's clients."""
        return {**self._in_python(), "ssl_cafile": self.trusted}

    def for_aiokafka(self) -> dict[str, Any]:
        """Return the arguments of aiokafka's clients."""
        return {**self._in_python(), "ssl_context": ssl.create_default_context(cafile=self.trusted)}

    def _in_python(self) -> dict[str, Any]:
        return {
            "security_protocol": PROTOCOL,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def for_spark(self) -> dict[str, str]:
        """Return the options of Spark's source, which are those of Kafka's Java clients."""
        module = LOGIN_MODULES[self.mechanism]
        return {
            "kafka.security.protocol": PROTOCOL,
            "kafka.sasl.mechanism": self.mechanism,
            "kafka.sasl.jaas.config": f'{module} required username="{self.user}" password="{self.password}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self.trusted,
        }
