"""Records of a coordinator's state that belong to a transaction, and how such a transaction ends."""

from __future__ import annotations

from typing import Any, NamedTuple


class Pending(NamedTuple):
    """A record that counts once the transaction it was written in is committed."""

    producer_id: int
    producer_epoch: int
    record: Any


class TransactionEnd(NamedTuple):
    """A marker: what the producer has pending counts from here on, or never."""

    producer_id: int
    is_commit: bool
