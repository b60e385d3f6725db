"""Records of coordinators that a later release wrote: their partition is not loaded, rather than loaded without them.

Source: Kafka's `CoordinatorLoaderImpl` and `TransactionLog`, which fail to load a value of a version they don't know, and
pass over a kind of key that they don't know.
"""

from __future__ import annotations


class NewerVersion(ValueError):
    """A stored value is of a later version than is known here."""

    def __init__(self, version: int, newest: int) -> None:
        """Name the value's version and the newest that can be read."""
        super().__init__(f"a value of version {version}; this program reads versions 0 to {newest}")


def newer_version_in(error: BaseException) -> NewerVersion | None:
    """The NewerVersion that `error` is, or was raised from."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, NewerVersion):
        cause = cause.__cause__
    return cause
