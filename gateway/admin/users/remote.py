"""The SCRAM users of a cluster that is asked over the Kafka protocol. Raises ControlError."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import AlterUserScramCredentialsResponse
from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import DescribeUserScramCredentialsResponse
from kio.static.primitive import i8, i32

from seqgate.gateway.admin.remote.cluster import Cluster, ask_broker, check
from seqgate.gateway.admin.request import Request
from seqgate.gateway.admin.users.command import (
    AddUserRequest,
    ChangedUser,
    CredentialRow,
    ListUsersRequest,
    RemoveUserRequest,
    UserPage,
    UserRow,
)
from seqgate.gateway.security.sasl.scram_credential import ScramHash


def list_users(cluster: Cluster, _: ListUsersRequest) -> UserPage:
    """Return all users, by name."""
    answer = ask_broker(
        cluster.reached, DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
    )
    check(answer)
    rows = [
        UserRow(
            result.user,
            [
                CredentialRow(ScramHash(info.mechanism).mechanism, info.iterations)
                for info in sorted(result.credential_infos, key=lambda info: info.mechanism)
            ],
        )
        for result in answer.results
    ]
    return UserPage(sorted(rows, key=lambda row: row.user), True)


def add_user(cluster: Cluster, request: AddUserRequest) -> ChangedUser:
    """Set credentials of a user, one after the other, because a request changes only one."""
    from seqgate.gateway.admin.users.changes import hash_of  # noqa: PLC0415 - slow to import

    for each in request.credentials:
        upsertion = ScramCredentialUpsertion(
            name=request.user,
            mechanism=i8(hash_of(each.mechanism)),
            iterations=i32(each.iterations),
            salt=each.salt,
            salted_password=each.salted_password,
        )
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))
    return ChangedUser(request.user, [each.mechanism for each in request.credentials])


def remove_user(cluster: Cluster, request: RemoveUserRequest) -> ChangedUser:
    """Remove credentials of a user, one after the other, because a request changes only one."""
    from seqgate.gateway.admin.users.changes import hash_of  # noqa: PLC0415 - slow to import

    mechanisms = request.mechanisms or _mechanisms(cluster, request.user)
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=request.user, mechanism=i8(hash_of(mechanism)))
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=()))
    return ChangedUser(request.user, list(mechanisms))


def _mechanisms(cluster: Cluster, user: str) -> Sequence[str]:
    for row in list_users(cluster, ListUsersRequest()).users:
        if row.user == user:
            return [credential.mechanism for credential in row.credentials]
    from seqgate.gateway.admin.users.changes import no_user  # noqa: PLC0415 - slow to import

    raise no_user(user)


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    answer = ask_broker(cluster.reached, request, AlterUserScramCredentialsResponse)
    (result,) = answer.results
    check(result)


OPERATIONS: Final[Mapping[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    ListUsersRequest: list_users,
    AddUserRequest: add_user,
    RemoveUserRequest: remove_user,
}
"""The answers to the requests of commands."""
