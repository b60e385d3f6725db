"""Detects coordinator records that a later release wrote. Their partition is not loaded, because it would be
incomplete.

Source: Kafka's `CoordinatorLoaderImpl` and `TransactionLog`. They fail to load a value of an unknown version,
and skip an unknown kind of key.
"""

from __future__ import annotations


class NewerVersion(ValueError):
    """A stored value has a later version than this release can read."""

    def __init__(self, version: int, newest: int) -> None:
        """Take the value's version and the newest version that this release reads."""
        super().__init__(f"a value of version {version}; this program reads versions 0 to {newest}")


def newer_version_in(error: BaseException) -> NewerVersion | None:
    """Return the NewerVersion that `error` is, or that `error` was raised from; None when there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, NewerVersion):
        cause = cause.__cause__
    return cause
