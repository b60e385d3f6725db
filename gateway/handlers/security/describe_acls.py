"""DescribeAcls (key 29, versions 1-3): list the access control entries that a filter finds, by resource pattern.

Needs DESCRIBE on the cluster. Without an authorizer the answer is SECURITY_DISABLED. A filter with a code beyond an
enumeration finds nothing. Source: Kafka's AclApis.handleDescribeAcls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.security.acl_fields import FILTER_CODES, check_codes, filter_of_row, refusal
from gateway.metadata.decision import ApiError
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices
from gateway.security.acls.codes import Operation, PatternType, ResourceType
from gateway.security.acls.entry import AclEntry, AclFilter

API_KEY: Final = 29
_Pattern = tuple[ResourceType, str, PatternType]


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Answer with the entries that count now. Raises CloseConnection."""
    await check_codes([request], *FILTER_CODES)
    module = response_module(API_KEY, context.api_version)
    error = refusal(context, Operation.DESCRIBE)
    if error is not None:
        return build(
            module.DescribeAclsResponse,
            error_code=error.error_code,
            error_message=error.message,
            resources=(),
        )
    patterns = await _found(context, filter_of_row(request))
    return build(
        module.DescribeAclsResponse,
        error_code=ErrorCode.none,
        error_message="",
        resources=tuple([resource async for resource in in_slices(_resources(module, patterns))]),
    )


async def _found(
    context: RequestContext[TopicServices], wanted: AclFilter | ApiError
) -> dict[_Pattern, list[AclEntry]]:
    """Return the entries that the filter finds, by their patterns."""
    patterns: dict[_Pattern, list[AclEntry]] = {}
    if isinstance(wanted, ApiError):
        return patterns
    # Other requests change entries between the slices.
    candidates = context.services.metadata_log.image.acls.candidates(wanted)
    async for _, entry in in_slices(candidates):
        if wanted.matches(entry):
            pattern = (entry.resource_type, entry.name, entry.pattern_type)
            patterns.setdefault(pattern, []).append(entry)
    return patterns


def _resources(module: Any, patterns: dict[_Pattern, list[AclEntry]]) -> Iterator[Any]:
    for (resource_type, name, pattern_type), entries in sorted(patterns.items()):
        yield build(
            module.DescribeAclsResource,
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=tuple(
                build(
                    module.AclDescription,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for entry in entries
            ),
        )


API = Api(
    key=API_KEY,
    name="DescribeAcls",
    min_version=1,
    max_version=3,
    reaches=api.topics,
    handle=handle,
    is_long=True,
    may_be_given_up=True,
)
