"""A Produce is refused for all its partitions: for a malformed batch, or a transactional batch without transactional
id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.records.produce import refusal_of_all
from seqgate.gateway.handlers.records.produce_append import check_one_batch
from seqgate.gateway.protocol.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from seqgate.log import CorruptRecord, LogError
from seqgate.log.errors import MalformedBatch
from tests.support.batches import Batch, records

PLAIN = Batch(records(1)).of(7, 0, 0)
TRANSACTIONAL = replace(PLAIN, attributes=0x10)
CORRUPT = ErrorCode.corrupt_message
NO_ID = ErrorCode.transactional_id_authorization_failed


def refusal(*frames: bytes | None, transactional_id: str | None = None) -> ErrorCode | None:
    """Return the error of a request with one frame for each partition; None: the request is not refused."""
    entries = [
        PartitionRecords(index, None if frame is None else memoryview(frame))
        for index, frame in enumerate(frames)
    ]
    request = ProduceRequest(transactional_id, -1, 1_000, [TopicRecords("t", entries)])
    found = refusal_of_all(request)
    assert found is None or f"partition {len(frames) - 1}" in found[1]
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (PLAIN.encode(), None),
        (TRANSACTIONAL.encode(), NO_ID),
        (TRANSACTIONAL.encode()[:-1], None),
        (replace(TRANSACTIONAL, magic=1).encode(), None),
        (replace(PLAIN, magic=3).encode(), CORRUPT),
        (replace(PLAIN, batch_length=13).encode(), CORRUPT),
        (replace(PLAIN, batch_length=13).encode()[:12], CORRUPT),
        (PLAIN.encode()[:11], None),
        (PLAIN.encode()[:17], None),
        (b"", None),
        (None, None),
    ],
)
def test_one_frame_refuses_the_whole_request(last: bytes | None, error: ErrorCode | None) -> None:
    assert refusal(last) is error
    assert refusal(PLAIN.encode(), last) is error


def test_with_a_transactional_id_batches_after_the_first_transactional_one_are_not_checked() -> None:
    bad = replace(PLAIN, magic=3).encode()
    assert refusal(TRANSACTIONAL.encode(), bad, transactional_id="x") is None
    assert refusal(PLAIN.encode(), bad, transactional_id="x") is CORRUPT


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda raw: raw + raw, MalformedBatch),
        (lambda raw: raw[:-1], MalformedBatch),
        (lambda raw: raw[:16] + b"\1" + raw[17:], MalformedBatch),
        (lambda raw: raw[:16] + b"\3" + raw[17:], CorruptRecord),
        (lambda raw: raw[:8] + b"\0\0\0\x0d" + raw[12:], CorruptRecord),
    ],
)
def test_bytes_other_than_one_sound_batch_do_not_join_a_transaction(
    spoil: Callable[[bytes], bytes], error: type[LogError]
) -> None:
    with pytest.raises(error):
        check_one_batch(memoryview(spoil(TRANSACTIONAL.encode())))


def test_a_cut_batch_behind_a_whole_one_is_left_out() -> None:
    raw = TRANSACTIONAL.encode()
    check_one_batch(memoryview(raw))
    check_one_batch(memoryview(raw + raw[:40]))
