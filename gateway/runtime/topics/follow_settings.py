"""Applies settings to parts that do not read settings themselves, now and after each change."""

from __future__ import annotations

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.machine import split_file_handles
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.log import Storage
from seqgate.pid_allocator import ProducerIdAllocator
from seqgate.seq_validator import ProducerLimit
from seqgate.seq_validator.names import NameBudget


def follow_open_files(config: Config, storage: Storage, handles_limit: int) -> None:
    """Follow `seqgate.log.max.open.files`, but at most the files that the process may open (`handles_limit`).
    After the limit was lowered, surplus files are closed when the next file is opened.
    """

    def apply() -> None:
        storage.descriptors.limit = split_file_handles(
            handles_limit, config.int("seqgate.log.max.open.files")
        ).files

    config.follow(apply)


def follow_producer_limit(config: Config, limit: ProducerLimit) -> None:
    """Follow `seqgate.producer.max` and its like. A new producer evicts those beyond a lowered limit."""

    def apply() -> None:
        limit.max_per_partition = config.int("seqgate.producer.max.per.partition")
        limit.max_in_all = config.int("seqgate.producer.max")
        limit.min_idle_ms = config.int("seqgate.producer.min.idle.ms")

    config.follow(apply)


def limit_names(config: Config, budget: NameBudget) -> None:
    """Apply the limits on producer names, which a restart changes."""
    budget.max_in_all = config.int("seqgate.deduplication.names.max")
    budget.min_idle_ms = config.int("seqgate.deduplication.min.idle.ms")


def follow_flusher(config: Config, flusher: LogFlusher) -> None:
    """Follow `seqgate.flush.inline.max.ms`, from the next flush on."""

    def apply() -> None:
        flusher.inline_limit_s = config.double("seqgate.flush.inline.max.ms") / 1000

    config.follow(apply)


def put_limits(config: Config) -> PutLimits:
    """Return the limits on the objects that a gateway in a cluster writes."""
    return PutLimits(
        puts_per_second=config.int("seqgate.cluster.puts.per.second"),
        puts_in_flight=config.int("seqgate.cluster.puts.in.flight"),
        put_max_bytes=config.int("seqgate.cluster.put.max.bytes"),
        unwritten_max_bytes=config.int("seqgate.cluster.unwritten.max.bytes"),
    )


def follow_producer_ids(config: Config, producer_ids: ProducerIdAllocator) -> None:
    """Follow the settings for the size of the next block, and for when it is claimed."""

    def apply() -> None:
        producer_ids.block_size = config.int("seqgate.producer.id.block.size")
        producer_ids.prefetch_at = config.double("seqgate.producer.id.prefetch.ratio")

    config.follow(apply)
