"""The port through which segments use the objects that all segments of the process share, such as the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from log.files.data_file import DataFile
    from log.files.durable_files import DurableFiles
    from log.files.storage import Storage
    from log.segments.damage_register import DamageRegister
    from log.segments.indexes import IndexCache, SegmentIndexes
    from log.segments.rebuilt_indexes import RebuiltIndexes
    from log.segments.transaction_index import TransactionIndex


class SegmentEnvironment(Protocol):
    """The storage, the caches of indexes and the known damage; `log.environment.LogEnvironment` has them."""

    storage: Storage
    index_cache: IndexCache[SegmentIndexes]
    transaction_index_cache: IndexCache[TransactionIndex]
    rebuilt_indexes: RebuiltIndexes
    damage: DamageRegister

    @property
    def durability(self) -> DurableFiles:
        """The durability that persists files and directories."""

    def forget_file(self, file: DataFile) -> None:
        """Drop everything in memory about a segment file that is closed for good."""

    def forget_indexes(self, path: str) -> None:
        """Drop the cached indexes of the segment file `path`, which changes or is removed."""
