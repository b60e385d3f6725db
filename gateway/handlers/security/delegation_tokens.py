"""Delegation tokens: made, renewed, expired and listed.

CreateDelegationToken (key 38, versions 1-3): make a token with which others log in as its owner. Rights:
`CREATE_TOKENS` on the user (for another owner).

Source: Kafka's ControllerApis.handleCreateDelegationTokenRequest, DelegationTokenControlManager.

RenewDelegationToken (key 39, versions 1-2): let a token expire later. Rights: none.

Source: Kafka's ControllerApis.handleRenewDelegationTokenRequest, DelegationTokenControlManager.

ExpireDelegationToken (key 40, versions 1-2): let a token expire earlier, or at once. Rights: none.

Source: Kafka's ControllerApis.handleExpireDelegationTokenRequest, DelegationTokenControlManager.

DescribeDelegationToken (key 41, versions 1-3): list tokens with their passwords, to those who own or renew
them. Rights: `DESCRIBE_TOKENS` on the user (tokens of another owner); `DESCRIBE` on the token (or this).

Source: Kafka's KafkaApis.handleDescribeTokensRequest, DelegationTokenManager.filterToken.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config.listeners import SecurityProtocol
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from seqgate.gateway.metadata.tokens import USER_TYPE, Lifetimes, StoredTokens, is_expired
from seqgate.gateway.protocol.messages import milliseconds, time_of
from seqgate.gateway.runtime.services import SecurityServices
from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.gateway.security.principals import ANONYMOUS

ID_BYTES: Final = 16
MAX_RENEWERS: Final = 100
"""Renewers of one token; a request with more is refused with INVALID_REQUEST. Kafka has no such limit."""


async def handle_create(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Create a token, and return it with its password."""
    requester = context.peer.principal
    owner = requester
    if getattr(request, "owner_principal_name", None):
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
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

    created = await change_metadata_until_it_counts(
        context,
        lambda image: create_token(
            image.tokens,
            secrets.token_urlsafe(ID_BYTES),
            owner,
            requester,
            [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
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


def create_token(
    stored: StoredTokens,
    token_id: str,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    lifetimes: Lifetimes,
    asked_lifetime_ms: int,
    *,
    most: int,
) -> Decision[DelegationTokenRecord | ApiError]:
    """Create a token; `asked_lifetime_ms` 0 or less is the longest lifetime."""
    if any(not renewer.startswith(USER_TYPE) for renewer in renewers):
        return Decision((), ApiError(ErrorCode.invalid_principal_type))
    if len(renewers) > MAX_RENEWERS:
        return Decision((), ApiError(ErrorCode.invalid_request))
    if len(stored.by_id) >= most:
        return Decision((), ApiError(ErrorCode.policy_violation))
    lifetime_ms = lifetimes.max_lifetime_ms
    if asked_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, asked_lifetime_ms)
    max_timestamp = lifetimes.now_ms + lifetime_ms
    token = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=tuple(renewers),
        issue_timestamp=lifetimes.now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(max_timestamp, lifetimes.now_ms + lifetimes.expiry_time_ms),
        token_id=token_id,
    )
    return Decision([token], token)


def _refusal(
    context: RequestContext[SecurityServices], error: ErrorCode, owner: str, *, time_ms: int = -1
) -> Any:
    nothing = DelegationTokenRecord(owner, context.peer.principal, (), time_ms, time_ms, time_ms, "")
    return _answer(context, error, nothing, b"")


def _answer(
    context: RequestContext[SecurityServices], error: ErrorCode, token: DelegationTokenRecord, password: bytes
) -> Any:
    return context.answer(
        error_code=error,
        **_owner_and_requester(token),
        issue_timestamp=time_of(token.issue_timestamp),
        expiry_timestamp=time_of(token.expiration_timestamp),
        max_timestamp=time_of(token.max_timestamp),
        token_id=token.token_id,
        hmac=password,
    )


def _owner_and_requester(token: DelegationTokenRecord) -> dict[str, str]:
    """Return the fields of an answer that name the owner of a token, and who asked for the token."""
    owner_type, owner = type_and_name(token.owner)
    requester_type, requester = type_and_name(token.requester)
    return {
        "principal_type": owner_type,
        "principal_name": owner,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester,
    }


async def handle_renew(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Renew a token for a period, and return the time at which the token expires."""
    return await _change_expiry(
        context,
        request.hmac,
        "renewed",
        lambda token: renew_token(
            token,
            context.peer.principal,
            context.services.tokens.lifetimes(),
            milliseconds(request.renew_period),
        ),
    )


def renew_token(
    token: DelegationTokenRecord | None, principal: str, lifetimes: Lifetimes, period_ms: int
) -> Decision[int | ApiError]:
    """Let a token expire later; the answer is the new time. A `period_ms` up to 0 is that of the settings."""
    if token is None:
        return Decision((), ApiError(ErrorCode.delegation_token_not_found))
    if is_expired(token, lifetimes.now_ms):
        return Decision((), ApiError(ErrorCode.delegation_token_expired))
    if not _may_renew(token, principal):
        return Decision((), ApiError(ErrorCode.delegation_token_owner_mismatch))
    renewed_for_ms = lifetimes.expiry_time_ms
    if period_ms > 0:
        renewed_for_ms = min(renewed_for_ms, period_ms)
    return _expiring_at(token, lifetimes.now_ms + renewed_for_ms)


async def handle_expire(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Set the time at which a token expires, or remove the token at once; return that time."""
    return await _change_expiry(
        context,
        request.hmac,
        "expired",
        lambda token: expire_token(
            token,
            context.peer.principal,
            context.services.tokens.lifetimes().now_ms,
            milliseconds(request.expiry_time_period),
        ),
    )


def expire_token(
    token: DelegationTokenRecord | None, principal: str, now_ms: int, period_ms: int
) -> Decision[int | ApiError]:
    """Let a token expire after `period_ms`, at once when that is negative; the answer is the time."""
    if token is None:
        return Decision((), ApiError(ErrorCode.delegation_token_not_found))
    if not _may_renew(token, principal):
        return Decision((), ApiError(ErrorCode.delegation_token_owner_mismatch))
    if period_ms < 0:
        return Decision([RemoveDelegationTokenRecord(token.token_id)], now_ms)
    if is_expired(token, now_ms):
        return Decision((), ApiError(ErrorCode.delegation_token_expired))
    return _expiring_at(token, now_ms + period_ms)


def _may_renew(token: DelegationTokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _expiring_at(token: DelegationTokenRecord, time_ms: int) -> Decision[int | ApiError]:
    time_ms = min(token.max_timestamp, time_ms)
    return Decision([msgspec.structs.replace(token, expiration_timestamp=time_ms)], time_ms)


async def _change_expiry(
    context: RequestContext[SecurityServices],
    password: bytes,
    action: str,
    decide: Callable[[DelegationTokenRecord | None], Decision[int | ApiError]],
) -> Any:
    """Change the time at which the token with this password expires, and answer with that time."""

    def answer(error: ErrorCode, time: dt.datetime) -> Any:
        return context.answer(error_code=error, expiry_timestamp=time)

    tokens = context.services.tokens
    if not may_ask(context):
        return answer(ErrorCode.delegation_token_request_not_allowed, NO_TIME)
    if not tokens.is_on:
        return answer(ErrorCode.delegation_token_auth_disabled, time_of(0))
    token: DelegationTokenRecord | None = None

    def decide_on_newest(_image: MetadataImage) -> Decision[int | ApiError]:
        # Another gateway may have created the token: this one finds it once it has read the metadata.
        nonlocal token
        token = tokens.with_password(password)
        return decide(token)

    def note(expires_at_ms: int | ApiError) -> None:
        if token is not None and not isinstance(expires_at_ms, ApiError):
            log_change(context, f"{action} delegation token", [token.token_id])

    expires_at_ms = await change_metadata_until_it_counts(context, decide_on_newest, note=note)
    if isinstance(expires_at_ms, ApiError):
        return answer(expires_at_ms.error_code, time_of(0))
    return answer(ErrorCode.none, time_of(expires_at_ms))


async def handle_describe(context: RequestContext[SecurityServices], request: Any) -> Any:
    """Return the tokens that the client may see."""
    if not may_ask(context):
        return context.answer(error_code=ErrorCode.delegation_token_request_not_allowed, tokens=())
    if not context.services.tokens.is_on:
        return context.answer(error_code=ErrorCode.delegation_token_auth_disabled, tokens=())
    owners = None
    if request.owners is not None:
        owners = [f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners]
    found = describe_tokens(
        context.services.metadata_log.image.tokens,
        context.peer.principal,
        owners,
        lambda token: (
            context.could(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or context.could(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        ),
    )
    return context.answer(error_code=ErrorCode.none, tokens=[_token(context, token) for token in found])


def describe_tokens(
    stored: StoredTokens,
    principal: str,
    owners: Sequence[str] | None,
    may_describe: Callable[[DelegationTokenRecord], bool],
) -> Iterable[DelegationTokenRecord]:
    """Yield the tokens a principal may see: its own, and those for which `may_describe` is true. `owners`
    None asks for all tokens, otherwise for those of which one of the owners is owner, requester or renewer.
    """
    for token in stored.by_id.values():
        if owners is not None and not any(is_of(token, owner) for owner in owners):
            continue
        if is_of(token, principal) or may_describe(token):
            yield token


def is_of(token: DelegationTokenRecord, principal: str) -> bool:
    """Return whether a principal is the owner, the requester or a renewer of a token."""
    return principal in {token.owner, token.requester} or principal in token.renewers


def _token(context: RequestContext[SecurityServices], token: DelegationTokenRecord) -> dict[str, Any]:
    return {
        **_owner_and_requester(token),
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiration_timestamp,
        "max_timestamp": token.max_timestamp,
        "token_id": token.token_id,
        "hmac": context.services.tokens.password(token.token_id),
        "renewers": [
            {"principal_type": kind, "principal_name": name}
            for kind, name in map(type_and_name, token.renewers)
        ],
    }


# The parts that all requests about delegation tokens share: who may send such a request, and how requests
# name principals.

NO_TIME: Final = time_of(-1)
"""The time -1, which stands for "no time" in the answer to a request that is not allowed."""


def may_ask(context: RequestContext[SecurityServices]) -> bool:
    """Return whether the client may ask about tokens: it must have logged in, and not with a token."""
    protocol = context.node.config.protocol_of(context.listener_name)
    if protocol is SecurityProtocol.PLAINTEXT or context.peer.token_id is not None:
        return False
    return protocol is not SecurityProtocol.SSL or context.peer.principal != ANONYMOUS


def type_and_name(principal: str) -> tuple[str, str]:
    principal_type, _, name = principal.partition(":")
    return principal_type, name


CREATE_DELEGATION_TOKEN_API = Api(key=38, versions=(1, 3), reaches=api.security, handle=handle_create)
RENEW_DELEGATION_TOKEN_API = Api(key=39, versions=(1, 2), reaches=api.security, handle=handle_renew)
EXPIRE_DELEGATION_TOKEN_API = Api(key=40, versions=(1, 2), reaches=api.security, handle=handle_expire)
DESCRIBE_DELEGATION_TOKEN_API = Api(
    key=41, versions=(1, 3), reaches=api.security, handle=handle_describe, is_long=True
)
