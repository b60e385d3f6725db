"""The SCRAM users of a running gateway."""

from __future__ import annotations

from gateway.admin.operation import LiveGateway, page
from gateway.admin.request import ControlError
from gateway.admin.users.changes import remove_credentials, row_of, set_credentials
from gateway.admin.users.messages import (
    AddUserRequest,
    ChangedUser,
    ListUsersRequest,
    RemoveUserRequest,
    UserPage,
)
from gateway.runtime.topics.metadata_log import Decide
from log import LogError


def list_users(gateway: LiveGateway, request: ListUsersRequest) -> UserPage:
    """Return one page of the users, by name."""
    users = gateway.services.topics.metadata_log.image.users.by_name
    names, complete = page(users, request.after, request.limit, key=lambda name: name)
    return UserPage([row_of(name, users[name]) for name in names], complete)


async def add_user(gateway: LiveGateway, request: AddUserRequest) -> ChangedUser:
    """Set credentials of a user. Raises ControlError."""
    most = gateway.services.node.config.int("seqgate.scram.users.max")
    return await _commit(
        gateway, lambda image: set_credentials(image, request.user, request.credentials, most=most)
    )


async def remove_user(gateway: LiveGateway, request: RemoveUserRequest) -> ChangedUser:
    """Remove credentials of a user. Raises ControlError."""
    return await _commit(gateway, lambda image: remove_credentials(image, request.user, request.mechanisms))


async def _commit(gateway: LiveGateway, decide: Decide[ChangedUser]) -> ChangedUser:
    try:
        return await gateway.services.topics.metadata_log.commit(decide)
    except LogError as error:
        raise ControlError(f"the change could not be stored: {error}") from error
