"""The rights that each API asks for, by its name. `docs/protocol-support.md` shows them.

An API without a right serves everybody. Source: Kafka's KafkaApis, ControllerApis, AclApis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from seqgate.gateway.security.acls.access import Operation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID: Final = ResourceType.TRANSACTIONAL_ID
_KINDS: Final = {
    _TOPIC: "the topic",
    _GROUP: "the group",
    _CLUSTER: "the cluster",
    _ID: "the transactional id",
    ResourceType.USER: "the user",
    ResourceType.DELEGATION_TOKEN: "the token",
}


class Right(NamedTuple):
    """One right; `note` says when it is needed, or what it is for."""

    operation: Operation
    resource_type: ResourceType
    note: str = ""

    def __str__(self) -> str:
        """Return the right as the documentation writes it: "`WRITE` on the topic", followed by the note in
        parentheses.
        """
        note = f" ({self.note})" if self.note else ""
        return f"`{self.operation.name}` on {_KINDS[self.resource_type]}{note}"


_OPERATIONS_FIELD: Final = "else the list of authorized operations is empty"
_GROUP_READ: Final = (Right(Operation.READ, _GROUP),)
_GROUP_AND_ITS_TOPICS: Final = (
    Right(Operation.READ, _GROUP),
    Right(Operation.DESCRIBE, _TOPIC, "each topic that is named, or that a regular expression finds"),
)
_BETWEEN_GATEWAYS: Final = (Right(Operation.CLUSTER_ACTION, _CLUSTER),)
_READS_OFFSETS: Final = (Right(Operation.DESCRIBE, _GROUP), Right(Operation.DESCRIBE, _TOPIC))
_MAY_ALTER_CONFIGS: Final = (
    Right(Operation.ALTER_CONFIGS, _TOPIC, "its configurations"),
    Right(Operation.ALTER_CONFIGS, _GROUP, "its configurations"),
    Right(Operation.ALTER_CONFIGS, _CLUSTER, "configurations of brokers, their loggers and client metrics"),
)

NEEDED_RIGHTS: Final[Mapping[str, tuple[Right, ...]]] = {
    "Produce": (Right(Operation.WRITE, _TOPIC), Right(Operation.WRITE, _ID, "batches in a transaction")),
    "Fetch": (
        Right(Operation.READ, _TOPIC),
        Right(Operation.CLUSTER_ACTION, _CLUSTER, "instead, with a replica id"),
    ),
    "ListOffsets": (Right(Operation.DESCRIBE, _TOPIC),),
    "Metadata": (
        Right(Operation.DESCRIBE, _TOPIC),
        Right(Operation.CREATE, _CLUSTER, "to create unknown topics"),
        Right(Operation.CREATE, _TOPIC, "or this, to create it"),
        Right(Operation.DESCRIBE, _CLUSTER, _OPERATIONS_FIELD),
    ),
    "OffsetCommit": (Right(Operation.READ, _GROUP), Right(Operation.READ, _TOPIC)),
    "OffsetFetch": _READS_OFFSETS,
    "FindCoordinator": (
        Right(Operation.DESCRIBE, _GROUP),
        Right(Operation.DESCRIBE, _ID),
        Right(Operation.CLUSTER_ACTION, _CLUSTER, "partitions of share groups"),
    ),
    "JoinGroup": _GROUP_READ,
    "Heartbeat": _GROUP_READ,
    "LeaveGroup": _GROUP_READ,
    "SyncGroup": _GROUP_READ,
    "DescribeGroups": (Right(Operation.DESCRIBE, _GROUP),),
    "ListGroups": (
        Right(Operation.DESCRIBE, _CLUSTER, "shows all groups"),
        Right(Operation.DESCRIBE, _GROUP, "shows the group"),
    ),
    "ApiVersions": (),
    "CreateTopics": (
        Right(Operation.CREATE, _CLUSTER),
        Right(Operation.CREATE, _TOPIC, "or this"),
        Right(Operation.DESCRIBE_CONFIGS, _TOPIC, "else the answer has no configuration"),
    ),
    "DeleteTopics": (
        Right(Operation.DELETE, _CLUSTER),
        Right(Operation.DELETE, _TOPIC, "or this, and DESCRIBE where the topic is named"),
        Right(Operation.DESCRIBE, _TOPIC, "to learn whether the name exists, or the name of an id"),
    ),
    "DeleteRecords": (Right(Operation.DELETE, _TOPIC),),
    "InitProducerId": (
        Right(Operation.WRITE, _ID, "with a transactional id"),
        Right(Operation.IDEMPOTENT_WRITE, _CLUSTER, "without"),
        Right(Operation.WRITE, _TOPIC, "or this, on any topic"),
    ),
    "OffsetForLeaderEpoch": (
        Right(Operation.DESCRIBE, _TOPIC),
        Right(Operation.CLUSTER_ACTION, _CLUSTER, "or this, for all topics"),
    ),
    "AddPartitionsToTxn": (
        Right(Operation.WRITE, _ID, "up to v3"),
        Right(Operation.WRITE, _TOPIC),
        Right(Operation.CLUSTER_ACTION, _CLUSTER, "from v4 on"),
    ),
    "AddOffsetsToTxn": (Right(Operation.WRITE, _ID), Right(Operation.READ, _GROUP)),
    "EndTxn": (Right(Operation.WRITE, _ID),),
    "TxnOffsetCommit": (
        Right(Operation.WRITE, _ID),
        Right(Operation.READ, _GROUP),
        Right(Operation.READ, _TOPIC),
    ),
    "WriteTxnMarkers": (
        Right(Operation.CLUSTER_ACTION, _CLUSTER),
        Right(Operation.ALTER, _CLUSTER, "or this"),
    ),
    "DescribeAcls": (Right(Operation.DESCRIBE, _CLUSTER),),
    "CreateAcls": (Right(Operation.ALTER, _CLUSTER),),
    "DeleteAcls": (Right(Operation.ALTER, _CLUSTER),),
    "DescribeConfigs": (
        Right(Operation.DESCRIBE_CONFIGS, _TOPIC, "its configurations"),
        Right(Operation.DESCRIBE_CONFIGS, _GROUP, "its configurations"),
        Right(Operation.DESCRIBE_CONFIGS, _CLUSTER, "configurations of brokers and their loggers"),
    ),
    "AlterConfigs": _MAY_ALTER_CONFIGS,
    "IncrementalAlterConfigs": _MAY_ALTER_CONFIGS,
    "AlterReplicaLogDirs": (Right(Operation.ALTER, _CLUSTER),),
    "DescribeLogDirs": (Right(Operation.DESCRIBE, _CLUSTER),),
    "CreatePartitions": (Right(Operation.ALTER, _TOPIC),),
    "DeleteGroups": (Right(Operation.DELETE, _GROUP),),
    "ElectLeaders": (Right(Operation.ALTER, _CLUSTER),),
    "AlterPartitionReassignments": (Right(Operation.ALTER, _CLUSTER),),
    "ListPartitionReassignments": (Right(Operation.DESCRIBE, _CLUSTER),),
    "OffsetDelete": (Right(Operation.DELETE, _GROUP), Right(Operation.READ, _TOPIC)),
    "DescribeClientQuotas": (Right(Operation.DESCRIBE_CONFIGS, _CLUSTER),),
    "AlterClientQuotas": (Right(Operation.ALTER_CONFIGS, _CLUSTER),),
    "DescribeUserScramCredentials": (Right(Operation.DESCRIBE, _CLUSTER),),
    "AlterUserScramCredentials": (Right(Operation.ALTER, _CLUSTER),),
    "DescribeQuorum": (Right(Operation.DESCRIBE, _CLUSTER),),
    "UpdateFeatures": (Right(Operation.ALTER, _CLUSTER),),
    "DescribeCluster": (Right(Operation.DESCRIBE, _CLUSTER, _OPERATIONS_FIELD),),
    "DescribeProducers": (Right(Operation.READ, _TOPIC),),
    "BrokerHeartbeat": (Right(Operation.CLUSTER_ACTION, _CLUSTER),),
    "UnregisterBroker": (Right(Operation.ALTER, _CLUSTER),),
    "DescribeTransactions": (
        Right(Operation.DESCRIBE, _ID),
        Right(Operation.DESCRIBE, _TOPIC, "else the answer leaves out its partitions"),
    ),
    "ListTransactions": (Right(Operation.DESCRIBE, _ID, "shows its transaction"),),
    "ConsumerGroupHeartbeat": _GROUP_AND_ITS_TOPICS,
    "ConsumerGroupDescribe": (
        Right(Operation.DESCRIBE, _GROUP),
        Right(Operation.DESCRIBE, _TOPIC, "each topic that a member has or shall have"),
    ),
    "GetTelemetrySubscriptions": (),
    "PushTelemetry": (),
    "ListConfigResources": (Right(Operation.DESCRIBE_CONFIGS, _CLUSTER),),
    "DescribeTopicPartitions": (Right(Operation.DESCRIBE, _TOPIC),),
    "ShareGroupHeartbeat": _GROUP_AND_ITS_TOPICS,
    "ShareGroupDescribe": (
        Right(Operation.DESCRIBE, _GROUP),
        Right(Operation.DESCRIBE, _TOPIC, "each topic that a member has or shall have"),
    ),
    "ShareFetch": (Right(Operation.READ, _GROUP), Right(Operation.READ, _TOPIC)),
    "ShareAcknowledge": (Right(Operation.READ, _GROUP), Right(Operation.READ, _TOPIC)),
    "InitializeShareGroupState": _BETWEEN_GATEWAYS,
    "ReadShareGroupState": _BETWEEN_GATEWAYS,
    "WriteShareGroupState": _BETWEEN_GATEWAYS,
    "DeleteShareGroupState": _BETWEEN_GATEWAYS,
    "ReadShareGroupStateSummary": _BETWEEN_GATEWAYS,
    "DescribeShareGroupOffsets": _READS_OFFSETS,
    "AlterShareGroupOffsets": (Right(Operation.READ, _GROUP), Right(Operation.READ, _TOPIC)),
    "DeleteShareGroupOffsets": (Right(Operation.DELETE, _GROUP), Right(Operation.READ, _TOPIC)),
    "StreamsGroupHeartbeat": (
        Right(Operation.READ, _GROUP),
        Right(Operation.DESCRIBE, _TOPIC, "each topic of the topology"),
        Right(Operation.CREATE, _CLUSTER, "to create internal topics"),
        Right(Operation.CREATE, _TOPIC, "or this, to create it"),
    ),
    "StreamsGroupDescribe": (
        Right(Operation.DESCRIBE, _GROUP),
        Right(Operation.DESCRIBE, _TOPIC, "each topic of the topology"),
    ),
    # the login itself, and what every principal may do for itself
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "CreateDelegationToken": (Right(Operation.CREATE_TOKENS, ResourceType.USER, "for another owner"),),
    "RenewDelegationToken": (),
    "ExpireDelegationToken": (),
    "DescribeDelegationToken": (
        Right(Operation.DESCRIBE_TOKENS, ResourceType.USER, "tokens of another owner"),
        Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "or this"),
    ),
}
