"""Tokens and JWK sets made with `cryptography` alone, so that the library under test does not check itself."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def encoded(content: bytes) -> str:
    """Return the base64url of RFC 7515, without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def part(content: object) -> str:
    return encoded(json.dumps(content).encode())


def number(value: int, size: int | None = None) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@dataclass
class Issuer:
    """Signs tokens with one key."""

    key_id: str | None = "first"
    algorithm: str = "ES256"
    rsa_bits: int = 2048
    key: Key = field(init=False)

    def __post_init__(self) -> None:
        if self.algorithm in CURVES:
            self.key = ec.generate_private_key(CURVES[self.algorithm])
        elif self.algorithm == "EdDSA":
            self.key = ed25519.Ed25519PrivateKey.generate()
        else:
            self.key = rsa.generate_private_key(65537, self.rsa_bits)

    def jwk(self, **more: Any) -> dict[str, Any]:
        """Return the public key of this issuer as a row of a JWK set."""
        row: dict[str, Any] = {} if self.key_id is None else {"kid": self.key_id}
        if isinstance(self.key, rsa.RSAPrivateKey):
            numbers = self.key.public_key().public_numbers()
            row |= {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        elif isinstance(self.key, ec.EllipticCurvePrivateKey):
            point = self.key.public_key().public_numbers()
            size = (self.key.curve.key_size + 7) // 8
            curve = {256: "P-256", 384: "P-384", 521: "P-521"}[self.key.curve.key_size]
            row |= {"kty": "EC", "crv": curve, "x": number(point.x, size), "y": number(point.y, size)}
        else:
            row |= {"kty": "OKP", "crv": "Ed25519", "x": encoded(self.key.public_key().public_bytes_raw())}
        return row | more

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a signed token; `header` replaces members of the usual header."""
        named = {} if self.key_id is None else {"kid": self.key_id}
        head = {"alg": self.algorithm, "typ": "JWT", **named, **(header or {})}
        signed = f"{part(head)}.{part(claims)}"
        return f"{signed}.{encoded(self._signature(signed.encode()))}"

    def _signature(self, signed: bytes) -> bytes:
        if isinstance(self.key, ed25519.Ed25519PrivateKey):
            return self.key.sign(signed)
        digest = HASHES[self.algorithm[2:]]
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(self.key.sign(signed, ec.ECDSA(digest)))
            size = (self.key.curve.key_size + 7) // 8
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        if self.algorithm.startswith("PS"):
            return self.key.sign(signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        return self.key.sign(signed, padding.PKCS1v15(), digest)


def key_set(*rows: dict[str, Any]) -> bytes:
    """Return the text of a JWK set."""
    return json.dumps({"keys": rows}).encode()


def unsecured_token(**claims: Any) -> str:
    """Return a token without a signature."""
    return f"{part({'alg': 'none'})}.{part(claims)}."


def first_message(token: str, *, authorization_id: str = "", extensions: str = "") -> bytes:
    """Return the first message of a client with OAUTHBEARER."""
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
