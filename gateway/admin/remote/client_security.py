"""Reads the TLS and login settings with which a command connects to a cluster from Kafka's client properties
(`--command-config`).

No message of an error quotes a value that may be secret.

Reads files of Java properties, the format of Kafka's client configurations. Source:
java.util.Properties.load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seqgate.gateway.admin.request import ControlError

if TYPE_CHECKING:
    import ssl

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = ("PLAIN", *_SCRAM)
_MODULES: Final = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": _SCRAM}
"""The login modules of Kafka that take a user name and a password, and their mechanisms."""
_SUPPORTED: Final = frozenset(
    (
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.protocol",
    )
)
_SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The protocol, TLS files and login by which a command connects. `mechanism` is empty without a login.
    `repr` leaves out the password.
    """

    protocol: str = "PLAINTEXT"
    context: ssl.SSLContext | None = None
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def login_name(self) -> str:
        """The user name for kafka-python, which does not escape `=` and `,` for SCRAM."""
        if self.mechanism not in _SCRAM:
            return self.username
        return self.username.replace("=", "=3D").replace(",", "=2C")

    def client_settings(self) -> dict[str, Any]:
        """Return the settings of kafka-python's clients."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.context is not None:
            settings["ssl_context"] = self.context
        if self.mechanism:
            settings |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.login_name,
                "sasl_plain_password": self.password,
            }
        return settings


OPEN: Final = ClientSecurity()
"""A connection without TLS and login."""


def read_client_security(file: Path | None) -> ClientSecurity:
    """Return the settings in a file of client properties; OPEN without a file. Raises ControlError."""
    if file is None:
        return OPEN
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ControlError(f"--command-config {file} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ControlError(f"--command-config {file} can't be read: it is not UTF-8") from None
    try:
        return client_security(parse_properties(text))
    except ControlError as error:
        raise ControlError(f"--command-config {file}: {error}") from None


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Return a connection's settings among Kafka's client properties; ignore others. Raises ControlError."""
    given = {name.strip(): value.strip() for name, value in properties.items()}
    for name in given:
        if name.startswith(_SECURITY_PREFIXES) and name not in _SUPPORTED:
            raise ControlError(
                f"the property {name} has no effect on this command; remove it, or use Kafka's own tools"
            )
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ControlError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol}")
    context = _context(given) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return ClientSecurity(protocol, context)
    mechanism, username, password = _login(given)
    return ClientSecurity(protocol, context, mechanism, username, password)


def _login(given: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in _MECHANISMS:
        found = f", not {mechanism}" if mechanism else ""
        raise ControlError(f"sasl.mechanism must be one of {', '.join(_MECHANISMS)}{found}")
    jaas = given.get("sasl.jaas.config")
    if jaas is not None:
        return mechanism, *_jaas_login(jaas, mechanism)
    if not (given.get("sasl.username") and given.get("sasl.password")):
        raise ControlError("a login needs sasl.jaas.config, or both sasl.username and sasl.password")
    return mechanism, given["sasl.username"], given["sasl.password"]


def _jaas_login(line: str, mechanism: str) -> tuple[str, str]:
    from seqgate.gateway.config.sasl import parse_jaas  # noqa: PLC0415 - most commands do not log in

    try:
        module = parse_jaas(line)
    except ValueError as error:
        raise ControlError(f"sasl.jaas.config: {error}") from None
    if module.name not in _MODULES:
        raise ControlError(f"sasl.jaas.config must have one of the modules {', '.join(_MODULES)}")
    if mechanism not in _MODULES[module.name]:
        raise ControlError(f"{module.name} of sasl.jaas.config does not log in by sasl.mechanism {mechanism}")
    if module.options.get("tokenauth", "").lower() == "true":
        raise ControlError("this command can't log in with a delegation token (tokenauth); use a password")
    username, password = module.options.get("username"), module.options.get("password")
    if not (username and password):
        raise ControlError("sasl.jaas.config must have username and password")
    return username, password


def _context(given: Mapping[str, str]) -> ssl.SSLContext:
    # most commands connect without TLS, and need no cryptography for their start
    """Return the TLS context of a client. Raises ControlError."""
    try:
        from seqgate.gateway.security.certificates import StoreError  # noqa: PLC0415
        from seqgate.gateway.security.key_stores import Store  # noqa: PLC0415
        from seqgate.gateway.security.tls_context import ClientTls, client_context  # noqa: PLC0415
    except ModuleNotFoundError as error:
        from seqgate.gateway.config.packages import SECURITY, install  # noqa: PLC0415

        raise ControlError(install(error.name, "a listener with TLS", SECURITY)) from None

    names = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if names not in {"https", ""}:
        raise ControlError("ssl.endpoint.identification.algorithm must be https or empty")
    versions = tuple(
        part.strip() for part in given.get("ssl.enabled.protocols", "").split(",") if part.strip()
    )
    try:
        return client_context(
            ClientTls(
                key_store=Store(
                    given.get("ssl.keystore.location"),
                    given.get("ssl.keystore.type"),
                    given.get("ssl.keystore.password"),
                    given.get("ssl.keystore.key"),
                    given.get("ssl.keystore.certificate.chain"),
                    given.get("ssl.key.password"),
                ),
                trust_store=Store(
                    given.get("ssl.truststore.location"),
                    given.get("ssl.truststore.type"),
                    given.get("ssl.truststore.password"),
                    certificates=given.get("ssl.truststore.certificates"),
                ),
                checks_names=names == "https",
                versions=versions,
            )
        )
    except StoreError as error:
        raise ControlError(str(error)) from None


_COMMENT: Final = re.compile(r"[ \t\f]*[#!]|[ \t\f]*$")
_ENTRY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_SPECIAL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a text; the last value of a name counts."""
    properties = {}
    for line in _logical_lines(text):
        found = _ENTRY.fullmatch(line)
        assert found is not None
        properties[_unescaped(found[1])] = _unescaped(found[2])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments; an odd number of backslashes at the end joins the next line."""
    whole = ""
    for line in _LINE_END.split(text):
        if not whole and _COMMENT.match(line):
            continue
        part = line.lstrip(" \t\f")
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole += part[:-1]
            continue
        yield whole + part
        whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _SPECIAL.get(found[2], found[2]), text
    )
