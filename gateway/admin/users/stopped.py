"""The SCRAM users in a data directory that no gateway has open.

Listing needs no lock and changes nothing. A change takes the directory's lock, and is durable before it is answered. Where there is
no data directory yet, the first user creates it, so that a gateway can start with nobody but this user.
"""

from __future__ import annotations

import asyncio

import msgspec

from gateway.admin.stopped_gateway import StoppedGateway
from gateway.admin.stored import create_metadata, metadata_directory, open_metadata, read_image
from gateway.admin.users.changes import remove_credentials, row_of, set_credentials
from gateway.admin.users.messages import (
    AddUserRequest,
    ChangedUser,
    ListUsersRequest,
    RemoveUserRequest,
    UserPage,
)
from gateway.runtime.topics.metadata_log import Decide


def list_users(gateway: StoppedGateway, request: ListUsersRequest) -> UserPage:
    """Return all users, by name. Raises ControlError."""
    users = read_image(metadata_directory(gateway.data_dir)).users.by_name
    after = request.after
    return UserPage(
        [row_of(name, users[name]) for name in sorted(users) if after is None or name > after], True
    )


def add_user(gateway: StoppedGateway, request: AddUserRequest) -> ChangedUser:
    """Set credentials of a user. Raises ControlError."""
    most = gateway.config.int("seqgate.scram.users.max")
    created = create_metadata(gateway.data_dir, gateway.config.int("node.id"))
    changed = asyncio.run(
        _commit(gateway, lambda image: set_credentials(image, request.user, request.credentials, most=most))
    )
    return msgspec.structs.replace(changed, created_data_dir=created)


def remove_user(gateway: StoppedGateway, request: RemoveUserRequest) -> ChangedUser:
    """Remove credentials of a user. Raises ControlError."""
    return asyncio.run(
        _commit(gateway, lambda image: remove_credentials(image, request.user, request.mechanisms))
    )


async def _commit(gateway: StoppedGateway, decide: Decide[ChangedUser]) -> ChangedUser:
    async with open_metadata(gateway.data_dir) as metadata_log:
        return await metadata_log.commit(decide)
