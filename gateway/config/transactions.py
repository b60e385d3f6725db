"""Settings of transactions and the transactional ids that producers give."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import Setting, SettingType, whole_number

_TRANSACTIONS = "Transactions"
_number = partial(whole_number, _TRANSACTIONS)

TRANSACTION_SETTINGS = (
    _number(
        "transaction.max.timeout.ms",
        900_000,
        "The longest time that a producer may ask for before its open transaction is aborted.",
    ),
    _number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often open transactions that take too long are looked for, to be aborted.",
    ),
    _number(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long a transactional id is known after its last transaction.",
    ),
    _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often transactional ids that are known for long enough are looked for, to be forgotten.",
    ),
    Setting(
        name="transaction.partition.verification.enable",
        type=SettingType.BOOLEAN,
        default=True,
        dynamic=True,
        section=_TRANSACTIONS,
        doc="Whether a transactional batch of a producer that adds its partitions itself (before Produce v12) is "
        "refused unless the partition was added to the open transaction.",
    ),
    _number(
        "transaction.state.log.num.partitions", 50, "Partitions of `__transaction_state` when it is created."
    ),
    _number(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of `__transaction_state`.",
    ),
    _number(
        "seqgate.transactional.id.max",
        100_000,
        "Transactional ids that are known at the same time; a further one is refused with POLICY_VIOLATION.",
        dynamic=True,
    ),
    _number(
        "seqgate.transaction.partitions.max",
        10_000,
        "Partitions that may take part in one transaction; a further one is refused with POLICY_VIOLATION.",
        dynamic=True,
    ),
)
