"""The delegation tokens of this node: their passwords, their logins, and the removal of expired ones.

A token's password (its HMAC) follows from its id and `delegation.token.secret.key`. Its SCRAM credential is
derived at its first login, in a thread, and cached until the token is gone.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
from collections.abc import Sequence
from typing import Final

from seqgate.gateway.config import Config
from seqgate.gateway.config.oauthbearer import KEY_SETTING, OLD_KEY_SETTING
from seqgate.gateway.metadata.records import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)
from seqgate.gateway.metadata.tokens import USER_TYPE, Lifetimes, StoredTokens, is_expired, remove_expired
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.security.sasl.scram import TokenLogin
from seqgate.gateway.security.sasl.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramHash,
    credential_of,
    salt_password,
)
from seqgate.log import LogError

logger = logging.getLogger(__name__)

SALT_BYTES: Final = 16


class DelegationTokens:
    def __init__(self, config: Config, clock: Clock, metadata_log: MetadataLog) -> None:
        key = config[OLD_KEY_SETTING] if config[KEY_SETTING] is None else config[KEY_SETTING]
        self._key = None if key is None else str(key).encode()
        self._config = config
        self._clock = clock
        self._metadata_log = metadata_log
        self._stored: StoredTokens = metadata_log.image.tokens
        self._ids: dict[bytes, str] = {}
        """The ids of tokens by their passwords, for passwords that were looked up."""
        self._known: set[str] = set()
        self._credentials: dict[tuple[str, ScramHash], asyncio.Future[ScramCredential]] = {}
        metadata_log.add_listener(self._metadata_changed)

    @property
    def is_on(self) -> bool:
        """Whether the gateway has a key, and so serves tokens."""
        return self._key is not None

    def lifetimes(self) -> Lifetimes:
        return Lifetimes(
            self._clock.now_ms(),
            self._config.int("delegation.token.max.lifetime.ms"),
            self._config.int("delegation.token.expiry.time.ms"),
        )

    def password(self, token_id: str) -> bytes:
        return hmac.digest(self._key or b"", token_id.encode(), "sha512")

    def with_password(self, password: bytes) -> DelegationTokenRecord | None:
        for token_id in self._stored.by_id.keys() - self._known:
            self._ids[self.password(token_id)] = token_id
            self._known.add(token_id)
        token_id = self._ids.get(password, "")
        return self._stored.by_id.get(token_id)

    async def find(self, hashing: ScramHash, token_id: str) -> TokenLogin | None:
        """Return the token of an id for a login; None when there is no such token, or it has expired."""
        token = self._stored.by_id.get(token_id)
        if not self.is_on or token is None or is_expired(token, self._clock.now_ms()):
            return None
        if not token.owner.startswith(USER_TYPE):
            return None
        credential = await asyncio.shield(self._credential(hashing, token_id))
        return TokenLogin(credential, token.owner.removeprefix(USER_TYPE), token.expiration_timestamp)

    def _credential(self, hashing: ScramHash, token_id: str) -> asyncio.Future[ScramCredential]:
        found = self._credentials.get((token_id, hashing))
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            password = base64.b64encode(self.password(token_id))
            found = asyncio.get_running_loop().run_in_executor(None, _derived, hashing, password)
            self._credentials[token_id, hashing] = found
        return found

    async def remove_expired(self) -> None:
        now_ms = self._clock.now_ms()
        if not any(is_expired(token, now_ms) for token in self._stored.by_id.values()):
            return
        try:
            removed = await self._metadata_log.commit(lambda image: remove_expired(image.tokens, now_ms))
        except LogError as error:
            logger.warning("expired delegation tokens are not removed yet: %s", error)
        else:
            logger.info("removed %d expired delegation tokens", len(removed))

    async def _metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Forget the passwords and credentials of removed tokens."""
        for record in records:
            if isinstance(record, RemoveDelegationTokenRecord):
                for hashing in ScramHash:
                    self._credentials.pop((record.token_id, hashing), None)
                if record.token_id in self._known:
                    self._known.remove(record.token_id)
                    del self._ids[self.password(record.token_id)]


def _derived(hashing: ScramHash, password: bytes) -> ScramCredential:
    salt = secrets.token_bytes(SALT_BYTES)
    return credential_of(
        hashing, salt_password(hashing, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS
    )
