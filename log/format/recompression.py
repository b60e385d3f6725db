"""Rewrites a produced batch in the codec that its topic stores (Kafka's `compression.type`).

The records keep their bytes, and with them offsets and timestamps; all of the header stays but codec, size
and CRC. Source: Kafka's `LogValidator.validateMessagesAndAssignOffsetsCompressed`, `UnifiedLog.append`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqgate.log.errors import RecordTooLarge
from seqgate.log.format.batch_validation import check_batch, sealed_batch
from seqgate.log.format.compression import CODEC_IDS, compress, decompress
from seqgate.log.format.record_batch import COMPRESSION_MASK, HEADER_BYTES

if TYPE_CHECKING:
    from seqgate.log.config import LogConfig
    from seqgate.log.format.compression import Compression

_NAMES: Final = {number: name for name, number in CODEC_IDS.items()}
_ANY_BYTES: Final = 2**31 - 1


def recompressed(records: memoryview, compression: Compression, config: LogConfig, now_ms: int) -> bytes:
    """Return the one batch in `records` in another codec. Needs no state of the partition, so that a thread
    can call it.

    Checks the batch as an append does, because the new CRC would hide damage; `segment.bytes` concerns only
    the stored batch. Where records must be decoded, for deep validation or their timestamps, that follows
    with the append. Raises CorruptRecord, InvalidRecord, RecordTooLarge, InvalidTimestamp,
    UnsupportedCompressionType.
    """
    as_sent = replace(config, deep_validation=False, examines_timestamps=False, segment_bytes=_ANY_BYTES)
    batch = check_batch(records, as_sent, now_ms, is_client=True)
    plain = decompress(
        batch.compression, records[HEADER_BYTES : batch.size_bytes], config.max_decompressed_bytes
    )
    payload = compress(compression.codec, plain, compression.level)
    del plain
    size_bytes = HEADER_BYTES + len(payload)
    if size_bytes > config.max_message_bytes:
        raise RecordTooLarge(
            f"The batch of {batch.size_bytes} bytes has {size_bytes} bytes in the codec that the topic "
            "stores "
            f"({_NAMES[compression.codec]}); max.message.bytes is {config.max_message_bytes}."
        )
    attributes = batch.attributes & ~COMPRESSION_MASK | compression.codec
    return sealed_batch(
        batch, attributes, batch.base_timestamp, batch.max_timestamp, batch.record_count, payload
    )
