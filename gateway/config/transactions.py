"""Settings of transactions and of transactional ids."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import Setting, SettingType, whole_number

_TRANSACTIONS = "Transactions"
_number = partial(whole_number, _TRANSACTIONS)

TRANSACTION_SETTINGS = (
    _number(
        "transaction.max.timeout.ms",
        900_000,
        "Longest transaction timeout that a producer may ask for.",
    ),
    _number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "Interval at which open transactions that have timed out are aborted.",
    ),
    _number(
        "transactional.id.expiration.ms",
        604_800_000,
        "Time after its last transaction for which a transactional id is remembered.",
    ),
    _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "Interval at which expired transactional ids are forgotten.",
    ),
    Setting(
        name="transaction.partition.verification.enable",
        type=SettingType.BOOLEAN,
        default=True,
        dynamic=True,
        section=_TRANSACTIONS,
        doc="Whether a transactional batch is refused when its partition was not added to the open transaction. Applies to "
        "producers that add partitions themselves (before Produce v12).",
    ),
    _number(
        "transaction.state.log.num.partitions",
        50,
        "Partitions that `__transaction_state` is created with.",
    ),
    _number(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of `__transaction_state`.",
    ),
    _number(
        "seqgate.transactional.id.max",
        100_000,
        "Transactional ids that are remembered at once. A further transactional id is refused with POLICY_VIOLATION.",
        dynamic=True,
    ),
    _number(
        "seqgate.transaction.partitions.max",
        10_000,
        "Partitions that may take part in one transaction. A further partition is refused with POLICY_VIOLATION.",
        dynamic=True,
    ),
)
