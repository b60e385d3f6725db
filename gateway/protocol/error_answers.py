"""Answers of any API that are built or changed without its handler: refusals, and their throttle times.

`error_answer` builds the answer that refuses a whole request with one error, as Kafka's `getErrorResponse`
does. Every error code of such an answer is the same. Rows of the request that an answer repeats stand in
`_ROWS`; other arrays are empty, and all other fields have the default of Kafka's message definitions.

`with_throttle_time` sets throttle_time_ms in an encoded answer. Nearly every answer has the field first in
its body. Of the others:

    Produce, CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken
                   last, before the tagged fields of flexible versions
    ApiVersions    after the error and the array of APIs
    OffsetDelete   after the error
    low versions, and the answers of the SASL login, have no such field
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Final, get_args, get_origin

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.protocol.frames import read_unsigned_varint
from seqgate.gateway.protocol.kafka_4_4 import API_NAMES, has_version
from seqgate.gateway.protocol.messages import (
    API_VERSIONS,
    ZERO_DURATION,
    encode_response,
    is_flexible,
    response_type,
    time_of,
    written,
)
from seqgate.gateway.protocol.schema import entity_reader
from seqgate.log import FileRegion

NOT_MADE: Final = frozenset({"fetch_snapshot", "update_raft_voter"})
"""The APIs whose answers can't be built, because kio lacks the default of a tagged field. Only controllers
serve them.
"""


class _Rows(msgspec.Struct, frozen=True):
    """The rows of an answer that repeat rows of the request. `answer`: the name of the answer's array.
    `request`: the name of the request's array, or a function that returns its rows. `copied`: the name of the
    request's field, by the name of the answer's. `last_version`: the last version of which the answer has
    these rows.
    """

    answer: str
    request: str | Callable[[Any], Iterable[Any]]
    copied: Mapping[str, str]
    inner: _Rows | None
    last_version: int | None

    @classmethod
    def parsed(cls, text: str) -> _Rows:
        """Return the rows that a text of `_ROWS` describes."""
        outer, _, inner = text.partition(" > ")
        found = _TEXT.fullmatch(outer)
        assert found is not None, text
        answer, request, fields_text, last_version = found.groups()
        pairs = [each.partition(":") for each in fields_text.split()]
        return cls(
            answer,
            _DERIVED.get(request, request),
            {name: source if colon else name for name, colon, source in pairs},
            cls.parsed(inner) if inner else None,
            int(last_version) if last_version else None,
        )

    def of(self, request: Any) -> Iterable[Any]:
        """Return the rows of the request; none when its version lacks them or they are null."""
        if callable(self.request):
            return self.request(request)
        return getattr(request, self.request, None) or ()


def _moved_dirs(request: Any) -> list[Any]:
    return [topic for directory in request.dirs for topic in directory.topics]


def _named_topics(request: Any) -> list[Any]:
    return [replace(topic, name=topic.name or "") for topic in request.topics or ()]


def _named_users(request: Any) -> list[str]:
    return sorted({row.name for row in (*request.deletions, *request.upsertions)})


_DERIVED: Final[Mapping[str, Callable[[Any], Iterable[Any]]]] = {
    "_moved_dirs": _moved_dirs,
    "_named_topics": _named_topics,
    "_named_users": _named_users,
}
_TEXT: Final = re.compile(r"(\w+)=(\w+)\(([^)]*)\)(?: up to v(\d+))?")
_GROUPS: Final = "groups=group_ids(group_id:)"
_CONFIGS: Final = "=resources(resource_type resource_name)"
_COMMITTED: Final = "topics=topics(name topic_id) > partitions=partitions(partition_index)"
_SHARE_STATE: Final = "results=topics(topic_id) > partitions=partitions(partition)"
_INDEXES: Final = "partitions=partition_indexes(partition_index:)"
_ROWS: Final = {
    "produce": "responses=topic_data(name topic_id) > partition_responses=partition_data(index)",
    "fetch": "responses=topics(topic) up to v12 > partitions=partitions(partition_index:partition)",
    "list_offsets": "topics=topics(name) > partitions=partitions(partition_index)",
    "metadata": "topics=_named_topics(name topic_id)",
    "offset_commit": _COMMITTED,
    "offset_fetch": f"topics=topics(name) up to v1 > {_INDEXES}; groups=groups(group_id)",
    "find_coordinator": "coordinators=coordinator_keys(key:)",
    "describe_groups": "groups=groups(group_id:)",
    "create_topics": "topics=topics(name)",
    "delete_topics": "responses=topic_names(name:) up to v5; responses=topics(name topic_id)",
    "delete_records": "topics=topics(name) > partitions=partitions(partition_index)",
    "offset_for_leader_epoch": "topics=topics(topic) > partitions=partitions(partition)",
    "add_partitions_to_txn": "results_by_topic_v3_and_below=v3_and_below_topics(name)"
    " > results_by_partition=partitions(partition_index:)",
    "write_txn_markers": f"markers=markers(producer_id) > topics=topics(name) > {_INDEXES}",
    "txn_offset_commit": _COMMITTED,
    "create_acls": "results=creations()",
    "delete_acls": "filter_results=filters()",
    "describe_configs": f"results{_CONFIGS}",
    "alter_configs": f"responses{_CONFIGS}",
    "alter_replica_log_dirs": "results=_moved_dirs(topic_name:name)"
    " > partitions=partitions(partition_index:)",
    "create_partitions": "results=topics(name)",
    "delete_groups": "results=groups_names(group_id:)",
    "elect_leaders": "replica_election_results=topic_partitions(topic)"
    " > partition_result=partitions(partition_id:)",
    "incremental_alter_configs": f"responses{_CONFIGS}",
    "alter_partition_reassignments": "responses=topics(name) > partitions=partitions(partition_index)",
    "list_partition_reassignments": f"topics=topics(name) > {_INDEXES}",
    "alter_client_quotas": "entries=entries() > entity=entity(entity_type entity_name)",
    "describe_user_scram_credentials": "results=users()",
    "alter_user_scram_credentials": "results=_named_users(user:)",
    "describe_producers": f"topics=topics(name) > {_INDEXES}",
    "describe_transactions": "transaction_states=transactional_ids(transactional_id:)",
    "consumer_group_describe": _GROUPS,
    "describe_topic_partitions": "topics=topics(name)",
    "share_group_describe": _GROUPS,
    "initialize_share_group_state": _SHARE_STATE,
    "read_share_group_state": _SHARE_STATE,
    "write_share_group_state": _SHARE_STATE,
    "delete_share_group_state": _SHARE_STATE,
    "read_share_group_state_summary": _SHARE_STATE,
    "streams_group_describe": _GROUPS,
    "describe_share_group_offsets": "groups=groups(group_id)",
}
"""The rows of answers, by API: `array of the answer=array of the request(copied fields)`, and after `>` the
rows inside of each; `;` separates the arrays of different versions. A copied field has the same name in
both, or is written `answer:request`; `name:` stands for rows of the request that are plain values. `_DERIVED`
has the arrays that are computed.
"""

_VALUES: Final[dict[str, dict[str, Any]]] = {
    "produce": {"base_offset": -1},
    "fetch": {"high_watermark": -1, "records": b""},
    "offset_fetch": {"committed_offset": -1},
    "find_coordinator": {"node_id": -1, "host": "", "port": -1},
    "delete_records": {"low_watermark": -1},
    "join_group": {"protocol_name": None},
    "init_producer_id": {"producer_epoch": -1},
    "create_delegation_token": {
        **dict.fromkeys(("principal_type", "token_requester_principal_type"), "User"),
        **dict.fromkeys(("principal_name", "token_requester_principal_name"), "ANONYMOUS"),
        **dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), time_of(-1)),
    },
    "describe_client_quotas": {"entries": None},
    "streams_group_heartbeat": dict.fromkeys(
        ("active_tasks", "standby_tasks", "warmup_tasks", "partitions_by_user_endpoint")
    ),
}
"""The fields of answers and of their rows, by API, that have another value than their default."""

_REPEATED: Final = {"fetch": {"session_id": "session_id"}}
"""The fields of answers, by API, that repeat those of the request."""

_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "timedelta_i32": ZERO_DURATION,
    "timedelta_i64": ZERO_DURATION,
    "datetime_i64": time_of(0),
    "uuid": None,
}
"""The zeros of types that are no numbers."""


def has_messages(api_key: int, version: int) -> bool:
    """Return whether an API has messages in this version, so that a request can be answered with an error."""
    return API_NAMES.get(api_key) not in NOT_MADE and has_version(api_key, version)


def error_answer(
    api_key: int,
    version: int,
    correlation_id: int,
    request: Any,
    error: ErrorCode,
    message: str,
    *,
    most_rows: int,
) -> bytes:
    """Return the frame of the answer in which everything has this error. It is empty when a Produce wants no
    answer (acks=0), and when the answer would have more rows than `most_rows`.
    """
    if api_key == PRODUCE and request.acks == 0:
        return b""
    name = API_NAMES[api_key]
    refusal = _Refusal(version, error, message, most_rows, _VALUES.get(name, {}))
    rows = [_Rows.parsed(text) for text in _ROWS.get(name, "").split("; ") if text]
    copied = _copied(request, _REPEATED.get(name, {}))
    try:
        response = refusal.entity(response_type(api_key, version), request, rows, copied)
    except _TooManyRowsError:
        return b""
    return encode_response(api_key, correlation_id, response)


class _TooManyRowsError(Exception):
    """The answer would have more rows than it may."""


class _Refusal(msgspec.Struct):
    """Builds the entities of one answer."""

    version: int
    error: ErrorCode
    message: str
    rows_left: int
    values: Mapping[str, Any]

    def entity(self, entity_type: Any, request: Any, rows: Iterable[_Rows], copied: Mapping[str, Any]) -> Any:
        values = {**self.values, **copied}
        found = {each.answer: each for each in rows if self._has(each, request)}
        made: dict[str, Any] = {}
        for field in fields(entity_type):
            each = found.get(field.name)
            if each is not None:
                made[field.name] = self._rows(get_args(field.type)[0], request, each)
            elif field.metadata.get("kafka_type") == "error_code":
                made[field.name] = self.error
            elif field.name == "error_message":
                made[field.name] = self.message
            elif field.name in values:
                made[field.name] = _fitting(field, values[field.name])
            elif field.default is MISSING:
                made[field.name] = _zero(field)
        return entity_type(**made)

    def _has(self, rows: _Rows, request: Any) -> bool:
        if rows.last_version is not None and self.version > rows.last_version:
            return False
        return callable(rows.request) or hasattr(request, rows.request)

    def _rows(self, item_type: Any, request: Any, rows: _Rows) -> tuple[Any, ...]:
        inner = () if rows.inner is None else (rows.inner,)
        made = []
        for row in rows.of(request):
            self.rows_left -= 1
            if self.rows_left < 0:
                raise _TooManyRowsError
            made.append(self.entity(item_type, row, inner, _copied(row, rows.copied)))
        return tuple(made)


def _copied(row: Any, names: Mapping[str, str]) -> dict[str, Any]:
    if not is_dataclass(row):
        return dict.fromkeys(names, row)
    return {name: getattr(row, source) for name, source in names.items() if hasattr(row, source)}


def _fitting(field: Field[Any], value: Any) -> Any:
    return value if value is not None or type(None) in get_args(field.type) else _zero(field)


def _zero(field: Field[Any]) -> Any:
    """Return the default of a field for which Kafka's definition names none."""
    options = [option for option in get_args(field.type) if option is not type(None)]
    if get_origin(field.type) is tuple or (options and get_origin(options[0]) is tuple):
        return ()
    kafka_type = field.metadata.get("kafka_type")
    return None if kafka_type is None else _ZEROS.get(kafka_type, 0)


