"""RenewDelegationToken (key 39, versions 1-2): let a token expire later.

Source: Kafka's ControllerApis.handleRenewDelegationTokenRequest, DelegationTokenControlManager.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import change_metadata, log_change
from gateway.handlers.security.token_requests import NO_TIME, may_ask, milliseconds, time_of
from gateway.metadata.decision import ApiError
from gateway.metadata.tokens import renew_token
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import SecurityServices

API_KEY: Final = 39


async def handle(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Renew a token for a period, and return the time at which the token expires."""
    module = response_module(API_KEY, context.api_version)
    error, time = await _renew(context, request)
    return build(module.RenewDelegationTokenResponse, error_code=error, expiry_timestamp=time)


async def _renew(context: RequestContext[SecurityServices], request: Any) -> tuple[ErrorCode, Any]:
    tokens = context.services.tokens
    if not may_ask(context):
        return ErrorCode.delegation_token_request_not_allowed, NO_TIME
    if not tokens.is_on:
        return ErrorCode.delegation_token_auth_disabled, time_of(0)
    token = tokens.with_password(request.hmac)

    def note(expires_at_ms: int | ApiError) -> None:
        if token is not None and not isinstance(expires_at_ms, ApiError):
            log_change(context, "renewed delegation token", [token.token_id])

    expires_at_ms = await change_metadata(
        context,
        lambda image: renew_token(
            image.tokens.by_id.get(token.token_id) if token else None,
            context.peer.principal,
            tokens.lifetimes(),
            milliseconds(request.renew_period),
        ),
        note=note,
    )
    if isinstance(expires_at_ms, ApiError):
        return expires_at_ms.error_code, time_of(0)
    return ErrorCode.none, time_of(expires_at_ms)


API = Api(
    key=API_KEY,
    name="RenewDelegationToken",
    min_version=1,
    max_version=2,
    reaches=api.security,
    handle=handle,
)
