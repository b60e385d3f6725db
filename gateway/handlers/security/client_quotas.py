"""AlterClientQuotas (key 49, versions 0-1): set and remove quotas of users, client ids and addresses. Rights:
`ALTER_CONFIGS` on the cluster.

An entry that is refused does not affect the other entries of the request. Of an entity that the request names
twice, the first entry takes effect and the answer is a refusal, as in Kafka. A change counts at once, on open
connections, too: `ClientQuotas` in `runtime/client_quotas.py` follows the metadata. Source: Kafka's
ControllerApis.handleAlterClientQuotas, ClientQuotaControlManager.

DescribeClientQuotas (key 48, versions 0-1): list the quotas of users, client ids and addresses. Rights:
`DESCRIBE_CONFIGS` on the cluster.

Entities and keys are listed in the order of Java's HashMap, as in Kafka; the order follows from the names and
their number. Source: Kafka's KafkaApis.handleDescribeClientQuotas, ClientQuotasImage.describe.

The image keeps entities in the order in which they got their first quota, which decides among those of one
bucket (see `java_hash_map`). Kafka puts the new entities of one request into its image in the order of
ClientQuotasDelta; they are recorded in it.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.metadata.decision import ApiError, Decision, told
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.java_hash_map import (
    HASH_MASK,
    by_java_hash_map_bucket,
    in_java_hash_map_order,
    java_hash_map_length,
    string_hash,
)
from seqgate.gateway.metadata.records import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    ENTITY_TYPES,
    IP,
    KEYS_OF_ADDRESSES,
    KEYS_OF_CLIENTS,
    PRODUCER_BYTE_RATE,
    ClientQuotaRecord,
    QuotaEntity,
)
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

_WHOLE_UP_TO: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""The keys whose values are whole numbers, and the largest number that Kafka's type of the key holds."""
_EPSILON: Final = 1e-6
_DENIED: Final = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")

_SMALLEST_TABLE: Final = 1
"""The capacity from which the tables of Kafka's image get their length. Kafka makes them anew at each change,
with the number of entries before it as capacity. This gives a longer table only after a request that removes
many entries, until the next change.
"""
_WORD_HASHES: Final = {
    word: string_hash(word) for word in (*ENTITY_TYPES, *KEYS_OF_CLIENTS, *KEYS_OF_ADDRESSES)
}


async def handle_alter(context: RequestContext[TopicServices], request: Any) -> Any:
    """Alter the quotas of each entity, or only check the changes when `validate_only` is set."""
    outcomes: AlteredQuotas | ApiError = _DENIED
    if context.may_cluster(Operation.ALTER_CONFIGS):
        alterations = [_alteration(entry) async for entry in in_slices(request.entries)]
        outcomes = await _alter(context, alterations, validate_only=request.validate_only)
    answered: Iterable[tuple[Iterable[tuple[str, str | None]], ApiError | None]]
    if isinstance(outcomes, ApiError):
        answered = ((_parts(entry), outcomes) for entry in request.entries)
    else:
        answered = ((parts_as_answered(entity), error) for entity, error in outcomes.errors.items())
    rows = []
    async for parts, error in in_slices(answered):
        entity = [
            context.row("EntityData", entity_type=kind, entity_name=name)
            async for kind, name in in_slices(parts)
        ]
        rows.append(context.row("EntryData", **told(error), entity=tuple(entity)))
    return context.answer(entries=tuple(rows))


def _alteration(entry: Any) -> QuotaAlteration:
    changes = [QuotaChange(change.key, None if change.remove else change.value) for change in entry.ops]
    return QuotaAlteration(entity_of(_parts(entry)), changes)


def _parts(entry: Any) -> Iterator[tuple[str, str | None]]:
    return ((part.entity_type, part.entity_name) for part in entry.entity)


def _entity(parts: Iterable[tuple[str, str | None]]) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]


async def _alter(
    context: RequestContext[TopicServices], alterations: Sequence[QuotaAlteration], *, validate_only: bool
) -> AlteredQuotas | ApiError:
    def note(outcomes: AlteredQuotas) -> None:
        if not validate_only:
            log_change(context, "altered the quotas of", list(map(_described, outcomes.made)))

    return await change_metadata_until_it_counts(
        context,
        lambda image: alter_client_quotas(
            image,
            alterations,
            max_entities=context.node.config.int("seqgate.client.quotas.max"),
            validate_only=validate_only,
        ),
        note=note,
    )


def _described(alteration: QuotaAlteration) -> str:
    changes = [
        f"{key} removed" if value is None else f"{key}={value:.15g}" for key, value in alteration.changes
    ]
    return f"{shown(alteration.entity)} ({', '.join(changes)})"


