"""Applies settings to parts that do not read settings themselves."""

from __future__ import annotations

from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.machine import split_file_handles
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.log import Storage
from seqgate.seq_validator import ProducerLimit
from seqgate.seq_validator.names import NameBudget


def follow_limits(
    config: Config, flusher: LogFlusher, storage: Storage, handles_limit: int, limit: ProducerLimit
) -> None:
    """Apply the limits now and after each change. The process may open `handles_limit` files. After a limit
    was lowered, surplus files are closed, and surplus producers evicted, by the next one.
    """

    def apply() -> None:
        flusher.inline_limit_s = config.double("seqgate.flush.inline.max.ms") / 1000
        handles = split_file_handles(handles_limit, config.int("seqgate.log.max.open.files"))
        storage.descriptors.limit = handles.files
        limit.max_per_partition = config.int("seqgate.producer.max.per.partition")
        limit.max_in_all = config.int("seqgate.producer.max")
        limit.min_idle_ms = config.int("seqgate.producer.min.idle.ms")

    config.follow(apply)


def limit_names(config: Config, budget: NameBudget) -> None:
    """Apply the limits on producer names, which a restart changes."""
    budget.max_in_all = config.int("seqgate.deduplication.names.max")
    budget.min_idle_ms = config.int("seqgate.deduplication.min.idle.ms")
