"""A topic's settings come to a log whose records can't be read at once: they are replayed for delayed records
later, not never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seqgate.log import NotCached, PageRange, Storage, StorageFailed
from seqgate.log.environment import LogEnvironment
from seqgate.log.files.storage import DataFile
from tests.log.state.test_delays import CONFIG, again, batch, waiting
from tests.log.support import NOW_MS, open_log


class _Unread(Storage):
    """A storage whose next reads of segments fail."""

    failures: Sequence[Exception] = ()

    def read(self, file: DataFile, size_bytes: int, position: int) -> bytes:
        if self.failures:
            first, *self.failures = self.failures
            raise first
        return super().read(file, size_bytes, position)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (NotCached((PageRange("a segment", 0, 1),)), NotCached),
        (OSError(5, "Input/output error"), StorageFailed),
    ],
)
def test_settings_that_are_applied_again(tmp_path: Path, failure: Exception, raised: type[Exception]) -> None:
    before = open_log(tmp_path, CONFIG)
    before.append(batch(None, 30, 20), now_ms=NOW_MS)
    before.close(clean=False)
    storage = _Unread()
    environment = LogEnvironment(storage)
    log = open_log(tmp_path, replace(CONFIG, delivery_delay_header=""), environment=environment)
    storage.failures = [failure]
    with pytest.raises(raised):
        log.update_config(CONFIG)
    assert environment.delayed_limit.in_all == 0
    log.update_config(CONFIG)
    assert waiting(log) == {1: 30, 2: 20}
    assert environment.delayed_limit.in_all == 2
    assert waiting(again(log)) == {1: 30, 2: 20}