class QuotaChange(NamedTuple):
    """One change of an entity; a value of None removes the key."""

    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    entity: QuotaEntity
    changes: Sequence[QuotaChange]


class AlteredQuotas(NamedTuple):
    """The error of each entity, or None, and the alterations that take effect. An entity that is named twice
    may have both.
    """

    errors: dict[QuotaEntity, ApiError | None]
    made: list[QuotaAlteration]


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these types and names; of a repeated type the last name counts, as in Kafka."""
    return tuple(sorted(dict(parts).items()))


def alter_client_quotas(
    image: MetadataImage, alterations: Sequence[QuotaAlteration], *, max_entities: int, validate_only: bool
) -> Decision[AlteredQuotas]:
    """Alter quotas of up to `max_entities`."""
    records: list[ClientQuotaRecord] = []
    answer: dict[QuotaEntity, ApiError | None] = {}
    made: list[QuotaAlteration] = []
    new_entities = 0
    for alteration in alterations:
        entity, changes = alteration
        outcome = _records_of(image, entity, changes, is_repeated=entity in answer)
        if not isinstance(outcome, ApiError) and _begins(image, entity, outcome):
            new_entities += 1
            if len(image.client_quotas) + new_entities > max_entities:
                outcome = _refused(
                    f"{max_entities} entities have quotas, as many as seqgate.client.quotas.max allows"
                )
        if isinstance(outcome, ApiError):
            answer[entity] = outcome
        else:
            answer[entity] = None
            made.append(alteration)
            records += outcome
    in_order = {entity: answer[entity] for entity in in_java_hash_map_order(answer, _entity_hash)}
    return Decision(() if validate_only else _as_folded_in(records), AlteredQuotas(in_order, made))


def _word_hash(word: str) -> int:
    """Return the Java hash of an entity type or key, also of one that is refused."""
    known = _WORD_HASHES.get(word)
    return string_hash(word) if known is None else known


def _entity_hash(entity: QuotaEntity) -> int:
    """Return Java's hash of Kafka's ClientQuotaEntity; a name of None has the hash 0."""
    return (31 + sum(_word_hash(kind) ^ string_hash(name or "") for kind, name in entity)) & HASH_MASK


def _as_folded_in(records: Sequence[ClientQuotaRecord]) -> list[ClientQuotaRecord]:
    """Return the records of one request in the order in which Kafka's image takes in entities and keys.
    ClientQuotasDelta gathers the entities with HashMap.computeIfAbsent, which puts a new key in front of its
    bucket, and which makes a full table longer only at the next call.
    """
    of_entity: dict[QuotaEntity, list[ClientQuotaRecord]] = {}
    for record in records:
        of_entity.setdefault(record.entity, []).append(record)
    length = java_hash_map_length(len({record.entity for record in records[:-1]}))
    return [
        record
        for entity in by_java_hash_map_bucket(reversed(of_entity), _entity_hash, length)
        for record in in_java_hash_map_order(of_entity[entity], lambda record: _word_hash(record.key))
    ]


def parts_as_answered(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Return the types and names of an entity in the order of Kafka's answer to a change."""
    return in_java_hash_map_order(entity, lambda part: _word_hash(part[0]), capacity=len(entity))


def _begins(image: MetadataImage, entity: QuotaEntity, records: Iterable[ClientQuotaRecord]) -> bool:
    return entity not in image.client_quotas and any(not record.remove for record in records)


