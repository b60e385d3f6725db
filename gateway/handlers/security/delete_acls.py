"""DeleteAcls (key 31, versions 1-3): delete the access control entries that filters find; they no longer count when the answer leaves.

Each filter is answered with all entries that it finds, also those that another filter of the request finds. Needs ALTER on
the cluster. Without an authorizer the answer is SECURITY_DISABLED. Source: Kafka's AclApis.handleDeleteAcls,
AclControlManager.deleteAcls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import change_metadata, log_change
from gateway.handlers.security.acl_fields import FILTER_CODES, check_codes, filter_of_row, refusal
from gateway.metadata import acls
from gateway.metadata.acls import Found, delete_acls
from gateway.metadata.decision import ApiError
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices
from gateway.security.acls.codes import Operation
from gateway.security.acls.entry import AclEntry, AclFilter

API_KEY: Final = 31


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Delete the entries that any of the filters finds, in one record batch. Raises CloseConnection."""
    await check_codes(request.filters, *FILTER_CODES)
    error = refusal(context, Operation.ALTER)
    if error is not None:
        return await _answer(context, [error] * len(request.filters))
    filters = [filter_of_row(row) async for row in in_slices(request.filters)]
    found = await _found(context, filters)
    results = await change_metadata(
        context, lambda image: delete_acls(image.acls, found), note=lambda results: _note(context, results)
    )
    if isinstance(results, ApiError):
        return await _answer(
            context, [wanted if isinstance(wanted, ApiError) else results for wanted in filters]
        )
    return await _answer(context, results)


def _note(context: RequestContext[TopicServices], results: Sequence[Collection[AclEntry] | ApiError]) -> None:
    deleted = {entry: None for found in results if not isinstance(found, ApiError) for entry in found}
    log_change(context, "deleted access control entry:", list(deleted))


async def _found(
    context: RequestContext[TopicServices], filters: Sequence[AclFilter | ApiError]
) -> list[Found]:
    """Return what each filter finds, in slices of time: an entry that is created meanwhile may stay."""
    stored = context.services.metadata_log.image.acls
    found: list[Found] = []
    left = acls.MOST_LOOKED_AT
    for wanted in filters:
        if isinstance(wanted, ApiError):
            found.append(wanted)
            continue
        candidates = stored.candidates(wanted)
        left -= len(candidates)
        if left < 0:
            found.append(acls.TOO_MANY)
            continue
        found.append(
            {entry_id: entry async for entry_id, entry in in_slices(candidates) if wanted.matches(entry)}
        )
    return found


async def _answer(
    context: RequestContext[TopicServices], results: Sequence[Collection[AclEntry] | ApiError]
) -> Any:
    module = response_module(API_KEY, context.api_version)
    return build(
        module.DeleteAclsResponse,
        filter_results=tuple([_result(module, result) async for result in in_slices(results)]),
    )


def _result(module: Any, result: Collection[AclEntry] | ApiError) -> Any:
    if isinstance(result, ApiError):
        return build(
            module.DeleteAclsFilterResult,
            error_code=result.error_code,
            error_message=result.message,
            matching_acls=(),
        )
    return build(
        module.DeleteAclsFilterResult,
        error_code=ErrorCode.none,
        error_message=None,
        matching_acls=tuple(
            build(
                module.DeleteAclsMatchingAcl,
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=entry.resource_type,
                resource_name=entry.name,
                pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in result
        ),
    )


API = Api(
    key=API_KEY,
    name="DeleteAcls",
    min_version=1,
    max_version=3,
    reaches=api.topics,
    handle=handle,
    is_long=True,
)
