"""The access control entries of the cluster: created, deleted and listed.

CreateAcls (key 30, versions 1-3): create access control entries, which count before the answer leaves.
Rights: `ALTER` on the cluster.

    entry                                           answer
    exists already                                  success
    beyond `seqgate.acls.max`                       POLICY_VIOLATION
    ANY or MATCH in a field                         UNKNOWN_SERVER_ERROR for all entries, as in Kafka
    CLUSTER with another name than kafka-cluster    INVALID_REQUEST
    empty name or host, principal without ':'       INVALID_REQUEST
    host with '/' that is no range of addresses     INVALID_REQUEST
    code beyond an enumeration                      INVALID_REQUEST
    code 0                                          the connection is closed

Without an authorizer the answer is SECURITY_DISABLED. A host without '/' is any text. Source: Kafka's
AclApis.handleCreateAcls, AclControlManager.createAcls.

DeleteAcls (key 31, versions 1-3): delete the access control entries that filters find; they no longer count
when the answer leaves. Rights: `ALTER` on the cluster.

Each filter is answered with all entries that it finds, also those that another filter of the request finds.
Without an authorizer the answer is SECURITY_DISABLED. Source: Kafka's AclApis.handleDeleteAcls,
AclControlManager.deleteAcls.

DescribeAcls (key 29, versions 1-3): list the access control entries that a filter finds, by resource pattern.
Rights: `DESCRIBE` on the cluster.

Without an authorizer the answer is SECURITY_DISABLED. A filter with a code beyond an enumeration finds
nothing. Source: Kafka's AclApis.handleDescribeAcls.

Codes of all three APIs. Source: Kafka's CreateAclsRequest, RequestUtils.

code                            entry               filter
0 (UNKNOWN)                     the connection is closed
ANY, or MATCH for patterns      refuses the request finds everything
beyond the enumeration          refused             refused, or finds nothing
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, CloseConnection, RequestContext
from seqgate.gateway.handlers.answering.changes import (
    change_metadata_until_it_counts,
    log_change,
    read_metadata,
)
from seqgate.gateway.handlers.answering.limits import TimeLimit
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.acls import StoredAcls, record_of
from seqgate.gateway.metadata.decision import ApiError, Decision, told
from seqgate.gateway.metadata.records import RemoveAccessControlEntryRecord
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import (
    CLUSTER_NAME,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from seqgate.gateway.security.acls.authorizer import address_range

_FILTER: Final = ApiError(ErrorCode.unknown_server_error)
MOST_COMPARED: Final = 1_000_000
"""Entries that the filters of one deletion may be compared with; further filters are refused."""
TOO_MANY: Final = ApiError(
    ErrorCode.invalid_request,
    "The earlier filters of the request were compared with too many entries; send this filter in another "
    "request.",
)


async def handle_create(context: RequestContext[TopicServices], request: Any) -> Any:
    """Create the entries of the request that may exist, all in one record batch. Raises CloseConnection."""
    await check_codes(request.creations, *CREATION_CODES)
    error = refusal(context, Operation.ALTER)
    if error is None and any(is_a_filter(row) for row in request.creations):
        error = _FILTER
    if error is not None:
        return await _answer(context, [error] * len(request.creations))
    wanted = [entry_of_row(row) async for row in in_slices(request.creations)]
    most = context.node.config.int("seqgate.acls.max")

    def note(results: Sequence[ApiError | None]) -> None:
        created = [entry for entry, result in zip(wanted, results, strict=True) if result is None]
        log_change(context, "created access control entry:", created)

    results = await change_metadata_until_it_counts(
        context, lambda image: create_acls(image.acls, wanted, uuid.uuid4, most=most), note=note
    )
    if isinstance(results, ApiError):
        return await _answer(context, [entry if isinstance(entry, ApiError) else results for entry in wanted])
    return await _answer(context, results)


def create_acls(
    stored: StoredAcls, wanted: Sequence[AclEntry | ApiError], new_id: Callable[[], uuid.UUID], *, most: int
) -> Decision[list[ApiError | None]]:
    """Create entries up to `most` in all; an error stands for an entry that was refused already."""
    new: dict[AclEntry, None] = {}
    answers: list[ApiError | None] = []
    for entry in wanted:
        if isinstance(entry, ApiError):
            answers.append(entry)
        elif entry in stored or entry in new:
            answers.append(None)
        elif len(stored) + len(new) >= most:
            text = (
                f"There are {most} access control entries already, as many as seqgate.acls.max allows; "
                "delete some or raise it."
            )
            answers.append(ApiError(ErrorCode.policy_violation, text))
        else:
            new[entry] = None
            answers.append(None)
    return Decision([record_of(new_id(), entry) for entry in new], answers)


async def _answer(context: RequestContext[TopicServices], results: Sequence[ApiError | None]) -> Any:
    return context.answer(
        results=tuple(
            [context.row("AclCreationResult", **told(result, "")) async for result in in_slices(results)]
        )
    )


async def handle_delete(context: RequestContext[TopicServices], request: Any) -> Any:
    """Delete the entries that any of the filters finds, in one record batch. Raises CloseConnection."""
    await check_codes(request.filters, *FILTER_CODES)
    error = refusal(context, Operation.ALTER)
    if error is not None:
        return await _answer_delete(context, [error] * len(request.filters))
    filters = [filter_of_row(row) async for row in in_slices(request.filters)]
    results = await _delete(context, filters)
    if isinstance(results, ApiError):
        return await _answer_delete(
            context, [wanted if isinstance(wanted, ApiError) else results for wanted in filters]
        )
    return await _answer_delete(context, results)


async def _delete(
    context: RequestContext[TopicServices], filters: Sequence[AclFilter | ApiError]
) -> list[Collection[AclEntry] | ApiError] | ApiError:
    limit = TimeLimit(context)
    error = await read_metadata(context, limit)
    if error is not None:
        return error
    found = await _found(context, filters)

    def note(results: Sequence[Collection[AclEntry] | ApiError]) -> None:
        deleted = {entry: None for some in results if not isinstance(some, ApiError) for entry in some}
        log_change(context, "deleted access control entry:", list(deleted))

    return await change_metadata_until_it_counts(
        context, lambda image: delete_acls(image.acls, found), timedelta(seconds=limit.left_s), note=note
    )


async def _found(
    context: RequestContext[TopicServices], filters: Sequence[AclFilter | ApiError]
) -> list[FoundEntries]:
    """Return what each filter finds, in slices of time: an entry that is created meanwhile may stay."""
    stored = context.services.metadata_log.image.acls
    found: list[FoundEntries] = []
    left = MOST_COMPARED
    for wanted in filters:
        if isinstance(wanted, ApiError):
            found.append(wanted)
            continue
        candidates = stored.candidates(wanted)
        left -= len(candidates)
        if left < 0:
            found.append(TOO_MANY)
            continue
        found.append(
            {entry_id: entry async for entry_id, entry in in_slices(candidates) if wanted.matches(entry)}
        )
    return found


FoundEntries = Mapping[uuid.UUID, AclEntry] | ApiError
"""The entries that a filter has found, or why it found none."""


def delete_acls(
    stored: StoredAcls, found: Iterable[FoundEntries]
) -> Decision[list[Collection[AclEntry] | ApiError]]:
    """Delete all entries that the filters have found and that are still there. The answer to each filter has
    all its entries, also those that another filter has found.
    """
    gone: dict[uuid.UUID, None] = {}
    answers: list[Collection[AclEntry] | ApiError] = []
    for entries in found:
        if isinstance(entries, ApiError):
            answers.append(entries)
            continue
        present = {entry_id: entry for entry_id, entry in entries.items() if entry_id in stored.by_id}
        gone.update(dict.fromkeys(present))
        answers.append(present.values())
    return Decision([RemoveAccessControlEntryRecord(entry_id) for entry_id in gone], answers)


async def _answer_delete(
    context: RequestContext[TopicServices], results: Sequence[Collection[AclEntry] | ApiError]
) -> Any:
    return context.answer(
        filter_results=tuple([_result(context, result) async for result in in_slices(results)])
    )


def _result(context: RequestContext[TopicServices], result: Collection[AclEntry] | ApiError) -> Any:
    error = result if isinstance(result, ApiError) else ApiError(ErrorCode.none)
    deleted = () if isinstance(result, ApiError) else result
    return context.row(
        "DeleteAclsFilterResult",
        **told(error),
        matching_acls=[
            {
                "error_code": ErrorCode.none,
                "error_message": None,
                "resource_type": entry.resource_type,
                "resource_name": entry.name,
                "pattern_type": entry.pattern_type,
                **_verdict(entry),
            }
            for entry in deleted
        ],
    )


def _verdict(entry: AclEntry) -> dict[str, Any]:
    """Return the fields of an entry beside those of its resource pattern."""
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


DELETE_ACLS_API = Api(key=31, versions=(1, 3), reaches=api.topics, handle=handle_delete, is_long=True)


async def handle_describe(context: RequestContext[TopicServices], request: Any) -> Any:
    """Answer with the entries that count now. Raises CloseConnection."""
    await check_codes([request], *FILTER_CODES)
    error = refusal(context, Operation.DESCRIBE)
    wanted = error or filter_of_row(request)
    patterns: dict[tuple[ResourceType, str, PatternType], list[AclEntry]] = {}
    if isinstance(wanted, AclFilter):
        # Other requests change entries between the slices.
        candidates = context.services.metadata_log.image.acls.candidates(wanted)
        async for _, entry in in_slices(candidates):
            if wanted.matches(entry):
                pattern = (entry.resource_type, entry.name, entry.pattern_type)
                patterns.setdefault(pattern, []).append(entry)
    resources = [
        context.row(
            "DescribeAclsResource",
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=list(map(_verdict, entries)),
        )
        async for (resource_type, name, pattern_type), entries in in_slices(sorted(patterns.items()))
    ]
    return context.answer(**told(error, ""), resources=tuple(resources))


DESCRIBE_ACLS_API = Api(
    key=29, versions=(1, 3), reaches=api.topics, handle=handle_describe, is_long=True, may_be_given_up=True
)


_UNKNOWN: Final = 0
NO_AUTHORIZER: Final = ApiError(
    ErrorCode.security_disabled, "The gateway has no authorizer: authorizer.class.name is empty."
)

E = TypeVar("E", bound=enum.IntEnum)


def refusal(context: RequestContext[Any], operation: Operation) -> ApiError | None:
    """Return why the client may not read or change access control lists at all; None if it may."""
    refused = cluster_refusal(context, operation)
    if refused is None and not context.node.access.is_on:
        return NO_AUTHORIZER
    return refused


async def check_codes(rows: Iterable[Any], *fields: str) -> None:
    """Check that no row has the code 0 in one of the fields. Raises CloseConnection, as Kafka closes."""
    async for row in in_slices(rows):
        for field in fields:
            if getattr(row, field) == _UNKNOWN:
                raise CloseConnection(f"{field} must not be 0 (UNKNOWN)")


CREATION_CODES: Final = ("resource_type", "resource_pattern_type", "operation", "permission_type")
FILTER_CODES: Final = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")


def is_a_filter(row: Any) -> bool:
    """Return whether a row of CreateAcls has a code that only filters may have: ANY, or MATCH (patterns)."""
    return row.resource_pattern_type in (PatternType.ANY, PatternType.MATCH) or any(
        code == 1 for code in (row.resource_type, row.operation, row.permission_type)
    )


def entry_of_row(row: Any) -> AclEntry | ApiError:
    """Return the entry that a row of CreateAcls asks for, or why it can't exist."""
    if row.resource_type == ResourceType.CLUSTER and row.resource_name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not row.resource_name:
        return _invalid("Invalid empty resource name")
    if ":" not in row.principal:
        return _invalid(f"The principal {row.principal!r} must have the form User:NAME")
    if not row.host:
        return _invalid("The host must not be empty; * stands for every host")
    if "/" in row.host and address_range(row.host) is None:
        return _invalid(f"The host {row.host!r} is no range of addresses, such as 10.0.0.0/8")
    codes: list[Any] = []
    for kind, code, what in (
        (ResourceType, row.resource_type, "resource type"),
        (PatternType, row.resource_pattern_type, "pattern type"),
        (Operation, row.operation, "operation"),
        (Permission, row.permission_type, "permission type"),
    ):
        known = _known(kind, code)
        if known is None:
            return _invalid(f"Invalid {what} {code}")
        codes.append(known)
    resource_type, pattern_type, operation, permission = codes
    return AclEntry(
        resource_type, row.resource_name, pattern_type, row.principal, row.host, operation, permission
    )


def filter_of_row(row: Any) -> AclFilter | ApiError:
    """Return the filter of DescribeAcls or of a row of DeleteAcls, or why it finds nothing."""
    resource_type = _known(ResourceType, row.resource_type_filter)
    pattern_type = _known(PatternType, row.pattern_type_filter)
    if resource_type is None or pattern_type is None:
        return _invalid("The filter has an unknown resource type or pattern type.")
    operation = _known(Operation, row.operation)
    permission = _known(Permission, row.permission_type)
    if operation is None or permission is None:
        return _invalid("The filter has an unknown operation or permission type.")
    return AclFilter(
        resource_type,
        row.resource_name_filter,
        pattern_type,
        row.principal_filter,
        row.host_filter,
        operation,
        permission,
    )


def _known(codes: type[E], code: int) -> E | None:
    try:
        return codes(code)
    except ValueError:
        return None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


CREATE_ACLS_API = Api(key=30, versions=(1, 3), reaches=api.topics, handle=handle_create)
