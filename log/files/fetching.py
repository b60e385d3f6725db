"""Reads that must not wait for a bucket: the thread of the event loop gets NotCached where only the bucket has the bytes."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Refuses(Protocol):
    """A disk that some threads may ask not to wait for the bucket."""

    refusing: Refusing


class Sparse(Protocol):
    """A storage, and the disk below it if segment files may have holes."""

    @property
    def sparse(self) -> Refuses | None:
        """The disk with holes; None without a bucket."""


class Refusing(threading.local):
    """Whether the reads of a thread must not wait for the bucket."""

    is_on = False


@contextmanager
def without_fetching(storage: Sparse) -> Iterator[None]:
    """Let this thread's reads of absent bytes raise NotCached inside of the `with` block. Reads of the local disk wait as ever.

    The block must not await.
    """
    if storage.sparse is None:
        yield
        return
    refusing = storage.sparse.refusing
    before = refusing.is_on
    refusing.is_on = True
    try:
        yield
    finally:
        refusing.is_on = before
