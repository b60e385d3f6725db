"""The messages of Apache Kafka 4.4 that kio lacks, whose newest release has those of 4.3, and the errors. And
what Seqgate adds to messages of Kafka: tagged fields, which everybody else skips (KIP-482).

A version is described by its changes to the classes of the version before, which are kio's. A field has a
name and a type in Kafka's notation: `[]int32` is an array, and `?` before a type says that it can be null.
The classes are of kio's kind, so that the reader and the writer of `schema` treat them alike. The fields that
keep their place keep kio's name: `generation_id` of TxnOffsetCommit is GenerationIdOrMemberEpoch in 4.4.
Source: Kafka's common/message/*.json, and Errors.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from datetime import timedelta
from functools import cache
from types import ModuleType
from typing import Any, Final

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import PayloadEntityType, api_key_map, schema_name_map
from kio.static.constants import EntityType

from seqgate.gateway.protocol.schema import shape


class LaterErrorCode(enum.IntEnum):
    """The errors that Kafka 4.4 adds; kio's `ErrorCode` has the earlier ones. Clients do not retry them."""

    group_deletion_failed = 134
    """DeleteGroups could not complete; see the error message on the per-group result for details."""
    streams_topology_description_update_failed = 135
    """The broker could not process the topology description update; see the error message for details."""
    controller_id_not_registered = 136
    """The given controller ID was not registered."""


API_NAMES: Final[Mapping[int, str]] = {
    **api_key_map,
    93: "streams_group_topology_description_update",
    94: "unregister_controller",
}
"""The names of all APIs by key, in kio's spelling."""


@cache
def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as DescribeAcls."""
    return "".join(map(str.capitalize, API_NAMES[api_key].split("_")))


_Change = tuple[str, str] | tuple[str, str, Any]
"""A new field: its name, type, and default. `new<old` puts it before the field `old`. A field without a type
is dropped.
"""
_Changes = Mapping[str, Sequence[_Change]]
"""The changes of a message's classes by name. A class that is new stands before those that have it."""

_ANSWER: Final = (
    ("throttle_time", "timedelta_i32"),
    ("error_code", "error_code"),
    ("error_message", "?string", None),
)
_DESCRIPTION: Final[_Changes] = {
    "TopologyDescriptionNode": (
        ("name", "string"),
        ("node_type", "int8"),
        ("source_topics", "[]string"),
        ("sink_topic", "?string", None),
        ("stores", "[]string"),
        ("successors", "[]string"),
    ),
    "TopologyDescriptionSubtopology": (("subtopology_id", "string"), ("nodes", "[]TopologyDescriptionNode")),
    "TopologyDescriptionGlobalStore": (
        ("source", "TopologyDescriptionNode"),
        ("processor", "TopologyDescriptionNode"),
    ),
    "TopologyDescription": (
        ("subtopologies", "[]TopologyDescriptionSubtopology"),
        ("global_stores", "[]TopologyDescriptionGlobalStore"),
    ),
}
"""The description of a streams group's topology (KIP-1331)."""
_BY_ID: Final = (("name", ""), ("topic_id<partitions", "uuid"))

_NEW: Final[Mapping[tuple[int, int], tuple[_Changes, _Changes]]] = {
    (18, 5): ({"ApiVersionsRequest": (("cluster_id", "?string", None), ("node_id", "int32", -1))}, {}),
    (28, 6): ({"TxnOffsetCommitRequestTopic": _BY_ID}, {"TxnOffsetCommitResponseTopic": _BY_ID}),
    (42, 3): ({}, {"DeletableGroupResult": (("error_message", "?string", None),)}),
    (88, 1): (
        {},
        {
            "StreamsGroupHeartbeatResponse": (
                ("acceptable_recovery_lag", ""),
                ("acceptable_recovery_lag<status", "int64", -1),
                ("topology_description_required<endpoint_information_epoch", "bool", False),
            )
        },
    ),
    (89, 1): (
        {"StreamsGroupDescribeRequest": (("include_topology_description", "bool", False),)},
        {
            **_DESCRIPTION,
            "DescribedGroup": (
                ("topology_description", "?TopologyDescription", None),
                ("topology_description_status", "int8", 0),
                ("assignor_name", "?string", None),
            ),
        },
    ),
    (93, 0): (
        {
            **_DESCRIPTION,
            "StreamsGroupTopologyDescriptionUpdateRequest": (
                ("group_id", "string"),
                ("member_id", "string"),
                ("topology_epoch", "int32"),
                ("topology_description", "TopologyDescription"),
            ),
        },
        {"StreamsGroupTopologyDescriptionUpdateResponse": _ANSWER},
    ),
    (94, 0): (
        {"UnregisterControllerRequest": (("controller_id", "int32"),)},
        {"UnregisterControllerResponse": (*_ANSWER[:2], ("error_message", "?string"))},
    ),
}
"""The changes of requests and answers, by API key and version."""

