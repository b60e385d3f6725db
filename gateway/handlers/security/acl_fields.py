"""Reads entries and filters of requests about access control lists. Source: Kafka's CreateAclsRequest, RequestUtils.

code                            entry               filter
0 (UNKNOWN)                     the connection is closed
ANY, or MATCH for patterns      refuses the request finds everything
beyond the enumeration          refused             refused, or finds nothing
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import CloseConnection, RequestContext
from gateway.handlers.answering.rights import cluster_refusal
from gateway.metadata.decision import ApiError
from gateway.runtime.loop.slices import in_slices
from gateway.security.acls.access import CLUSTER_NAME
from gateway.security.acls.codes import Operation, PatternType, Permission, ResourceType
from gateway.security.acls.entry import AclEntry, AclFilter

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
    """Return whether a row of CreateAcls has a code that only filters may have: ANY, or MATCH for patterns."""
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
    resource_type = _known(ResourceType, row.resource_type)
    pattern_type = _known(PatternType, row.resource_pattern_type)
    operation = _known(Operation, row.operation)
    permission = _known(Permission, row.permission_type)
    if resource_type is None:
        return _invalid(f"Invalid resource type {row.resource_type}")
    if pattern_type is None:
        return _invalid(f"Invalid pattern type {row.resource_pattern_type}")
    if operation is None:
        return _invalid(f"Invalid operation {row.operation}")
    if permission is None:
        return _invalid(f"Invalid permission type {row.permission_type}")
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
