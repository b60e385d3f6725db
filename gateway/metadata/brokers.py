"""The brokers that the metadata log registers.

A gateway that serves alone registers no broker: then every partition is its own. Source: Kafka's ClusterImage,
BrokerRegistration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

_FENCED: Final = 1
_UNFENCED: Final = -1


class StoredBrokers:
    """The registered brokers of the metadata image, by node id."""

    def __init__(self) -> None:
        self.by_id: dict[int, RegisterBrokerRecord] = {}

    def live(self, node_id: int) -> Sequence[int]:
        """Return the node ids that may lead partitions, in order; `node_id` alone where no broker is registered."""
        if not self.by_id:
            return (node_id,)
        return sorted(broker_id for broker_id, broker in self.by_id.items() if not broker.fenced)

    def replay(
        self, record: RegisterBrokerRecord | BrokerRegistrationChangeRecord | UnregisterBrokerRecord
    ) -> None:
        """Replay one record. A change of an earlier registration, or of an unknown broker, changes nothing."""
        if isinstance(record, RegisterBrokerRecord):
            self.by_id[record.broker_id] = record
            return
        broker = self.by_id.get(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            return
        if isinstance(record, UnregisterBrokerRecord):
            del self.by_id[record.broker_id]
        elif record.fenced in {_FENCED, _UNFENCED}:
            self.by_id[record.broker_id] = msgspec.structs.replace(broker, fenced=record.fenced == _FENCED)
