"""OAUTHBEARER: a client logs in with a token that somebody else issued. Source: RFC 7628, Kafka's
OAuthBearerSaslServer.

A refused token first gets an answer with the error. The client acknowledges this answer, and only then its
login is refused. Of the messages, the gateway takes what Kafka takes.

`SignedTokens` verifies the signature of a token before its claims are decoded, with the keys of a
`KeySource`. Source: Kafka's BrokerJwtValidator. `UnsecuredTokens` takes tokens without a signature, which
anybody can make: for tests only. Source: Kafka's OAuthBearerUnsecuredJws.

`oauthbearer` builds the mechanism of a listener from its settings. Only a listener with OAUTHBEARER imports
this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from seqgate.gateway.config.oauthbearer import INSECURE_TOKENS, KEYS_URL
from seqgate.gateway.config.setting import SettingValue
from seqgate.gateway.security.principals import user
from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused, Mechanism, SaslStep
from seqgate.gateway.security.sasl.tokens import (
    ClaimRules,
    Token,
    TokenRefused,
    decoded,
    json_object,
    parts_of,
)

logger = logging.getLogger(__name__)


OAUTHBEARER: Final = "OAUTHBEARER"


def bearer_mechanism(tokens: SignedTokens | UnsecuredTokens) -> Mechanism:
    return Mechanism(OAUTHBEARER, partial(_Login, tokens))


class _Login:
    """One login with a token."""

    def __init__(self, tokens: SignedTokens | UnsecuredTokens) -> None:
        self._tokens = tokens
        self._refusal: str | None = None

    async def step(self, token: bytes) -> SaslStep:
        """Answer the client's next message. Raises LoginRefused."""
        if self._refusal is not None:
            raise LoginRefused(self._refusal)
        first = parse_first_message(token)
        try:
            accepted = await self._tokens.examine(first.token)
        except TokenRefused as error:
            self._refusal = f"the token is refused: {error}"
            return SaslStep(INVALID_TOKEN)
        if first.authorization_id not in {"", accepted.subject}:
            raise LoginRefused(
                "the authorization id is not the user of the token", principal=user(accepted.subject)
            )
        return SaslStep(b"", LoggedIn(user(accepted.subject), accepted.expires_at_ms))


INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The answer to a token that is refused; the client acknowledges it with one byte, and is then refused."""
_AUTH: Final = b"auth"
_FIRST: Final = re.compile(
    rb"n,(?:a=((?:[\x01-+\--<>-\x7f]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_CREDENTIALS: Final = re.compile(rb"([A-Za-z0-9_]+) +([-._~+/A-Za-z0-9]+=*)")
_MALFORMED: Final = "the first message of the client is not that of OAUTHBEARER (RFC 7628)"


@dataclass(frozen=True, slots=True)
class OAuthFirstMessage:
    """The client's first message. `authorization_id` is empty when it acts on behalf of no other user."""

    authorization_id: str
    token: str


def parse_first_message(message: bytes) -> OAuthFirstMessage:
    """Return the first message's content; check and drop its extensions. Raises LoginRefused."""
    found = _FIRST.fullmatch(message)
    if found is None:
        raise LoginRefused(_MALFORMED)
    authorization_id, pairs = found.groups()
    credentials = [
        value for name, _, value in (pair.partition(b"=") for pair in pairs.split(b"\x01")) if name == _AUTH
    ]
    if len(credentials) != 1:
        raise LoginRefused(f"{_MALFORMED}: it must have auth exactly once")
    parts = _CREDENTIALS.fullmatch(credentials[0])
    if parts is None or parts[1].lower() != b"bearer":
        raise LoginRefused(f"{_MALFORMED}: the value of auth must be a bearer token")
    return OAuthFirstMessage(_name(authorization_id or b""), parts[2].decode("ascii"))


def _name(escaped: bytes) -> str:
    return escaped.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")


# Reads a JWK set from a file or an HTTP endpoint, within limits of size and time. Blocks; a thread calls it.

MOST_BYTES: Final = 1 << 20
LIMIT_S: Final = 10.0
"""Time (s) for the whole answer of an endpoint."""
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)


