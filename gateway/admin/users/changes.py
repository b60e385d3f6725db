"""The decisions of `seqgate users` on the metadata, and its rows. Each function raises ControlError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.admin.request import ControlError
from gateway.admin.users.messages import ChangedUser, CredentialRow, NewCredential, UserRow
from gateway.metadata.decision import Decision
from gateway.metadata.image import MetadataImage
from gateway.metadata.records import MetadataRecord
from gateway.metadata.users import Deletion, Upsertion, alter_users
from gateway.security.sasl.scram_credential import ScramCredential, ScramHash


def set_credentials(
    image: MetadataImage, user: str, credentials: Sequence[NewCredential], *, most: int
) -> Decision[ChangedUser]:
    """Set the credentials of a user."""
    return _altered(
        image,
        user,
        [
            Upsertion(user, hash_of(each.mechanism), each.iterations, each.salt, bytes(each.salted_password))
            for each in credentials
        ],
        most=most,
    )


def remove_credentials(image: MetadataImage, user: str, mechanisms: Sequence[str]) -> Decision[ChangedUser]:
    """Remove credentials of a user."""
    known = image.users.by_name.get(user, {})
    if not known:
        raise no_user(user)
    hashes = [hash_of(mechanism) for mechanism in mechanisms] or sorted(known)
    return _altered(image, user, [Deletion(user, hashing) for hashing in hashes], most=0)


def _altered(
    image: MetadataImage, user: str, changes: Sequence[Deletion | Upsertion], *, most: int
) -> Decision[ChangedUser]:
    """Decide on each change separately, because one request of the Kafka protocol changes one credential of a user."""
    records: list[MetadataRecord] = []
    for change in changes:
        is_deletion = isinstance(change, Deletion)
        decision = alter_users(
            image.users,
            [change] if isinstance(change, Deletion) else [],
            [] if isinstance(change, Deletion) else [change],
            most=most,
        )
        error = decision.answer[user]
        if error is not None:
            mechanism = ScramHash(change.mechanism).mechanism
            raise ControlError(
                no_credential(user, mechanism) if is_deletion else f"user {user}: {error.message}"
            )
        records += decision.records
    return Decision(records, ChangedUser(user, [ScramHash(change.mechanism).mechanism for change in changes]))


def hash_of(mechanism: str) -> ScramHash:
    """Return the hash function of a mechanism. Raises ControlError."""
    for hashing in ScramHash:
        if hashing.mechanism == mechanism:
            return hashing
    known = ", ".join(hashing.mechanism for hashing in ScramHash)
    raise ControlError(f"there is no mechanism {mechanism}; the mechanisms with credentials are {known}")


def no_user(user: str) -> ControlError:
    """Return the error for a user without credentials."""
    return ControlError(f"there is no user {user}")


def no_credential(user: str, mechanism: str) -> str:
    """Return the sentence for a user who has no credential of a mechanism."""
    return f"user {user} has no credential for {mechanism}"


def row_of(user: str, credentials: Mapping[ScramHash, ScramCredential]) -> UserRow:
    """Return the row of a user."""
    return UserRow(
        user,
        [
            CredentialRow(hashing.mechanism, credential.iterations)
            for hashing, credential in sorted(credentials.items())
        ],
    )
