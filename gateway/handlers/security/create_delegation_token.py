"""CreateDelegationToken (key 38, versions 1-3): make a token with which others log in as its owner.

Source: Kafka's ControllerApis.handleCreateDelegationTokenRequest, DelegationTokenControlManager.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import change_metadata, log_change
from gateway.handlers.security.token_requests import (
    NO_TIME,
    may_ask,
    milliseconds,
    principal_of,
    time_of,
    type_and_name,
)
from gateway.metadata.decision import ApiError
from gateway.metadata.records import DelegationTokenRecord
from gateway.metadata.tokens import create_token
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import SecurityServices
from gateway.security.acls.codes import Operation, ResourceType

API_KEY: Final = 38
ID_BYTES: Final = 16


async def handle(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Create a token, and return it with its password."""
    requester = context.peer.principal
    owner = requester
    if getattr(request, "owner_principal_name", None):
        owner = principal_of(request.owner_principal_type or "", request.owner_principal_name)
    if not may_ask(context):
        return _refusal(context, ErrorCode.delegation_token_request_not_allowed, owner)
    if owner != requester and not context.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return _refusal(context, ErrorCode.delegation_token_authorization_failed, owner)
    tokens = context.services.tokens
    if not tokens.is_on:
        return _refusal(context, ErrorCode.delegation_token_auth_disabled, owner, time_ms=0)

    def note(created: DelegationTokenRecord | ApiError) -> None:
        if not isinstance(created, ApiError):
            log_change(context, "created delegation token", [f"{created.token_id} of {owner}"])

    created = await change_metadata(
        context,
        lambda image: create_token(
            image.tokens,
            secrets.token_urlsafe(ID_BYTES),
            owner,
            requester,
            [principal_of(renewer.principal_type, renewer.principal_name) for renewer in request.renewers],
            tokens.lifetimes(),
            milliseconds(request.max_lifetime),
            most=context.node.config.int("seqgate.delegation.tokens.max"),
        ),
        note=note,
    )
    if isinstance(created, ApiError):
        time_ms = -1 if created.error_code is ErrorCode.invalid_principal_type else 0
        return _refusal(context, created.error_code, owner, time_ms=time_ms)
    return _answer(context, ErrorCode.none, created, tokens.password(created.token_id))


def _refusal(
    context: RequestContext[SecurityServices], error: ErrorCode, owner: str, *, time_ms: int = -1
) -> Any:
    nothing = DelegationTokenRecord(owner, context.peer.principal, (), time_ms, time_ms, time_ms, "")
    return _answer(context, error, nothing, b"")


def _answer(
    context: RequestContext[SecurityServices], error: ErrorCode, token: DelegationTokenRecord, password: bytes
) -> Any:
    module = response_module(API_KEY, context.api_version)
    owner_type, owner = type_and_name(token.owner)
    requester_type, requester = type_and_name(token.requester)
    return build(
        module.CreateDelegationTokenResponse,
        error_code=error,
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=_time(token.issue_timestamp),
        expiry_timestamp=_time(token.expiration_timestamp),
        max_timestamp=_time(token.max_timestamp),
        token_id=token.token_id,
        hmac=password,
    )


def _time(time_ms: int) -> Any:
    return NO_TIME if time_ms < 0 else time_of(time_ms)


API = Api(
    key=API_KEY,
    name="CreateDelegationToken",
    min_version=1,
    max_version=3,
    reaches=api.security,
    handle=handle,
)
