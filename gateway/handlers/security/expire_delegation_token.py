"""ExpireDelegationToken (key 40, versions 1-2): let a token expire earlier, or at once.

Source: Kafka's ControllerApis.handleExpireDelegationTokenRequest, DelegationTokenControlManager.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import change_metadata, log_change
from gateway.handlers.security.token_requests import NO_TIME, may_ask, milliseconds, time_of
from gateway.metadata.decision import ApiError
from gateway.metadata.tokens import expire_token
from gateway.protocol.messages import build, response_module
from gateway.runtime.services import SecurityServices

API_KEY: Final = 40


async def handle(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Set the time at which a token expires, or remove the token at once; return that time."""
    module = response_module(API_KEY, context.api_version)
    error, time = await _expire(context, request)
    return build(module.ExpireDelegationTokenResponse, error_code=error, expiry_timestamp=time)


async def _expire(context: RequestContext[SecurityServices], request: Any) -> tuple[ErrorCode, Any]:
    tokens = context.services.tokens
    if not may_ask(context):
        return ErrorCode.delegation_token_request_not_allowed, NO_TIME
    if not tokens.is_on:
        return ErrorCode.delegation_token_auth_disabled, time_of(0)
    token = tokens.with_password(request.hmac)

    def note(expires_at_ms: int | ApiError) -> None:
        if token is not None and not isinstance(expires_at_ms, ApiError):
            log_change(context, "expired delegation token", [token.token_id])

    expires_at_ms = await change_metadata(
        context,
        lambda image: expire_token(
            image.tokens.by_id.get(token.token_id) if token else None,
            context.peer.principal,
            tokens.lifetimes().now_ms,
            milliseconds(request.expiry_time_period),
        ),
        note=note,
    )
    if isinstance(expires_at_ms, ApiError):
        return expires_at_ms.error_code, time_of(0)
    return ErrorCode.none, time_of(expires_at_ms)


API = Api(
    key=API_KEY,
    name="ExpireDelegationToken",
    min_version=1,
    max_version=2,
    reaches=api.security,
    handle=handle,
)
