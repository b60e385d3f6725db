"""Which partitions of a fetch session an incremental answer names."""

from __future__ import annotations

from seqgate.gateway.handlers.records.fetch import _has_news
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRow
from seqgate.gateway.runtime.partitions.fetch_sessions import SessionPartition


def fresh() -> SessionPartition:
    return SessionPartition(FetchPosition(0, 100, -1, -1))


def has_news(
    partition: SessionPartition,
    high_watermark: int,
    log_start_offset: int,
    *,
    error_code: int = 0,
    records: bytes = b"",
    diverging_epoch: tuple[int, int] | None = None,
    replica: int = -1,
) -> bool:
    row = FetchRow(
        0,
        error_code,
        high_watermark,
        high_watermark,
        log_start_offset,
        None,
        records,
        diverging_epoch,
        preferred_read_replica=replica,
    )
    return _has_news(partition, row)


def test_data_and_moved_offsets_are_news_once() -> None:
    partition = fresh()
    assert has_news(partition, 5, 0)
    assert not has_news(partition, 5, 0)
    assert has_news(partition, 5, 0, records=b"batch")
    assert has_news(partition, 6, 0)
    assert has_news(partition, 6, 2)
    assert has_news(partition, 6, 2, diverging_epoch=(1, 4))
    assert has_news(partition, 6, 2, replica=2)
    assert not has_news(partition, 6, 2)


def test_watermarks_that_are_not_known_yet_are_no_news() -> None:
    partition = fresh()
    assert has_news(partition, 5, 1)
    assert not has_news(partition, -1, -1)
    assert has_news(partition, -1, -1, replica=2)
    assert not has_news(partition, 5, 1)


def test_an_error_repeats_until_it_is_gone() -> None:
    partition = fresh()
    has_news(partition, 5, 0)
    assert has_news(partition, -1, -1, error_code=3)
    assert has_news(partition, -1, -1, error_code=3)
    assert has_news(partition, 5, 0)
    assert not has_news(partition, 5, 0)
