"""The requests about SCRAM users, and what `seqgate users … --json` prints."""

from __future__ import annotations

import msgspec

from seqgate.gateway.admin.request import PagedRequest, Request


class CredentialRow(msgspec.Struct, frozen=True):
    """The mechanism of a credential, such as `SCRAM-SHA-256`, and how often its password is hashed."""

    mechanism: str
    iterations: int


class UserRow(msgspec.Struct, frozen=True):
    """A user with all credentials."""

    user: str
    credentials: list[CredentialRow]


class UserPage(msgspec.Struct, frozen=True):
    """Some of the users; `complete`: no user comes after the last row."""

    users: list[UserRow]
    complete: bool


class ListUsersRequest(PagedRequest[UserPage], tag="users.list"):
    """The users by name, from the first one after `after` on."""

    rows = "users"
    key = "user"
    after: str | None = None


class NewCredential(msgspec.Struct, frozen=True):
    """A credential to set; the command has salted and hashed the password."""

    mechanism: str
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Return the text for logs, without the salted password."""
        return f"NewCredential(mechanism={self.mechanism!r}, iterations={self.iterations})"


class ChangedUser(msgspec.Struct, frozen=True):
    """A user whose credentials of these mechanisms were set or removed.

    `created_data_dir`: the command has created the data directory.
    """

    user: str
    mechanisms: list[str]
    created_data_dir: bool = False


class AddUserRequest(Request[ChangedUser], tag="users.add"):
    """Set credentials of a user, all or none; credentials of other mechanisms stay."""

    user: str
    credentials: list[NewCredential]


class RemoveUserRequest(Request[ChangedUser], tag="users.remove"):
    """Remove the credentials of a user for these mechanisms, all or none; without mechanisms all credentials."""

    user: str
    mechanisms: list[str] = msgspec.field(default_factory=list)
