"""The request for the newest batches that were not stored, and what `seqgate verdicts --json` prints."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from seqgate.gateway.admin.request import PagedRequest


class VerdictRow(msgspec.Struct, frozen=True):
    """A batch that was not stored: `outcome` is "duplicate" or the name of Kafka's error, `message` says why
    it was refused.

    `base_offset` is that of the duplicate's original; -1 for a refused batch. Fields of a batch without a
    whole header are -1. `client_id` is empty for a duplicate. `number` counts the verdicts since the gateway
    started.
    """

    number: int
    time_ms: int
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    outcome: str
    client_id: str
    message: str


class VerdictPage(msgspec.Struct, frozen=True):
    """The newest verdicts that pass the filters, the newest first. The gateway keeps the newest `kept`
    verdicts in memory.
    """

    verdicts: list[VerdictRow]
    kept: int


class ListVerdictsRequest(PagedRequest[VerdictPage], tag="verdicts"):
    """The newest batches that were not stored: duplicates, and refused batches with the reason. With `after`
    only verdicts with a higher number.
    """

    is_spread: ClassVar[bool] = True
    topic: str | None = None
    partition: int | None = None
    producer_id: int | None = None
    after: int = 0
