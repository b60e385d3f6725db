"""The delegation tokens that the metadata log stores, and the decisions that change them. The stored record
has no secret: a token's password follows from its id and the setting `delegation.token.secret.key`. Source:
Kafka's DelegationTokenControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord

USER_TYPE: Final = "User:"


MAX_RENEWERS: Final = 100
"""Renewers of one token; a request with more is refused with INVALID_REQUEST. Kafka has no such limit."""


class Lifetimes(msgspec.Struct, frozen=True):
    now_ms: int
    max_lifetime_ms: int
    expiry_time_ms: int


class StoredTokens:
    """The tokens of the metadata image, by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, DelegationTokenRecord] = {}

    def replay(self, record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> None:
        """Replay one record. The removal of an unknown token changes nothing."""
        if isinstance(record, DelegationTokenRecord):
            self.by_id[record.token_id] = record
        else:
            self.by_id.pop(record.token_id, None)


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def is_of(token: DelegationTokenRecord, principal: str) -> bool:
    """Return whether a principal is the owner, the requester or a renewer of a token."""
    return principal in {token.owner, token.requester} or principal in token.renewers


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


def remove_expired(stored: StoredTokens, now_ms: int) -> Decision[list[str]]:
    """Remove the expired tokens; the answer has their ids."""
    expired = [token_id for token_id, token in stored.by_id.items() if is_expired(token, now_ms)]
    return Decision([RemoveDelegationTokenRecord(token_id) for token_id in expired], expired)


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
