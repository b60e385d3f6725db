"""CreateAcls (key 30, versions 1-3): create access control entries, which count before the answer leaves.

    entry                                           answer
    exists already                                  success
    ANY or MATCH in a field                         UNKNOWN_SERVER_ERROR for all entries of the request, as in Kafka
    CLUSTER with another name than kafka-cluster    INVALID_REQUEST
    empty name, principal without ':'               INVALID_REQUEST
    code beyond an enumeration                      INVALID_REQUEST
    code 0                                          the connection is closed

Needs ALTER on the cluster. Without an authorizer the answer is SECURITY_DISABLED. The host is any text.
Source: Kafka's AclApis.handleCreateAcls, AclControlManager.createAcls.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import change_metadata, log_change
from gateway.handlers.security.acl_fields import (
    CREATION_CODES,
    check_codes,
    entry_of_row,
    is_a_filter,
    refusal,
)
from gateway.metadata.acls import create_acls
from gateway.metadata.decision import ApiError
from gateway.protocol.messages import build, response_module
from gateway.runtime.loop.slices import in_slices
from gateway.runtime.services import TopicServices
from gateway.security.acls.codes import Operation

API_KEY: Final = 30
_FILTER: Final = ApiError(ErrorCode.unknown_server_error)


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
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

    results = await change_metadata(
        context, lambda image: create_acls(image.acls, wanted, uuid.uuid4, most=most), note=note
    )
    if isinstance(results, ApiError):
        return await _answer(context, [entry if isinstance(entry, ApiError) else results for entry in wanted])
    return await _answer(context, results)


async def _answer(context: RequestContext[TopicServices], results: Sequence[ApiError | None]) -> Any:
    module = response_module(API_KEY, context.api_version)
    return build(
        module.CreateAclsResponse,
        results=tuple(
            [
                build(
                    module.AclCreationResult,
                    error_code=ErrorCode.none if result is None else result.error_code,
                    error_message="" if result is None else result.message,
                )
                async for result in in_slices(results)
            ]
        ),
    )


API = Api(
    key=API_KEY,
    name="CreateAcls",
    min_version=1,
    max_version=3,
    reaches=api.topics,
    handle=handle,
)
