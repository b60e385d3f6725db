"""The delegation tokens that the metadata log stores. The stored record has no secret: a token's password
follows from its id and the setting `delegation.token.secret.key`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord

USER_TYPE: Final = "User:"


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


def remove_expired(stored: StoredTokens, now_ms: int) -> Decision[list[str]]:
    """Remove the expired tokens; the answer has their ids."""
    expired = [token_id for token_id, token in stored.by_id.items() if is_expired(token, now_ms)]
    return Decision([RemoveDelegationTokenRecord(token_id) for token_id in expired], expired)
