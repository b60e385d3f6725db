"""Changes the settings of an open partition log, and captures its record states."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from log.config import LogConfig
    from log.partition_log import PartitionLog


def update_config(log: PartitionLog, config: LogConfig) -> None:
    """Use another configuration of the topic from now on. Raises StorageFailed when the log can't be replayed for it, NotCached.

    Takes the log offline when its side files can't be read or written.
    """
    before, log.config = log.config, config
    log.lists.retention.changed(log)
    if log.offline:
        return
    try:
        log.record_states.change(config, before)
    except OSError as error:
        log.outage.begin(f"the side files of the log can't be read or written: {error}", error)


def alter_delays(log: PartitionLog, config: LogConfig) -> None:
    """Use another `delivery.delay.header`, or none. Waiting records are due at once; the header counts for later records."""
    log.config = config
    log.lists.retention.changed(log)
    if not log.offline:
        log.record_states.alter_delays(config)


def capture_names(log: PartitionLog) -> bool:
    """Capture the producer names for the next flush. Return False if all are saved or not fully replayed, or the log is offline."""
    return not log.offline and log.record_states.capture_names()


def capture_delays(log: PartitionLog) -> bool:
    """Capture the delayed records for the next flush. Return False if all are saved, or the log is offline."""
    return not log.offline and log.record_states.capture_delays()


def expire_producers(log: PartitionLog, now_ms: int) -> int:
    """Forget producers that are idle for producer.id.expiration.ms. Return the number of producers."""
    return log.producers.expire(now_ms, log.config.producer_id_expiration_ms)
