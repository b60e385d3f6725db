"""Decodes DescribeTransactions: a transaction that has not begun has the start −1, which kio decodes as None."""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.describe_transactions.v0 import response as v0
from kio.static.constants import EntityType
from kio.static.primitive import i64


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(v0.TransactionState):
    __type__: ClassVar = EntityType.nested
    transaction_start_time: i64 = field(metadata={"kafka_type": "int64"})  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(v0.DescribeTransactionsResponse):
    __type__: ClassVar = EntityType.response
    transaction_states: tuple[TransactionState, ...]
