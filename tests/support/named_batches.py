"""Batches whose records carry a producer name and a sequence id, as topics that deduplicate look for them."""

from __future__ import annotations

from tests.support.batches import Batch, Record

DEDUPLICATED = {"message.deduplication.enable": "true"}
"""The configuration of such a topic."""


def named_record(name: bytes | str, sequence_id: int, epoch: int | None = None) -> Record:
    """A record with the headers that are looked for by default; its value tells the sequence id."""
    text = name.encode() if isinstance(name, str) else name
    headers = [(b"dedup.name", text), (b"dedup.sequence", b"%d" % sequence_id)]
    if epoch is not None:
        headers.append((b"dedup.epoch", b"%d" % epoch))
    return Record(value=b"%d" % sequence_id, headers=headers)


def named(name: bytes | str, *sequence_ids: int, epoch: int | None = None) -> Batch:
    """A batch of one name's records."""
    return Batch([named_record(name, sequence_id, epoch) for sequence_id in sequence_ids])
