"""Batches whose records carry a producer name and a sequence id, for topics that deduplicate."""

from __future__ import annotations

from tests.support.batches import Batch, Record

DEDUPLICATED = {"message.deduplication.enable": "true"}
"""The topic config that turns deduplication on."""


def named_record(name: bytes | str, sequence_id: int, epoch: int | None = None) -> Record:
    """Return a record with the default name headers; its value contains the sequence id."""
    text = name.encode() if isinstance(name, str) else name
    headers = [(b"dedup.name", text), (b"dedup.sequence", b"%d" % sequence_id)]
    if epoch is not None:
        headers.append((b"dedup.epoch", b"%d" % epoch))
    return Record(value=b"%d" % sequence_id, headers=headers)


def named(name: bytes | str, *sequence_ids: int, epoch: int | None = None) -> Batch:
    """Return a batch of records of one name."""
    return Batch([named_record(name, sequence_id, epoch) for sequence_id in sequence_ids])
