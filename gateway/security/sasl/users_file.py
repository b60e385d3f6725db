"""A file with the users of PLAIN, one `NAME:PASSWORD` a line, which is read again when it was replaced.

PLAIN: a client sends its user name and password, so that only TLS keeps the password from others.

A token is `authorization id NUL user NUL password`. Source: RFC 4616, Kafka's PlainSaslServer.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from seqgate.gateway.security.principals import LoginSettingsError, user
from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused, Mechanism, SaslStep

logger = logging.getLogger(__name__)

LARGEST_FILE_BYTES: Final = 4 << 20
"""The largest file of users in bytes; a larger one is refused."""
RETRY_S: Final = 5.0
"""How long a file that could not be used is left alone, unless it is replaced: the reason may pass."""
_FileState: TypeAlias = tuple[int, int, int, int]


class UsersFile:
    """A file's users. Each login checks whether the file was replaced; a thread reads the replacement."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises LoginSettingsError."""
        self._path = Path(path)
        self._seen = _state(self._path)
        """The state of the file that the users were read from."""
        self._digests: Mapping[str, bytes] = read_users(self._path)
        self._reading = asyncio.Lock()
        self._failed: _FileState | None = None
        """The state of the file when it could not be read last."""
        self._next_try_s = 0.0
        self._refusal = ""

    async def digests(self) -> Mapping[str, bytes]:
        """Return the password digests by user name, of the former file when the new one can't be used."""
        if _state(self._path) != self._seen:
            async with self._reading:
                await self._read_again()
        return self._digests

    async def _read_again(self) -> None:
        seen, now_s = _state(self._path), asyncio.get_running_loop().time()
        # Another login may have read the file meanwhile, or failed to.
        if seen == self._seen or (seen == self._failed and now_s < self._next_try_s):
            return
        try:
            self._digests = await asyncio.to_thread(read_users, self._path)
        except Exception as error:  # noqa: BLE001 - any error keeps the former users
            self._keep(str(error) if isinstance(error, LoginSettingsError) else repr(error))
            self._failed, self._next_try_s = seen, now_s + RETRY_S
        else:
            self._seen, self._refusal = seen, ""
            logger.info("read the users of PLAIN again from %s: %d users", self._path, len(self._digests))

    def _keep(self, refusal: str) -> None:
        """Log once why the file can't be used."""
        if refusal != self._refusal:
            logger.warning(
                "the file of PLAIN users can't be used, so the users that were read before stay valid: %s",
                refusal,
            )
        self._refusal = refusal


def read_users(path: Path) -> dict[str, bytes]:
    """Return the digest of each user's password in a file. Raises LoginSettingsError."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise LoginSettingsError(
                    f"others than the owner may read the passwords in {path}; run chmod 600 {path}"
                )
            text = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise LoginSettingsError(f"the file {path} with the users can't be read: {error.strerror}") from None
    if len(text) > LARGEST_FILE_BYTES:
        raise LoginSettingsError(f"the file {path} with the users has more than {LARGEST_FILE_BYTES} bytes")
    try:
        return digests(parse_users(text.decode()))
    except UnicodeDecodeError:
        raise LoginSettingsError(f"the file {path} with the users is not UTF-8") from None
    except ValueError as error:
        raise LoginSettingsError(f"the file {path} with the users can't be used: {error}") from None


def parse_users(text: str) -> dict[str, str]:
    """Return the passwords of the users that a text lists. Raises ValueError when a line is malformed or
    repeats a user; the message is the reason, without the line.
    """
    passwords: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")  # noqa: PLW2901 - the line without its end
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not (name and colon and password):
            raise ValueError(f"line {number} must have the form NAME:PASSWORD")
        if name in passwords:
            raise ValueError(f"line {number} names a user again")
        passwords[name] = password
    return passwords


def _state(path: Path) -> _FileState | None:
    """Return the properties of a file that change when somebody replaces the file; None without the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


PLAIN: Final = "PLAIN"
INVALID: Final = "Authentication failed: Invalid username or password"
_NOBODY: Final = b"\0" * hashlib.sha256().digest_size
"""The value with which the password of an unknown user is compared; it is the digest of no password."""


def digest(password: str) -> bytes:
    """Return a password's digest, kept in its place; of one length, so that comparisons take equal time."""
    return hashlib.sha256(password.encode()).digest()


def digests(passwords: Mapping[str, str]) -> dict[str, bytes]:
    return {name: digest(password) for name, password in passwords.items()}


class FixedUsers:
    """Users from the settings."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = digests(passwords)

    async def digests(self) -> Mapping[str, bytes]:
        """Return the digest of each user's password, by the user's name."""
        return self._digests


def plain_mechanism(users: UsersFile | FixedUsers) -> Mechanism:
    return Mechanism(PLAIN, partial(_Login, users))


class _Login:
    """One login with a password; its first step is its last."""

    def __init__(self, users: UsersFile | FixedUsers) -> None:
        self._users = users

    async def step(self, token: bytes) -> SaslStep:
        """Answer the client's token. Raises LoginRefused."""
        authorization_id, name, password = _parts(token)
        expected = (await self._users.digests()).get(name, _NOBODY)
        principal = None if expected is _NOBODY else user(name)
        if not hmac.compare_digest(digest(password), expected):
            raise LoginRefused(INVALID, principal=principal)
        if authorization_id not in {"", name}:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username",
                principal=principal,
            )
        return SaslStep(b"", LoggedIn(user(name)))


def _parts(token: bytes) -> tuple[str, str, str]:
    """Return authorization id, user and password. Raises LoginRefused."""
    parts = token.decode(errors="replace").split("\0")
    if len(parts) != 3:
        raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, name, password = parts
    if not name:
        raise LoginRefused("Authentication failed: username not specified")
    if not password:
        raise LoginRefused("Authentication failed: password not specified")
    return authorization_id, name, password
