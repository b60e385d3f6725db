"""The decisions of `seqgate users` on the metadata, and its rows. Each function raises ControlError.

The SCRAM users in a data directory that no gateway has open.

Listing needs no lock and changes nothing. A change takes the directory's lock, and is durable before it is
answered. Where there is no data directory yet, the first user creates it, so that a gateway can start with
nobody but this user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from seqgate.gateway.admin.operation import LiveGateway, StoppedGateway
from seqgate.gateway.admin.request import ControlError, page
from seqgate.gateway.admin.stored import create_metadata, metadata_directory, open_metadata, read_image
from seqgate.gateway.admin.users.command import (
    AddUserRequest,
    ChangedUser,
    CredentialRow,
    ListUsersRequest,
    NewCredential,
    RemoveUserRequest,
    UserPage,
    UserRow,
)
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.metadata.users import Deletion, Upsertion, alter_users
from seqgate.gateway.runtime.topics.metadata_log import Decide
from seqgate.gateway.security.sasl.scram_credential import ScramCredential, ScramHash
from seqgate.log import LogError


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
    """Decide on each change separately: a request of the Kafka protocol changes one credential of a user."""
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


# The SCRAM users of a running gateway.


def list_users_live(gateway: LiveGateway, request: ListUsersRequest) -> UserPage:
    """Return one page of the users, by name."""
    return _page_of(gateway.services.topics.metadata_log.image, request)


def _page_of(image: MetadataImage, request: ListUsersRequest) -> UserPage:
    users = image.users.by_name
    names, complete = page(users, request.after, request.limit, key=lambda name: name)
    return UserPage([row_of(name, users[name]) for name in names], complete)


async def add_user_live(gateway: LiveGateway, request: AddUserRequest) -> ChangedUser:
    """Set credentials of a user. Raises ControlError."""
    most = gateway.services.node.config.int("seqgate.scram.users.max")
    return await _commit(
        gateway, lambda image: set_credentials(image, request.user, request.credentials, most=most)
    )


async def remove_user_live(gateway: LiveGateway, request: RemoveUserRequest) -> ChangedUser:
    """Remove credentials of a user. Raises ControlError."""
    return await _commit(gateway, lambda image: remove_credentials(image, request.user, request.mechanisms))


async def _commit(gateway: LiveGateway, decide: Decide[ChangedUser]) -> ChangedUser:
    try:
        return await gateway.services.topics.metadata_log.commit(decide)
    except LogError as error:
        raise ControlError(f"the change could not be stored: {error}") from error


def list_users_stopped(gateway: StoppedGateway, request: ListUsersRequest) -> UserPage:
    """Return all users, by name. Raises ControlError."""
    return _page_of(read_image(metadata_directory(gateway.data_dir)), request)


def add_user_stopped(gateway: StoppedGateway, request: AddUserRequest) -> ChangedUser:
    """Set credentials of a user. Raises ControlError."""
    most = gateway.config.int("seqgate.scram.users.max")
    created = create_metadata(gateway.data_dir, gateway.config.int("node.id"))
    changed = asyncio.run(
        _commit_stopped(
            gateway, lambda image: set_credentials(image, request.user, request.credentials, most=most)
        )
    )
    return msgspec.structs.replace(changed, created_data_dir=created)


def remove_user_stopped(gateway: StoppedGateway, request: RemoveUserRequest) -> ChangedUser:
    """Remove credentials of a user. Raises ControlError."""
    return asyncio.run(
        _commit_stopped(gateway, lambda image: remove_credentials(image, request.user, request.mechanisms))
    )


async def _commit_stopped(gateway: StoppedGateway, decide: Decide[ChangedUser]) -> ChangedUser:
    async with open_metadata(gateway.data_dir) as metadata_log:
        return await metadata_log.commit(decide)
