"""Opens the stored logs of a data directory: reads their topic ids, and loads the logs; a thread recovers some of them first."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from log.config import LogConfig
from log.errors import NeedsRecovery
from log.files.checkpoints import (
    CorruptCheckpoint,
    decode_partition_metadata,
    encode_partition_metadata,
)
from log.files.file_names import PARTITION_METADATA
from log.partition_log import PartitionLog
from log.place import LogPlace
from log.recovery.recovering import Recovery

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from log.directory.stored_logs import StoredLog
    from log.environment import LogEnvironment
    from log.log_lists import LogLists

_logger = logging.getLogger(__name__)


class Opening:
    """Opens logs. While the gateway serves, a log whose files are not as a clean stop recorded them must be recovered in
    a thread first.

    Logs use `config` until they get the settings of their topics.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        path: Path,
        now_ms: Callable[[], int],
        lists: LogLists[PartitionLog],
    ) -> None:
        """Take the data directory. Recoveries and loads happen in one step until `is_serving`."""
        self.config = LogConfig()
        self.is_serving = False
        self._environment = environment
        self._path = path
        self._now_ms = now_ms
        self._lists = lists

    def metadata_of(self, directory: str, known: uuid.UUID | None) -> bytes | None:
        """Return the sound content of a partition's `partition.metadata`; None without one. Raises OSError, IncompatibleFormat.

        In place of a damaged topic id it has `known`, the topic id of the clean stop before this start.
        """
        path = f"{directory}/{PARTITION_METADATA}"
        try:
            content = self._environment.storage.read_file(path)
            decode_partition_metadata(content, path)
        except FileNotFoundError:
            return None
        except CorruptCheckpoint as error:
            if known is None:
                return None
            _logger.warning("%s The topic id is the one of the last clean stop.", error)
            return encode_partition_metadata(known)
        return content

    def open(self, key: tuple[str, int], stored: StoredLog, metadata: bytes) -> PartitionLog:
        """Load a stored log. Raises OSError, IncompatibleFormat, and NeedsRecovery while the gateway serves."""
        place = self._place(key, metadata)
        trusted = stored.topic_id in {None, place.topic_id}
        stop = stored.stop if trusted else None
        path = f"{place.directory}/{PARTITION_METADATA}"
        is_as_stored = self._environment.storage.read_file(path) == metadata
        if self.is_serving and (stop is None or not is_as_stored):
            raise NeedsRecovery(f"{place} must be recovered first")
        if not is_as_stored:
            self._environment.durability.replace(path, metadata)
        elif stop is None:
            # The file may not be durable: the crash may have come before the first flush, or that flush may
            # have failed.
            self._environment.durability.ensure(path, metadata)
        return PartitionLog(
            self._environment,
            place.directory,
            topic=place.topic,
            partition=place.partition,
            topic_id=place.topic_id,
            config=self.config,
            now_ms=self._now_ms(),
            lists=self._lists,
            recovery_point=stored.recovery_point if trusted else 0,
            clean_stop=stop,
            may_check=not self.is_serving,
            may_mend=not self.is_serving or stored.is_recovered,
        )

    def recovery(self, key: tuple[str, int], stored: StoredLog, metadata: bytes) -> Recovery:
        """Return the recovery of a stored log, to run in a thread."""
        place = self._place(key, metadata)
        recovery_point = stored.recovery_point if stored.topic_id in {None, place.topic_id} else 0
        return Recovery(
            self._environment, place, self.config, recovery_point, self._now_ms(), metadata=metadata
        )

    def _place(self, key: tuple[str, int], metadata: bytes) -> LogPlace:
        directory = str(self._path / f"{key[0]}-{key[1]}")
        return LogPlace(directory, *key, decode_partition_metadata(metadata, PARTITION_METADATA))


def start_summary(count: int, checked: int, cut: int, *, was_clean: bool) -> str:
    """Return the log line about a start: the number of partitions, how many were checked, and the bytes cut off."""
    if was_clean:
        return f"clean stop: partitions {count}, no record data read"
    if not count:
        return "new data directory"
    torn = f"{cut} torn bytes cut off" if cut else "nothing cut off"
    return f"unclean stop: partitions {count}, {checked} of them checked, {torn}"
