"""The brokers that the metadata log registers, and their sessions that have ended.

A gateway that serves alone registers no broker: then every partition is its own. Source: Kafka's
ClusterImage, BrokerRegistration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

CLUSTER_VERSION_FEATURE: Final = "seqgate.cluster.version"
"""The feature whose level is the version of the formats that the cluster uses."""
_YES: Final = 1
_NO: Final = -1


class StoredBrokers:
    """The registered brokers of the metadata image, by node id."""

    def __init__(self) -> None:
        self.by_id: dict[int, RegisterBrokerRecord] = {}
        self.ended: dict[int, int] = {}
        """The node ids of sessions that have ended, by the number of the session, which is a broker epoch.
        Their logs may have records that no manifest names; `forget_ended` drops those whose logs were
        collected."""
        self.cluster_version = 0
        """The version of the cluster's formats, which every live broker knows. 0 before the first broker."""

    def live(self, node_id: int) -> Sequence[int]:
        """Return the node ids that may lead partitions, in order; `node_id` alone without any broker."""
        if not self.by_id:
            return (node_id,)
        return sorted(broker_id for broker_id, broker in self.by_id.items() if not broker.fenced)

    def draining(self) -> Sequence[int]:
        """Return the node ids of the live brokers that hand over what they lead, in order."""
        return sorted(
            broker_id
            for broker_id, broker in self.by_id.items()
            if broker.in_controlled_shutdown and not broker.fenced
        )

    def is_drained(self, node_id: int) -> bool:
        """Whether the last order to drain this broker is in force, or the broker has ended."""
        broker = self.by_id.get(node_id)
        return broker is None or broker.fenced or broker.in_controlled_shutdown

    def is_current(self, node_id: int, broker_epoch: int) -> bool:
        """Whether this session of the node is registered, and not fenced."""
        broker = self.by_id.get(node_id)
        return broker is not None and broker.broker_epoch == broker_epoch and not broker.fenced

    def forget_ended(self, boundary: int) -> None:
        """Forget the ended sessions below `boundary`: the history of partitions has all of their records."""
        for session in [session for session in self.ended if session < boundary]:
            del self.ended[session]

    def why_ended(self, node_id: int, session: int) -> str | None:
        """Return why this session of a broker must not act any more, as a sentence; None while it may, or is
        not registered yet. The epoch of a broker is the number of the session that registered it.
        """
        broker = self.by_id.get(node_id)
        if broker is None or broker.broker_epoch < session:
            return None
        if broker.broker_epoch > session:
            return (
                f"session {broker.broker_epoch} has registered the broker {node_id} after session {session}"
            )
        return f"the broker {node_id} of session {session} is fenced" if broker.fenced else None

    def replay(
        self,
        record: RegisterBrokerRecord
        | BrokerRegistrationChangeRecord
        | UnregisterBrokerRecord
        | FeatureLevelRecord,
    ) -> None:
        """Replay one record. A change of an earlier registration or of an unknown broker has no effect."""
        if isinstance(record, FeatureLevelRecord):
            if record.name == CLUSTER_VERSION_FEATURE:
                self.cluster_version = record.feature_level
            return
        broker = self.by_id.get(record.broker_id)
        if isinstance(record, RegisterBrokerRecord):
            if broker is not None and broker.broker_epoch != record.broker_epoch:
                self.ended[broker.broker_epoch] = broker.broker_id
            self._set(record)
        elif broker is None or broker.broker_epoch != record.broker_epoch:
            return
        elif isinstance(record, UnregisterBrokerRecord):
            self.ended[broker.broker_epoch] = broker.broker_id
            del self.by_id[record.broker_id]
        else:
            self._set(_changed(broker, record))

    def _set(self, broker: RegisterBrokerRecord) -> None:
        self.by_id[broker.broker_id] = broker
        if broker.fenced:
            self.ended[broker.broker_epoch] = broker.broker_id
        else:
            self.ended.pop(broker.broker_epoch, None)


def _changed(broker: RegisterBrokerRecord, change: BrokerRegistrationChangeRecord) -> RegisterBrokerRecord:
    fenced, leaving = broker.fenced, broker.in_controlled_shutdown
    if change.fenced in {_YES, _NO}:
        fenced = change.fenced == _YES
    if change.in_controlled_shutdown in {_YES, _NO}:
        leaving = change.in_controlled_shutdown == _YES
    return msgspec.structs.replace(broker, fenced=fenced, in_controlled_shutdown=leaving)
