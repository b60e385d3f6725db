"""The credential of a SCRAM user: the keys that the gateway stores instead of the password. Source: RFC 5802,
Kafka's ScramFormatter.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384


class ScramHash(enum.IntEnum):
    """The hash function of a SCRAM mechanism; the number is the mechanism's on the wire."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, such as `SCRAM-SHA-256`."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def algorithm(self) -> str:
        """The name of the hash function in hashlib."""
        return self.name.replace("_", "").lower()

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.algorithm, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.algorithm)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of one user for one mechanism. `repr` leaves out the keys."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salt_password(hashing: ScramHash, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. This takes milliseconds: call it outside of the event loop's thread."""
    return hashlib.pbkdf2_hmac(hashing.algorithm, password, salt, iterations)


def credential_of(
    hashing: ScramHash, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    stored_key = hashing.digest(hashing.hmac(salted_password, b"Client Key"))
    return ScramCredential(salt, stored_key, hashing.hmac(salted_password, b"Server Key"), iterations)
