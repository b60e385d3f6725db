"""A write-ahead log that records in `Coverage` the rows that are put into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seqgate.gateway.cluster.uploads.collection import Coverage
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.wal_object import Row, RowData


class RecordingWal:
    """The log of this process's session, as flush rounds use it."""

    def __init__(self, wal: SessionWal, coverage: Coverage) -> None:
        self._wal = wal
        self._coverage = coverage
        coverage.session = wal.session.session
        self.on_fenced: list[Callable[[str], None]] = wal.on_fenced

    def put(self, rows: Sequence[Row], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        """Put the next object of the log, as `SessionWal.put` does."""
        if rows:
            self._coverage.put(self._wal.next_seq, rows, data)
        self._wal.put(rows, data, confirmed)
