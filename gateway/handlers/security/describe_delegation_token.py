"""DescribeDelegationToken (key 41, versions 1-3): list tokens with their passwords, to those who own or renew them.

Source: Kafka's KafkaApis.handleDescribeTokensRequest, DelegationTokenManager.filterToken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.security.token_requests import may_ask, principal_of, type_and_name
from gateway.metadata.records import DelegationTokenRecord
from gateway.metadata.tokens import describe_tokens
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import SecurityServices
from gateway.security.acls.codes import Operation, ResourceType

API_KEY: Final = 41


async def handle(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Return the tokens that the client may see."""
    if not may_ask(context):
        return _answer(context, ErrorCode.delegation_token_request_not_allowed, ())
    if not context.services.tokens.is_on:
        return _answer(context, ErrorCode.delegation_token_auth_disabled, ())
    owners = None
    if request.owners is not None:
        owners = [principal_of(owner.principal_type, owner.principal_name) for owner in request.owners]
    found = describe_tokens(
        context.services.metadata_log.image.tokens,
        context.peer.principal,
        owners,
        lambda token: (
            context.could(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or context.could(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        ),
    )
    return _answer(context, ErrorCode.none, found)


def _answer(
    context: RequestContext[SecurityServices], error: ErrorCode, tokens: Iterable[DelegationTokenRecord]
) -> Any:
    module = response_module(API_KEY, context.api_version)
    return build(
        module.DescribeDelegationTokenResponse,
        error_code=error,
        tokens=tuple(_token(context, module, token) for token in tokens),
    )


def _token(context: RequestContext[SecurityServices], module: Any, token: DelegationTokenRecord) -> Any:
    owner_type, owner = type_and_name(token.owner)
    requester_type, requester = type_and_name(token.requester)
    return build(
        module.DescribedDelegationToken,
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=context.services.tokens.password(token.token_id),
        renewers=tuple(
            build(module.DescribedDelegationTokenRenewer, principal_type=kind, principal_name=name)
            for kind, name in map(type_and_name, token.renewers)
        ),
    )


API = Api(
    key=API_KEY,
    name="DescribeDelegationToken",
    min_version=1,
    max_version=3,
    reaches=api.security,
    handle=handle,
    is_long=True,
)
