"""The TLS and the login of a connection, by the client options of Spark's Kafka source.

Only the checks before Spark starts connect by it: Spark's own Java logs in for the records. Java reads key
stores and speaks mechanisms that Python does not; `Unchecked` names them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from seqgate.spark_kafka_compat.options import KAFKA_PREFIX, OptionValue, option_text
from seqgate.spark_kafka_compat.session import EndpointError, SparkCompatError

PLAINTEXT = "PLAINTEXT"
PROTOCOL = f"{KAFKA_PREFIX}security.protocol"
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MECHANISMS = ("PLAIN", *_DIGESTS)
MAX_ITERATIONS = 1_000_000
"""The iterations of a SCRAM login, which the endpoint chooses: Kafka's brokers at most 16,384. Without a
limit, a login could take minutes.
"""
_ENTRY = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


class Unchecked(Exception):
    """Only Spark's own Java can connect so; the message says why."""


@dataclass(frozen=True)
class Login:
    """The protocol, TLS context and account of a client. `mechanism` is empty without a login."""

    protocol: str = PLAINTEXT
    context: ssl.SSLContext | None = None
    trusts_default: bool = True
    """Whether the context trusts the authorities that Python knows, in place of those that Java knows."""
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    def authenticate(self, exchange: Callable[[bytes], bytes]) -> None:
        """Log in; `exchange` sends a token and returns the endpoint's. Raises what it raises, EndpointError.

        Source: RFC 4616 for PLAIN, RFC 5802 for SCRAM.
        """
        if self.mechanism == "PLAIN":
            exchange(f"\0{self.user}\0{self.password}".encode())
            return
        digest = _DIGESTS[self.mechanism]
        user = self.user.replace("=", "=3D").replace(",", "=2C")
        nonce = secrets.token_urlsafe(18)
        bare = f"n={user},r={nonce}"
        token = exchange(f"n,,{bare}".encode())
        try:
            challenge = token.decode()
            given = dict(part.split("=", 1) for part in challenge.split(","))
            both, salt, iterations = given["r"], base64.b64decode(given["s"]), int(given["i"])
        except (KeyError, ValueError) as error:
            raise EndpointError("The endpoint's answer to the login is malformed.") from error
        if not both.startswith(nonce):
            raise EndpointError("The endpoint answered the login of another client.")
        if not 0 < iterations <= MAX_ITERATIONS:
            raise EndpointError(
                f"The endpoint asks for {iterations:,} iterations of the password's hash; a login takes 1 to "
                f"{MAX_ITERATIONS:,}."
            )
        last = f"c=biws,r={both}"
        signed = f"{bare},{challenge},{last}".encode()
        salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), salt, iterations)
        key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = base64.b64encode(bytes(left ^ right for left, right in zip(key, signature, strict=True)))
        answer = exchange(f"{last},p={proof.decode()}".encode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        if answer != b"v=" + base64.b64encode(expected):
            raise EndpointError("The endpoint does not know the password of the user that logs in.")


PLAIN_CONNECTION = Login()


def login_of(options: Mapping[str, OptionValue]) -> Login:
    """Return the login that options of the source describe. Raises Unchecked, SparkCompatError for a file
    that can't be read.
    """
    settings = client_settings(options)
    protocol = settings.get("security.protocol", PLAINTEXT).upper()
    context = _context(settings) if protocol.endswith("SSL") else None
    trusts_default = not _has_store(settings, "ssl.truststore", ("location", "certificates"))
    if not protocol.startswith("SASL"):
        return Login(protocol, context, trusts_default)
    return Login(protocol, context, trusts_default, *_account(settings))


def client_settings(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Return the settings of the Kafka client among options of the source or the sink."""
    return {
        name.removeprefix(KAFKA_PREFIX): option_text(value)
        for name, value in options.items()
        if name.startswith(KAFKA_PREFIX)
    }


def _account(settings: Mapping[str, str]) -> tuple[str, str, str]:
    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MECHANISMS:
        raise Unchecked(f"only Java logs in with {KAFKA_PREFIX}sasl.mechanism={mechanism}")
    written = {
        name: re.sub(r"\\(.)", r"\1", quoted) or bare
        for name, quoted, bare in _ENTRY.findall(settings.get("sasl.jaas.config", ""))
    }
    if not (written.get("username") and written.get("password")):
        raise Unchecked(f"{KAFKA_PREFIX}sasl.jaas.config has no username and password")
    if written.get("tokenauth", "").lower() == "true":
        raise Unchecked("only Java logs in with a delegation token")
    return mechanism, written["username"], written["password"]


def _has_store(settings: Mapping[str, str], store: str, parts: tuple[str, ...]) -> bool:
    """Return whether a store is set. Raises Unchecked unless it is PEM."""
    if not any(settings.get(f"{store}.{part}") for part in parts):
        return False
    kind = settings.get(f"{store}.type", "JKS").upper()
    if kind != "PEM":
        raise Unchecked(f"only Java reads the {kind} file of {KAFKA_PREFIX}{store}.location; PEM is checked")
    return True


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    location = settings.get("ssl.truststore.location")
    try:
        if _has_store(settings, "ssl.truststore", ("location", "certificates")):
            certificates = settings.get("ssl.truststore.certificates")
            context = ssl.create_default_context(cafile=location, cadata=certificates)
        else:
            context = ssl.create_default_context()
    except OSError as error:
        raise _unreadable("ssl.truststore.location", location, error) from error
    context.check_hostname = bool(settings.get("ssl.endpoint.identification.algorithm", "https"))
    if _has_store(settings, "ssl.keystore", ("location", "key")):
        location = settings.get("ssl.keystore.location")
        if not location:
            raise Unchecked(
                f"Python reads a private key from a file only, not {KAFKA_PREFIX}ssl.keystore.key"
            )
        try:
            context.load_cert_chain(location, password=settings.get("ssl.key.password", ""))
        except OSError as error:
            raise _unreadable("ssl.keystore.location", location, error) from error
    return context


def _unreadable(name: str, location: str | None, error: OSError) -> SparkCompatError:
    reason = "it is not PEM, or not of this password" if isinstance(error, ssl.SSLError) else error.strerror
    return SparkCompatError(f"{KAFKA_PREFIX}{name}={location} can't be read: {reason}.")
