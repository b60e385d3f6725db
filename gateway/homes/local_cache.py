"""The local disk as a cache of the segments in a bucket: history may be larger than the disk.

A segment that the bucket has, as a manifest that counts names it, may lose blocks of its local file to an
eviction, and gets them back when they are read. `seqgate.log.sparse` keeps anybody from reading a hole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from seqgate.gateway.cluster.cache.block_cache import BlockCache
from seqgate.gateway.cluster.cache.bucket import BucketSource, WaitingSource
from seqgate.gateway.cluster.cache.cache_state import CacheState
from seqgate.gateway.cluster.cache.eviction import NO_LIMIT, Eviction
from seqgate.gateway.cluster.objects.objects import Counts, ObjectStore
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.log import LocalDurability, LogDirectory
from seqgate.log.sparse import restore_residency, save_residency

RESERVES: Final = 2
"""How many times `seqgate.log.min.free.bytes` the eviction keeps free: it makes room before producers are
refused.
"""


class LocalCache:
    """The cache of one gateway in a bucket. From now on the machine's storage lets segment files have holes."""

    def __init__(self, config: Config, machine: Machine) -> None:
        """Change the machine's storage. No file may be open yet."""
        self._config = config
        self._machine = machine
        self._root = str(Path(config.str("log.dirs")))
        self.sparse = machine.let_files_have_holes()
        self.restored: dict[PartitionKey, Manifest] = {}
        """The manifests from which the data directory was made."""
        self.blocks: BlockCache
        self._waiting: WaitingSource | None = None
        self.eviction: Eviction | None = None

    @property
    def calls(self) -> Counts:
        """The calls to the bucket by threads that wait; those of the event loop are counted by the store that
        `open` takes.
        """
        return Counts() if self._waiting is None else self._waiting.counts

    def restore(self) -> bool:
        """Take over the holes that the last clean stop noted; return False if they are unknown. Raises
        OSError.
        """
        return restore_residency(self._machine.storage, self.sparse, self._root)

    def save(self) -> None:
        """Note the holes durably for the next start; nothing may read or evict any more. Raises OSError."""
        save_residency(LocalDurability(self._machine.storage), self.sparse, self._root)

    def open(self, objects: ObjectStore) -> None:
        """Fetch absent blocks from the bucket from now on."""
        self._waiting = WaitingSource(self._machine.bucket_calls(self._config), self.restored)
        self.sparse.source = self._waiting
        self.blocks = BlockCache(self.sparse, BucketSource(objects, self.restored))

    def serve(self, directory: LogDirectory) -> None:
        """Keep the local disk within its limit from now on."""
        config = self._config
        self.eviction = Eviction(
            self._machine.storage,
            self.sparse,
            self._root,
            limit_bytes=lambda: config.int("seqgate.cluster.cache.bytes"),
            reserve_bytes=lambda: RESERVES * config.int("seqgate.log.min.free.bytes"),
            log_bytes=lambda: _log_bytes(directory),
        )
        self.blocks.make_room = self.eviction.make_room
        self.blocks.when_filled.append(self.eviction.filled)
        self.eviction.start()

    def state(self) -> CacheState | None:
        """Return the counts of the cache; None before `serve`."""
        if self.eviction is None:
            return None
        limit_bytes = self._config.int("seqgate.cluster.cache.bytes")
        return CacheState(
            local_bytes=self.eviction.local_bytes,
            max_bytes=None if limit_bytes == NO_LIMIT else limit_bytes,
            blocks_fetched=self.blocks.blocks_fetched + self.sparse.blocks_waited_for,
            blocks_waited_for=self.sparse.blocks_waited_for,
            bytes_evicted=self.eviction.bytes_evicted,
        )

    async def stop(self) -> None:
        """Stop evicting blocks. Reads still fetch absent blocks."""
        if self.eviction is not None:
            await self.eviction.stop()

    def close(self) -> None:
        """Fetch nothing any more."""
        if self._waiting is not None:
            self._waiting.close()


def _log_bytes(directory: LogDirectory) -> int:
    """Return the bytes of all segments of all partitions, open or not."""
    opened = sum(log.size_bytes for log in directory.logs())
    return opened + sum(stored.size_bytes for stored in directory.stored().values())