def _refused(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


def _records_of(
    image: MetadataImage, entity: QuotaEntity, changes: Sequence[QuotaChange], *, is_repeated: bool
) -> list[ClientQuotaRecord] | ApiError:
    values: dict[str, float | None] = {}
    for key, value in changes:
        if key in values:
            return _refused(f"Duplicate quota key {key}: none of the changes of {shown(entity)} is made")
        values[key] = value
    if is_repeated:
        return _refused(f"Ignoring duplicate entity {shown(entity)}")
    complaint = _entity_complaint(entity)
    if complaint:
        return _refused(complaint)
    present = image.client_quotas.get(entity, {})
    records = []
    for key, value in values.items():
        if value is None:
            if key in present:
                records.append(ClientQuotaRecord(entity, key, remove=True))
            continue
        complaint = _value_complaint(entity, key, value)
        if complaint:
            return _refused(complaint)
        # NaN differs from itself, so a quota of NaN is recorded again, which does no harm.
        if present.get(key) != value:
            records.append(ClientQuotaRecord(entity, key, value))
    return records


def _entity_complaint(entity: QuotaEntity) -> str | None:
    names = dict(entity)
    if not names:
        return "Invalid empty client quota entity"
    for entity_type, name in entity:
        if entity_type not in ENTITY_TYPES:
            return f"Unhandled client quota entity type: {entity_type}"
        if name == "":
            return f"Empty {entity_type} not supported"
    if IP not in names:
        return None
    if len(names) > 1:
        return "Invalid quota entity combination: ip can't be combined with user or client-id"
    name = names[IP]
    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        return f"{name} is not a valid IP address; host names are not resolved"
    return None


def _value_complaint(entity: QuotaEntity, key: str, value: float) -> str | None:
    if key not in (KEYS_OF_ADDRESSES if entity[0][0] == IP else KEYS_OF_CLIENTS):
        return f"Invalid configuration key {key}"
    if not 0 < value < math.inf:
        return f"Configuration {key} must be a finite number larger than 0, not {value:g}"
    most = _WHOLE_UP_TO.get(key)
    if most is not None:
        if value > most:
            return f"Configuration {key} must be at most {most}, not {value:g}"
        if abs(math.floor(value + _EPSILON) - value) > _EPSILON:
            return f"Configuration {key} must be a whole number, not {value:g}"
    return None


def shown(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity) or "nobody"


MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2


class QuotaFilter(NamedTuple):
    """One component of a description's filter; `match_type` is the number that the client sent."""

    entity_type: str
    match_type: int
    match: str | None


async def handle_describe(context: RequestContext[TopicServices], request: Any) -> Any:
    """Return the quotas of the entities that match the filter."""
    if not context.may_cluster(Operation.DESCRIBE_CONFIGS):
        return context.answer(**told(_DENIED), entries=None)
    filters = [QuotaFilter(part.entity_type, part.match_type, part.match) for part in request.components]
    found = describe_client_quotas(context.services.metadata_log.image, filters, strict=bool(request.strict))
    if isinstance(found, ApiError):
        return context.answer(**told(found), entries=None)
    entries = [
        {"entity": _entity(entity), "values": [{"key": key, "value": value} for key, value in values.items()]}
        for entity, values in found
    ]
    return context.answer(**told(None, ""), entries=entries)


def describe_client_quotas(
    image: MetadataImage, filters: Sequence[QuotaFilter], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]] | ApiError:
    """Return the entities that match all filters, with their quotas, in Kafka's order. With `strict`, an
    entity with a type that no filter names does not match.
    """
    named: dict[str, QuotaFilter] = {}
    for wanted in filters:
        error = _filter_error(wanted, named)
        if error:
            return error
        named[wanted.entity_type] = wanted
    if IP in named and len(named) > 1:
        return _refused(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )
    if strict and not named:
        return []
    stored = image.client_quotas
    found = [entity for entity in stored if _matches(dict(entity), named, strict=strict)]
    in_order = by_java_hash_map_bucket(
        found, _entity_hash, java_hash_map_length(len(stored), _SMALLEST_TABLE)
    )
    return [(entity, _in_order(stored[entity])) for entity in in_order]


def _in_order(values: Mapping[str, float]) -> dict[str, float]:
    return {key: values[key] for key in in_java_hash_map_order(values, _word_hash, _SMALLEST_TABLE)}


def _filter_error(wanted: QuotaFilter, named: Mapping[str, QuotaFilter]) -> ApiError | None:
    kind, match_type, match = wanted
    if not kind:
        return _refused("Invalid empty entity type.")
    if kind in named:
        return _refused(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in ENTITY_TYPES:
        return ApiError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
    if match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
        return _refused(f"Unknown match type {match_type}")
    if match_type == MATCH_EXACT and match is None:
        return _refused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type != MATCH_EXACT and match is not None:
        name = "MATCH_TYPE_DEFAULT" if match_type == MATCH_DEFAULT else "MATCH_TYPE_SPECIFIED"
        return _refused(f"Request specified {name}, but also specified a match string.")
    return None


def _matches(names: Mapping[str, str | None], named: Mapping[str, QuotaFilter], *, strict: bool) -> bool:
    if strict and len(names) != len(named):
        return False
    return all(
        kind in names and (wanted.match_type == MATCH_ANY or names[kind] == wanted.match)
        for kind, wanted in named.items()
    )


DESCRIBE_CLIENT_QUOTAS_API = Api(
    key=48, versions=(0, 1), reaches=api.topics, handle=handle_describe, is_long=True
)
ALTER_CLIENT_QUOTAS_API = Api(key=49, versions=(0, 1), reaches=api.topics, handle=handle_alter)
