"""The port to an object store: creating, reading, replacing, listing and deleting objects by key.

A key is relative to the cluster's address. It consists of names between slashes; a name has letters, digits and `-_.=`, and begins
with no dot. No key is the folder of another key. An object is there as a whole or not at all. Who reads after a change that succeeded
sees the change; a listing may lack the newest changes.

The store never tries a call again by itself. A caller who gets `StoreFailed` from `create` or `replace` reads the object to learn
whether the store carried the call out; even after that answer, the call may still take effect later.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
LONGEST_KEY: Final = 512
"""Characters of a key. S3 allows 1024 bytes together with the prefix of the address."""
_KEY: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")


class StoreFailed(Exception):
    """A call failed, and the store may have carried it out or may still do so: 503, a reset, no answer in time."""


class Untrusted(StoreFailed):
    """The store's certificate is not trusted, so nothing was sent. A start refuses such a store; a running gateway waits for a better
    certificate.
    """


class AlreadyThere(Exception):
    """The key has an object. The caller may have created it by an earlier call whose answer was lost, and after a conflict of two
    creations (409) there may be no object.
    """


class Missing(Exception):
    """No object has the key."""


class Changed(Exception):
    """The object is not the version that was to be replaced. The caller may have changed it by a call whose answer was lost."""


class Refused(Exception):
    """The store will never carry out this call: wrong credentials, no such bucket. The message says what to do."""


class Entry(NamedTuple):
    """An object in a listing."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """The objects under one address. Every call may raise StoreFailed and Refused, and the errors that its own docstring names."""

    async def create(self, key: str, content: bytes | Sequence[Buffer]) -> None:
        """Create the object, and return once the object is durable. A sequence of buffers is one content.

        Raises:
            AlreadyThere: the key has an object, which stays as it is.
        """

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        """Return `size_bytes` of the content from byte `first` on, fewer at its end; by default all of the content.

        Raises:
            Missing: no object has the key.
        """

    async def get_end(self, key: str, size_bytes: int) -> bytes:
        """Return the last `size_bytes` of the content, or the whole content when it is smaller. Raises Missing."""

    async def read(self, key: str) -> tuple[bytes, str]:
        """Return the content and its version, for `replace`. The same content may have the same version again. Raises Missing."""

    async def replace(self, key: str, content: bytes, version: str | None) -> str:
        """Replace this version of the object, or create the object when `version` is None, and return the new version.

        Raises:
            Changed: the object is another version, is missing, or, when `version` is None, is there.
        """

    def list(self, prefix: str, after: str = "") -> AsyncIterator[Entry]:
        """Yield the objects whose key begins with `prefix` and is greater than `after`, ascending by key.

        `prefix` is empty or ends with a slash.
        """

    async def delete(self, key: str) -> None:
        """Delete the object. It is no error when no object has the key."""

    async def close(self) -> None:
        """Release the connections. No call may follow."""


def check_key(key: str) -> None:
    """Check that `key` can be an object's key. Raises ValueError."""
    if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
        raise ValueError(
            f"{key!r} is no key of an object: names of letters, digits and -_.= between slashes, at most {LONGEST_KEY} characters"
        )


def check_prefix(prefix: str) -> None:
    """Check that `prefix` can be the beginning of keys in a listing. Raises ValueError."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"the prefix {prefix!r} of a listing must end with a slash")
    if prefix:
        check_key(prefix[:-1])


def joined(content: bytes | Sequence[Buffer]) -> bytes:
    """Return the content of an object as one buffer."""
    return content if isinstance(content, bytes) else b"".join(content)
