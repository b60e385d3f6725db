"""The request to reopen a partition, and what `seqgate reopen --json` prints."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.request import Request


class Reopened(msgspec.Struct, frozen=True):
    """A partition that is back in service; its log goes from `log_start_offset` to `log_end_offset`
    (exclusive).
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int


class ReopenRequest(Request[Reopened], tag="reopen"):
    """The request to bring an offline partition back into service."""

    topic: str
    partition: int
