"""Limits of what is decoded of the batches that clients send."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_DECODING = "Decoding batches"
_number = partial(whole_number, _DECODING)

DECODING_SETTINGS = (
    _number(
        "seqgate.batch.decompressed.max.bytes",
        128 << 20,
        "What one batch may become when it is decompressed, where its records are looked at. A batch that would become more is "
        "refused by topics that look at the records of every batch: compacted ones, those with delayed delivery or deduplication, all "
        "under seqgate.log.deep.validation.",
        minimum=1 << 20,
    ),
    _number(
        "seqgate.batch.decoded.max.records",
        200_000,
        "Records of one batch that are looked at one by one while others wait. The same topics refuse a batch with more, and "
        "ListOffsets by time answers with the batch's first offset instead of the record's.",
        minimum=1000,
    ),
)