def read_keys(url: str) -> KeySet:
    """Return the keys of the JWK set at a URL. Raises KeysUnusable."""
    parts = urlsplit(url)
    try:
        document = _read_file(parts) if parts.scheme == "file" else _read_endpoint(parts)
    except ssl.SSLCertVerificationError as error:
        raise KeysUnusable(
            f"the certificate of the endpoint is not accepted: {error.verify_message}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise KeysUnusable(f"{reason[:1].lower()}{reason[1:200]}") from None
    if len(document) > MOST_BYTES:
        raise KeysUnusable(f"the document has more than {MOST_BYTES} bytes")
    return parse_key_set(document)


def shown_url(url: str) -> str:
    """Return a URL without its query, which may hold a secret."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _read_file(parts: SplitResult) -> bytes:
    with Path(unquote(parts.path)).open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _read_endpoint(parts: SplitResult) -> bytes:
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=LIMIT_S, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=LIMIT_S)
    )
    with contextlib.closing(connection):
        connection.connect()
        with _Deadline(connection.sock):
            target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            connection.request(
                "GET", target, headers={"Accept": "application/jwk-set+json, application/json"}
            )
            answer = connection.getresponse()
            if answer.status != _OK:
                advice = ", and redirects are not followed" if answer.status in _REDIRECTS else ""
                raise KeysUnusable(f"the endpoint answers with status {answer.status}{advice}")
            return answer.read(MOST_BYTES + 1)


class _Deadline:
    """Ends a connection after LIMIT_S, although bytes keep coming, and drops the bytes read by then."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._passed = False
        self._timer = threading.Timer(LIMIT_S, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._passed:
            raise KeysUnusable(f"the endpoint did not answer within {LIMIT_S:g} s")

    def _pass(self) -> None:
        self._passed = True
        with contextlib.suppress(OSError):
            # SSLSocket.shutdown would make the reader treat further bytes as plaintext.
            socket.socket.shutdown(self._connected, socket.SHUT_RDWR)


class UnsecuredTokens:
    """Accepts tokens with the algorithm `none`."""

    def __init__(self, rules: ClaimRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    async def examine(self, token: str) -> Token:
        """Check the claims of the token and return them as a Token. Raises TokenRefused."""
        header, claims, signature = parts_of(token)
        if decoded(header, "header").get("alg") != "none":
            raise TokenRefused("the token's algorithm is not none")
        if signature:
            raise TokenRefused("the token has a signature, although its algorithm is none")
        return self._rules.examine(decoded(claims, "claims"), self._now_ms())


# The keys of one JWK set: they are cached, and read again at intervals, and when a token names an unknown
# key.

UNKNOWN_KEY_INTERVAL_S: Final = 10.0
"""Time (s) after an attempt to read the keys in which tokens with unknown keys are refused without another
attempt.
"""
WAIT_S: Final = 10.0
"""Longest time (s) that a login waits until the keys are read."""


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """Times (s) between two reads of keys: after a success, a first failure, and at most after failures."""

    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class KeySource:
    """Finds the public key with which a token must be signed, by the key id in the token. `read` blocks, so
    that it runs in a thread; `origin` names the JWK set in log lines.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read: Callable[[], KeySet], origin: str, times: RefreshTimes
    ) -> None:
        self._loop = loop
        self._read = read
        self._origin = origin
        self._times = times
        self._keys: KeySet | None = None
        self._reading: asyncio.Future[None] | None = None
        self._last_attempt_s = -UNKNOWN_KEY_INTERVAL_S
        self._backoff_s = times.backoff_s
        self._refusal = ""
        self._timer: asyncio.TimerHandle | None = None

    async def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key that a token names; None when there is none, also after reading the keys again."""
        found = self._known(key_id, algorithm)
        if found is not None:
            return found
        if self._reading is None and self._loop.time() >= self._last_attempt_s + UNKNOWN_KEY_INTERVAL_S:
            self.refresh()
        if self._reading is None:
            return None
        await asyncio.wait({self._reading}, timeout=WAIT_S)
        return self._known(key_id, algorithm)

    def why_not_found(self, key_id: str | None) -> str:
        """Return why `find` found no key; the client gets this, so it does not say where keys come from."""
        if self._keys is None:
            return "the keys could not be read yet"
        if key_id is None:
            return "it names no key (kid), and not exactly one key fits"
        return "its key (kid) is unknown"

    def _known(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        return None if self._keys is None else self._keys.find(key_id, algorithm)

    def refresh(self) -> None:
        """Begin to read the keys; from then on they are refreshed as long as the event loop runs."""
        if self._reading is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._last_attempt_s = self._loop.time()
        self._reading = self._loop.create_future()
        try:
            threading.Thread(target=self._read_aside, name="token-keys", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._take(None, str(error))

    def _read_aside(self) -> None:
        keys, reason = None, ""
        try:
            keys = self._read()
        except KeysUnusable as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - after any error the next attempt may succeed
            reason = type(error).__name__
        with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway stops
            self._loop.call_soon_threadsafe(self._take, keys, reason)

    def _take(self, keys: KeySet | None, reason: str) -> None:
        if keys is not None:
            self._keys = keys
            self._backoff_s = self._times.backoff_s
            if self._refusal:
                logger.info("the keys of %s can be read again", self._origin)
            next_s = self._times.refresh_s
        else:
            if reason != self._refusal:
                kept = (
                    f"the {len(self._keys.keys)} keys known before stay valid"
                    if self._keys
                    else "no token is accepted"
                )
                logger.warning("can't read the keys of tokens from %s: %s; %s", self._origin, reason, kept)
            next_s = self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, max(self._times.backoff_max_s, self._times.backoff_s))
        self._refusal = reason
        self._timer = self._loop.call_later(next_s, self.refresh)
        reading, self._reading = self._reading, None
        if reading is not None and not reading.done():
            reading.set_result(None)


# Public keys that verify the signatures of tokens: a JWK set (RFC 7517).

LEAST_RSA_BITS: Final = 2048
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE: Final = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
_SLOW_CURVES: Final = ("P-384", "P-521", "Ed448")
ALGORITHMS: Final = frozenset((*_RSA, "ES256", "ES384", "ES512", "EdDSA"))
"""The algorithms that tokens may be signed with. Algorithms with a shared secret are left out."""
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")
"""The fields of a JWK that make up a public key."""
_MOST_KEYS: Final = 1000


class KeysUnusable(Exception):
    """A JWK set can't be read or used. The message is the reason."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, and the algorithms that it verifies."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any
    is_slow: bool = False
    """Whether a verification takes so long (0.3 ms and more) that a thread does it."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of a JWK set."""

    keys: tuple[VerificationKey, ...]

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Return the key that a token names, or else the only one that fits; None when there is none."""
        fitting = [key for key in self.keys if algorithm in key.algorithms]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.key_id == key_id), None)


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse_key_set(document: bytes) -> KeySet:
    """Return the keys of a JWK set that can verify tokens; leave out the others. Raises KeysUnusable."""
    try:
        rows = msgspec.json.decode(document, type=_Document).keys
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise KeysUnusable("the document is not a JWK set: a JSON object with a list `keys`") from None
    keys = tuple(key for key in map(_key, rows[:_MOST_KEYS]) if key is not None)
    if not keys:
        raise KeysUnusable(
            f"none of the {len(rows)} keys in the document can verify tokens; a key must be public (RSA from "
            f"{LEAST_RSA_BITS} bits on, EC or OKP) and for one of {', '.join(sorted(ALGORITHMS))}"
        )
    return KeySet(keys)


def _key(row: dict[str, Any]) -> VerificationKey | None:
    algorithms = _algorithms(row)
    if not algorithms or row.get("use", "sig") != "sig":
        return None
    operations = row.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        key = jwt.PyJWK({name: row[name] for name in _PUBLIC if name in row}).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
        return None
    key_id = row.get("kid")
    is_slow = row.get("crv") in _SLOW_CURVES
    return VerificationKey(key_id if isinstance(key_id, str) else None, algorithms, key, is_slow)


def _algorithms(row: dict[str, Any]) -> frozenset[str]:
    kind, curve, own = row.get("kty"), row.get("crv"), row.get("alg")
    if kind == "RSA":
        possible: tuple[str, ...] = _RSA
    elif kind in {"EC", "OKP"} and isinstance(curve, str):
        possible = _OF_CURVE.get(curve, ())
    else:
        return frozenset()
    return frozenset(possible if own is None else (name for name in possible if name == own))


THREADS: Final = 2
"""Threads that verify signatures of slow keys at a time; further logins wait, so that threads stay free for
other work.
"""
_LONGEST_HEADER: Final = 8 << 10
_SIGNATURES: Final = jwt.PyJWS(algorithms=sorted(ALGORITHMS))


class SignedTokens:
    """Accepts tokens that a key of the source has signed."""

    def __init__(self, keys: KeySource, rules: ClaimRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms
        self._threads = asyncio.Semaphore(THREADS)

    async def examine(self, token: str) -> Token:
        """Verify the signature and claims of the token; return them as a Token. Raises TokenRefused."""
        algorithm, key_id = _signature_header(token)
        key = await self._keys.find(key_id, algorithm)
        if key is None:
            raise TokenRefused(self._keys.why_not_found(key_id))
        if key.is_slow:
            async with self._threads:
                payload = await asyncio.to_thread(_verified, token, key, algorithm)
        else:
            payload = _verified(token, key, algorithm)
        return self._rules.examine(json_object(payload, "claims"), self._now_ms())


def _verified(token: str, key: VerificationKey, algorithm: str) -> bytes:
    """Verify the signature of a token and return its claims as undecoded text. Raises TokenRefused."""
    try:
        payload: bytes = _SIGNATURES.decode_complete(token, key.key, algorithms=[algorithm])["payload"]
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefused("the token's signature is wrong") from None
    return payload


def _signature_header(token: str) -> tuple[str, str | None]:
    """Return the algorithm and the name of the key that a token's header names. Raises TokenRefused."""
    encoded, _, _ = parts_of(token)
    if len(encoded) > _LONGEST_HEADER:
        raise TokenRefused(f"the token's header is longer than {_LONGEST_HEADER} characters")
    header = decoded(encoded, "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm == "none":
        raise TokenRefused("the token has no signature")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused(f"the token's algorithm (alg) is none of {', '.join(sorted(ALGORITHMS))}")
    if "crit" in header or header.get("b64", True) is not True:
        raise TokenRefused(
            "the token's header asks for an extension (crit, b64) that this gateway does not know"
        )
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("the token's key name (kid) is not a text")
    return algorithm, key_id


_REFRESH: Final = "sasl.oauthbearer.jwks.endpoint."

Values = Callable[[str], SettingValue | None]
"""The values of settings for one listener and its mechanism, by their names."""


def oauthbearer(value: Values, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> Mechanism:
    """Return the mechanism of a listener, and begin to read its keys."""
    claim_rules = partial(
        ClaimRules,
        subject_claim=str(value("sasl.oauthbearer.sub.claim.name")),
        scope_claim=str(value("sasl.oauthbearer.scope.claim.name")),
    )
    if value(INSECURE_TOKENS):
        logger.warning("tokens without a signature are accepted: every client can log in as anybody")
        rules = claim_rules(needs_issue_time=False, refuses_future_issue_time=True)
        return bearer_mechanism(UnsecuredTokens(rules, now_ms))
    audiences = value("sasl.oauthbearer.expected.audience")
    rules = claim_rules(
        audiences=audiences if isinstance(audiences, tuple) else (),
        issuer=str(value("sasl.oauthbearer.expected.issuer") or ""),
        skew_s=_whole(value("sasl.oauthbearer.clock.skew.seconds")),
    )
    times = RefreshTimes(
        refresh_s=_whole(value(f"{_REFRESH}refresh.ms")) / 1000,
        backoff_s=_whole(value(f"{_REFRESH}retry.backoff.ms")) / 1000,
        backoff_max_s=_whole(value(f"{_REFRESH}retry.backoff.max.ms")) / 1000,
    )
    url = str(value(KEYS_URL))
    keys = KeySource(loop, partial(read_keys, url), shown_url(url), times)
    keys.refresh()
    return bearer_mechanism(SignedTokens(keys, rules, now_ms))


def _whole(number: SettingValue | None) -> int:
    assert isinstance(number, int)
    return number
