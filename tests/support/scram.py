"""The client's side of SCRAM, message by message. Source: RFC 5802."""

from __future__ import annotations

import base64
from functools import cache

from seqgate.gateway.security.sasl.scram_credential import (
    ScramCredential,
    ScramHash,
    credential_of,
    salt_password,
)

SALT = b"a grain of salt"
NONCE = b"client"

salted_password = cache(salt_password)
"""`salt_password`, which takes milliseconds, at most once for the same password and salt."""


def credential(
    hashing: ScramHash, password: str, *, salt: bytes = SALT, iterations: int = 4_096
) -> ScramCredential:
    return credential_of(
        hashing, salted_password(hashing, password.encode(), salt, iterations), salt, iterations
    )


async def no_token(_hashing: ScramHash, _token_id: str) -> None:
    """Find no delegation token."""


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


class ScramClient:
    """One login of a user; the parts of its messages can be replaced."""

    def __init__(
        self, hashing: ScramHash, user: str, password: str, *, gs2: bytes = b"n,,", extensions: bytes = b""
    ) -> None:
        self.hashing = hashing
        self.password = password
        self.gs2 = gs2
        self.bare = b"n=%s,r=%s%s" % (escaped(user).encode(), NONCE, extensions)
        self.server_signature = b""

    def first(self) -> bytes:
        return self.gs2 + self.bare

    def final(
        self,
        server_first: bytes,
        *,
        channel: bytes = b"biws",
        extensions: bytes = b"",
        nonce: bytes | None = None,
    ) -> bytes:
        values = dict(part.split(b"=", 1) for part in server_first.split(b","))
        salt, iterations = base64.b64decode(values[b"s"]), int(values[b"i"])
        salted = salted_password(self.hashing, self.password.encode(), salt, iterations)
        nonce = values[b"r"] if nonce is None else nonce
        return self._signed(salted, server_first, b"c=%s,r=%s%s" % (channel, nonce, extensions))

    def _signed(self, salted: bytes, server_first: bytes, without_proof: bytes) -> bytes:
        hashing = self.hashing
        client_key = hashing.hmac(salted, b"Client Key")
        signed = b",".join((self.bare, server_first, without_proof))
        signature = hashing.hmac(hashing.digest(client_key), signed)
        self.server_signature = hashing.hmac(hashing.hmac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + base64.b64encode(proof)
