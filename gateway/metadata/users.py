"""The SCRAM credentials that the metadata log stores, and the decisions that change them. Source: Kafka's
ScramControlManager. A request changes at most one credential of a user; a user who is refused
does not affect the other users of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from seqgate.gateway.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramHash,
    credential_of,
)

MAX_NAME_BYTES: Final = 1_024
"""Bytes of a user's name in UTF-8; longer: UNACCEPTABLE_CREDENTIAL. Kafka has no such limit."""
MAX_SALT_BYTES: Final = 1_024
"""Bytes of a salt, and of a salted password; more: UNACCEPTABLE_CREDENTIAL. Kafka has no such limit."""
_MECHANISMS: Final = frozenset(ScramHash)


class Deletion(NamedTuple):
    """The request to delete the credential of a user; `mechanism` is the number that the client sent."""

    name: str
    mechanism: int


class Upsertion(NamedTuple):
    """The request to set the credential of a user; `mechanism` is the number that the client sent."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


class StoredUsers:
    """The credentials of the metadata image, by user."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[ScramHash, ScramCredential]] = {}
        """The credentials of each user who has any."""

    def find(self, hashing: ScramHash, name: str) -> ScramCredential | None:
        """Return the credential of a user; None when the user has none for this mechanism."""
        return self.by_name.get(name, {}).get(hashing)

    def replay(self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> None:
        """Replay one record. The removal of an unknown credential changes nothing."""
        if isinstance(record, UserScramCredentialRecord):
            self.by_name.setdefault(record.name, {})[record.mechanism] = ScramCredential(
                record.salt, record.stored_key, record.server_key, record.iterations
            )
            return
        credentials = self.by_name.get(record.name)
        if credentials is not None:
            credentials.pop(record.mechanism, None)
            if not credentials:
                del self.by_name[record.name]


def alter_users(
    stored: StoredUsers, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], *, most: int
) -> Decision[dict[str, ApiError | None]]:
    """Set and delete credentials of up to `most` users; the answer has an error, or None, for each."""
    changes: dict[str, Deletion | Upsertion] = {}
    errors: dict[str, ApiError] = {}
    wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in wanted:
        if change.name in errors:
            continue
        if changes.pop(change.name, None) is not None:
            errors[change.name] = ApiError(
                ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
            )
            continue
        error = _error(stored, change)
        if error is None:
            changes[change.name] = change
        else:
            errors[change.name] = error
    _limit(stored, changes, errors, most)
    return Decision([_record_of(change) for change in changes.values()], {**dict.fromkeys(changes), **errors})


def _error(stored: StoredUsers, change: Deletion | Upsertion) -> ApiError | None:
    if not change.name:
        return _unacceptable("Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        return ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion):
        return _error_of_credential(change)
    if stored.find(ScramHash(change.mechanism), change.name) is None:
        return ApiError(
            ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
        )
    return None


def _error_of_credential(change: Upsertion) -> ApiError | None:
    if change.iterations < MIN_ITERATIONS:
        return _unacceptable(
            f"Too few iterations: at least {MIN_ITERATIONS} are needed, not {change.iterations}"
        )
    if change.iterations > MAX_ITERATIONS:
        return _unacceptable(
            f"Too many iterations: at most {MAX_ITERATIONS} are allowed, not {change.iterations}"
        )
    length = len(change.name.encode())
    if length > MAX_NAME_BYTES:
        return _unacceptable(f"The user name may have {MAX_NAME_BYTES} bytes, not {length}")
    if not change.salted_password:
        return _unacceptable("The salted password must not be empty")
    length = max(len(change.salt), len(change.salted_password))
    if length > MAX_SALT_BYTES:
        return _unacceptable(
            f"The salt and the salted password may have {MAX_SALT_BYTES} bytes each, not {length}"
        )
    return None


def _unacceptable(message: str) -> ApiError:
    return ApiError(ErrorCode.unacceptable_credential, message)


def _limit(
    stored: StoredUsers, changes: dict[str, Deletion | Upsertion], errors: dict[str, ApiError], most: int
) -> None:
    """Move the new users beyond the limit from the changes to the errors."""
    new = [
        name
        for name, change in changes.items()
        if isinstance(change, Upsertion) and name not in stored.by_name
    ]
    for name in new[max(0, most - len(stored.by_name)) :]:
        del changes[name]
        errors[name] = ApiError(
            ErrorCode.policy_violation,
            f"{most} users have credentials, as many as seqgate.scram.users.max allows; delete some or raise "
            "it.",
        )


def _record_of(change: Deletion | Upsertion) -> MetadataRecord:
    hashing = ScramHash(change.mechanism)
    if isinstance(change, Deletion):
        return RemoveUserScramCredentialRecord(change.name, hashing)
    made = credential_of(hashing, change.salted_password, change.salt, change.iterations)
    return record_of_credential(change.name, hashing, made)


def record_of_credential(
    name: str, hashing: ScramHash, credential: ScramCredential
) -> UserScramCredentialRecord:
    keys = (credential.salt, credential.stored_key, credential.server_key)
    return UserScramCredentialRecord(name, hashing, *keys, credential.iterations)