CLIENT_TAG: Final = 10_000
"""The tag of a producer's client in the answers to DescribeProducers and DescribeTransactions: JSON with the
fields of `ClientIdentity`. Kafka numbers its own tags from 0.
"""
QUESTION_TAG: Final = 10_001
"""The tag of a question in DescribeCluster, and of the answer: a request of the control socket that every
gateway answers for itself, and what the gateway answers there, as JSON.
"""
QUESTION_API: Final = 60, 0
"""The API and the version that carry questions: every gateway serves the version."""
_CLIENT: Final = (("client", "?string", None),)
_ADDED: Final[Mapping[tuple[int, int], tuple[int | None, _Changes, _Changes]]] = {
    QUESTION_API: (
        QUESTION_TAG,
        {"DescribeClusterRequest": (("question", "?string", None),)},
        {"DescribeClusterResponse": (("answer", "?bytes", None),)},
    ),
    (61, 0): (CLIENT_TAG, {}, {"ProducerState": _CLIENT}),
    (65, 0): (CLIENT_TAG, {}, {"TransactionState": _CLIENT}),
}
"""The tagged fields of requests and answers with their tag, by API key and version."""

_FLEXIBLE: Final = 64, 0
"""UnregisterBroker: a message with the headers of the messages that are new."""
_PYTHON_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "bytes": bytes,
    "bool": bool,
    "uuid": uuid.UUID | None,
    "timedelta_i32": timedelta,
    "error_code": ErrorCode,
}
"""The types of values; the others are numbers."""


def has_version(api_key: int, version: int) -> bool:
    """Return whether an API has messages in this version."""
    return (api_key, version) in _NEW or version in schema_name_map.get(api_key_map.get(api_key, ""), {})


@cache
def payload_module(api_key: int, version: int, kind: PayloadEntityType) -> ModuleType:
    """Return the classes of one message: kio's module, or one of its kind. Raises KioIndexError."""
    is_answer = kind is EntityType.response
    changed = _NEW.get((api_key, version))
    tag, *added = _ADDED.get((api_key, version), (None, {}, {}))
    if changed is not None:
        changes = changed[is_answer]
        base = (api_key, version - 1) if version else _FLEXIBLE
        tag = None
    elif added[is_answer]:
        changes = added[is_answer]
        base = api_key, version
    else:
        return load_payload_module(api_key, version, kind)
    before = vars(load_payload_module(*base, kind))
    is_like = base[0] == api_key
    own = before["__name__"]
    old = {name: each for name, each in before.items() if getattr(each, "__module__", "") == own and is_like}
    message = list(old or changes)[-1]
    module = ModuleType(f"{__name__}.{API_NAMES[api_key]}.v{version}.{kind.name}")
    for name in [*(name for name in changes if name not in old), *old]:
        made = _fields(fields(old[name]) if name in old else (), changes.get(name, ()), vars(module), tag)
        namespace = {
            "__module__": module.__name__,
            "__type__": kind if name == message else EntityType.nested,
            "__version__": version,
            "__flexible__": True,
            "__api_key__": api_key,
            "__header_schema__": before["RequestHeader" if kind is EntityType.request else "ResponseHeader"],
        }
        entity_type = make_dataclass(name, made, namespace=namespace, frozen=True, slots=True, kw_only=True)
        setattr(module, name, entity_type)
    return module


@cache
def payload_type(api_key: int, version: int, kind: PayloadEntityType) -> Any:
    """Return the class of one message. Raises KioIndexError."""
    classes = vars(payload_module(api_key, version, kind)).values()
    return next(each for each in classes if getattr(each, "__type__", None) is kind)


def _fields(
    kept: Iterable[Field[Any]], changes: Sequence[_Change], classes: Mapping[str, Any], tag: int | None
) -> list[tuple[str, Any, Any]]:
    """Return the fields of a class as `make_dataclass` takes them; `tag` is that of the new fields."""
    made = {}
    for each in kept:
        inner, nullable, is_array = shape(each.type)
        inner = classes.get(getattr(inner, "__name__", ""), inner)
        same: Any = field(default=each.default, metadata=each.metadata)
        made[each.name] = (each.name, _annotation(inner, nullable, is_array), same)
    for name_and_place, text, *default in changes:
        name, _, later = name_and_place.partition("<")
        if not text:
            del made[name]
            continue
        kafka_type = text.lstrip("?[]")
        inner = classes.get(kafka_type) or _PYTHON_TYPES.get(kafka_type, int)
        metadata: dict[str, Any] = {} if kafka_type in classes else {"kafka_type": kafka_type}
        if tag is not None:
            metadata["tag"] = tag
        new = field(default=default[0] if default else MISSING, metadata=metadata)
        before = list(made).index(later) if later else len(made)
        rows = list(made.values())
        rows.insert(before, (name, _annotation(inner, text.startswith("?"), "[]" in text), new))
        made = {row[0]: row for row in rows}
    return list(made.values())


def _annotation(inner: Any, nullable: bool, is_array: bool) -> Any:
    outer = tuple[inner, ...] if is_array else inner
    return outer | None if nullable else outer
