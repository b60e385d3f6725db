"""Public keys that verify the signatures of tokens: a JWK set (RFC 7517)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

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
        """Return the key that a token names; None when there is none.

        For a token without a key name, exactly one key must fit.
        """
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
            f"none of the {len(rows)} keys in the document can verify tokens; "
            f"a key must be public (RSA from {LEAST_RSA_BITS} bits on, "
            f"EC or OKP) and for one of {', '.join(sorted(ALGORITHMS))}"
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
