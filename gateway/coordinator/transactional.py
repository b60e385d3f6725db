"""Records of coordinator state that belong to a transaction, and the markers that end the transaction."""

from __future__ import annotations

from typing import Any, NamedTuple


class Pending(NamedTuple):
    """A record that takes effect when the transaction that wrote it is committed."""

    producer_id: int
    producer_epoch: int
    record: Any


class TransactionEnd(NamedTuple):
    """A marker: the pending records of the producer take effect now (commit), or never (abort)."""

    producer_id: int
    is_commit: bool
