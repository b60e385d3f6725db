"""The records of the metadata log and their encoding.

A record's value is JSON in the shape in which Kafka's tools print the records of KRaft:
`{"type": "TOPIC_RECORD", "version": 0, "data": {"name": ..., "topicId": ...}}`. Field names follow Kafka's
(`metadata/src/main/resources/common/metadata`); topic ids are URL-safe base64 as Kafka prints them.
"""

from __future__ import annotations

import base64
import math
import re
import uuid
from typing import Any, Final, get_args

import msgspec

from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.sasl.scram_credential import ScramHash

_VERSION = 0


class UnknownRecordError(ValueError):
    """A stored metadata record has a type or version that this release does not know."""


class TopicRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A topic was created."""

    name: str
    topic_id: uuid.UUID


class PartitionRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A partition of a topic was created, its leadership was set, or a move of its leadership was ordered. As
    in Kafka, `replicas` has the brokers of `adding_replicas` and of `removing_replicas` while the partition
    is reassigned. Its leader hands the partition over to `next_leader`, and commits the end of the
    reassignment; -1 orders no move.
    """

    partition_id: int
    topic_id: uuid.UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    next_leader: int = -1


class RemoveTopicRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A topic was deleted, with its partitions and its configurations."""

    topic_id: uuid.UUID


MAX_CONFIG_BYTES: Final = 32_767
"""Longest name and value of a configuration, in bytes: the longest string of Kafka's older versions."""


class ConfigRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One configuration of a resource was set, or removed when `value` is None."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class ProducerIdsRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A block of producer ids was claimed: `first_producer_id` up to `next_producer_id`, exclusive. With
    `first_producer_id` -1 nothing was claimed: the next id was only moved forward.
    """

    broker_id: int
    broker_epoch: int
    next_producer_id: int
    first_producer_id: int = -1
    owner: str = ""
    claimed_at_ms: int = -1


class AccessControlEntryRecord(msgspec.Struct, frozen=True, rename="camel"):
    """An access control entry was created."""

    id: uuid.UUID
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission_type: Permission


class RemoveAccessControlEntryRecord(msgspec.Struct, frozen=True, rename="camel"):
    """An access control entry was deleted."""

    id: uuid.UUID


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The types and names of a quota's entity, sorted by type; a name of None is the default of its type."""
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
KEYS_OF_CLIENTS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""The keys for users, client ids, and pairs of both."""
KEYS_OF_ADDRESSES: Final = (CONNECTION_CREATION_RATE,)


class ClientQuotaRecord(msgspec.Struct, frozen=True):
    """One quota of an entity was set, or removed when `remove` is set."""

    entity: QuotaEntity
    key: str
    value: float = 0.0
    remove: bool = False


class UserScramCredentialRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A user's credential for a SCRAM mechanism was set."""

    name: str
    mechanism: ScramHash
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Return the text for logs, without the keys."""
        return f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism})"


class RemoveUserScramCredentialRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A user's credential for a SCRAM mechanism was deleted."""

    name: str
    mechanism: ScramHash


class DelegationTokenRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A token was created or renewed, or its expiry was set. Principals are text, such as `User:ann`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


class RemoveDelegationTokenRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A delegation token was removed."""

    token_id: str


class BrokerEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """The address at which clients of one listener reach a broker."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class RegisterBrokerRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A broker joined the cluster, or joined again: each time with a higher `broker_epoch`. `cluster_version`
    is the newest version of the cluster's formats that the broker's release can write, and `lease_ms` how
    long the broker answers readers after its last confirmed object: others take it over only after that.
    """

    broker_id: int
    incarnation_id: uuid.UUID
    broker_epoch: int
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    cluster_version: int = 0
    lease_ms: int = 0


class BrokerRegistrationChangeRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A broker was fenced (1): it leads nothing until it is unfenced (-1). 0 changes nothing, as in Kafka.
    With `in_controlled_shutdown` 1 the broker hands over all partitions that it leads, and gets no new ones
    until it registers again.
    """

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0


class UnregisterBrokerRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A broker left the cluster for good."""

    broker_id: int
    broker_epoch: int


class FeatureLevelRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The level of a feature was set: all live brokers have it."""

    name: str
    feature_level: int


class SnapshotRecord(msgspec.Struct, frozen=True):
    """The records behind this one, in the same batch, say all that the records before it said."""


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ClientQuotaRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | UnregisterBrokerRecord
    | FeatureLevelRecord
    | SnapshotRecord
)

_TYPES: dict[str, type[Any]] = {
    re.sub(r"\B(?=[A-Z])", "_", record_type.__name__).upper(): record_type
    for record_type in get_args(MetadataRecord)
}
"""The record types by their stored names, such as TOPIC_RECORD."""
_TYPE_NAMES: dict[type[Any], str] = {record_type: name for name, record_type in _TYPES.items()}
_ID_FIELDS: dict[type[Any], tuple[str, ...]] = {
    record_type: tuple(
        field.encode_name for field in msgspec.structs.fields(record_type) if field.type is uuid.UUID
    )
    for record_type in _TYPE_NAMES
}
"""The stored names of the fields that have ids, which are written as Kafka prints them."""
_ONLY_IN_A_MOVE = ("addingReplicas", "removingReplicas", "nextLeader")
"""The stored names of the fields that only a partition has whose move was ordered."""


class _Envelope(msgspec.Struct, frozen=True):
    type: str
    version: int
    data: dict[str, Any]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Envelope)


def topic_id_from_text(text: str) -> uuid.UUID:
    """Return the topic id that Kafka prints as `text`. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def encode_record(record: MetadataRecord) -> bytes:
    data: dict[str, Any] = msgspec.to_builtins(record, builtin_types=(uuid.UUID,))
    for name in _ID_FIELDS[type(record)]:
        data[name] = topic_id_text(data[name])
    if isinstance(record, PartitionRecord) and record.next_leader < 0 and not record.adding_replicas:
        for name in _ONLY_IN_A_MOVE:
            del data[name]
    elif isinstance(record, ClientQuotaRecord):
        data["entity"] = [{"entityType": kind, "entityName": name} for kind, name in record.entity]
        if not math.isfinite(record.value):
            data["value"] = str(record.value)  # JSON has no such numbers
    return _encoder.encode({"type": _TYPE_NAMES[type(record)], "version": _VERSION, "data": data})


def decode_record(value: bytes) -> MetadataRecord:
    """Decode a record of the log. Raises UnknownRecordError when malformed, or written by a later release."""
    try:
        envelope = _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnknownRecordError(f"metadata record is malformed: {error}") from error
    record_type = _TYPES.get(envelope.type)
    if record_type is None or envelope.version != _VERSION:
        raise UnknownRecordError(
            f"metadata record {envelope.type} has version {envelope.version}; this program reads version "
            f"{_VERSION} of {', '.join(_TYPES)}"
        )
    data = envelope.data
    try:
        for name in _ID_FIELDS[record_type]:
            if name in data:
                data[name] = topic_id_from_text(data[name])
        if record_type is ClientQuotaRecord:
            data["entity"] = [(part["entityType"], part["entityName"]) for part in data["entity"]]
            data["value"] = float(data["value"])
        record: MetadataRecord = msgspec.convert(data, record_type)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
        raise UnknownRecordError(f"metadata record {envelope.type} is malformed: {error}") from error
    return record