PRODUCE: Final = 0
_LAST: Final = frozenset({PRODUCE, 38, 39, 40, 41})
"""The APIs that have the field last: Produce and those of delegation tokens."""
OFFSET_DELETE: Final = 47
_HEADER_BYTES: Final = 8
_ERROR_BYTES: Final = 2
_NO_TIME_AND_NO_TAGS: Final = bytes(5)
"""The end of a Produce answer that names no leaders: throttle_time_ms 0 and no tagged fields."""
_ROW_BYTES: Final = 6
"""The bytes of one row of ApiVersions, without tagged fields."""


def with_throttle_time(
    answer: bytes | Sequence[bytes | FileRegion], api_key: int, version: int, throttle_ms: int
) -> bytes | Sequence[bytes | FileRegion]:
    """Return the answer with this throttle time; the same answer when its version has no such field."""
    if not isinstance(answer, bytes):
        head = answer[0]
        if not isinstance(head, bytes):
            raise TypeError(f"an answer begins with its header, not with {head!r}")
        return [_patched(head, api_key, version, throttle_ms), *answer[1:]]
    return _patched(answer, api_key, version, throttle_ms)


def _patched(head: bytes, api_key: int, version: int, throttle_ms: int) -> bytes:
    if not _has_field(api_key, version):
        return head
    if api_key == PRODUCE and is_flexible(api_key, version) and not head.endswith(_NO_TIME_AND_NO_TAGS):
        return _patched_before_tags(head, version, throttle_ms)
    position = _position(head, api_key, version)
    return head[:position] + throttle_ms.to_bytes(4, "big") + head[position + 4 :]


def _patched_before_tags(head: bytes, version: int, throttle_ms: int) -> bytes:
    """Patch a Produce answer whose tagged fields name leaders; it is rare, so it is decoded."""
    read = entity_reader(response_type(PRODUCE, version))
    answer, _ = read(memoryview(head), _HEADER_BYTES + 1)
    body = written(replace(answer, throttle_time=timedelta(milliseconds=throttle_ms)))
    return head[: _HEADER_BYTES + 1] + body


@cache
def _has_field(api_key: int, version: int) -> bool:
    return any(field.name == "throttle_time" for field in fields(response_type(api_key, version)))


def _position(head: bytes, api_key: int, version: int) -> int:
    flexible = is_flexible(api_key, version)
    if api_key in _LAST:
        return len(head) - (5 if flexible else 4)
    if api_key == API_VERSIONS:
        return _position_in_api_versions(head, flexible=flexible)
    if api_key == OFFSET_DELETE:
        return _HEADER_BYTES + _ERROR_BYTES
    return _HEADER_BYTES + (1 if flexible else 0)


def _position_in_api_versions(head: bytes, *, flexible: bool) -> int:
    position = _HEADER_BYTES + _ERROR_BYTES
    if not flexible:
        count = int.from_bytes(head[position : position + 4], "big")
        return position + 4 + count * _ROW_BYTES
    count, position = read_unsigned_varint(head, position)
    return position + (count - 1) * (_ROW_BYTES + 1)
