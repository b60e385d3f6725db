"""`seqgate users`: the users that log in with SCRAM."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from seqgate.gateway.admin.commands import Commands, Output, argument, asks, option, stop
from seqgate.gateway.admin.options import Asker, Consented, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import ClusterAnswers, ControlError, PagedRequest, Request, page
from seqgate.gateway.admin.tables import Column, Table, count, counted, shown
from seqgate.gateway.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramHash,
    salt_password,
)

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway, StoppedGateway
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.config import Config
    from seqgate.gateway.metadata.decision import Decision
    from seqgate.gateway.metadata.image import MetadataImage
    from seqgate.gateway.runtime.topics.metadata_log import Decide

# The requests about SCRAM users, and what `seqgate users … --json` prints.


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
    """A user whose credentials were set or removed. `created_data_dir`: the command made the directory."""

    user: str
    mechanisms: list[str]
    created_data_dir: bool = False


class AddUserRequest(Request[ChangedUser], tag="users.add"):
    """Set credentials of a user, in a gateway all or none; credentials of other mechanisms stay."""

    user: str
    credentials: list[NewCredential]


class RemoveUserRequest(Request[ChangedUser], tag="users.remove"):
    """Remove the credentials of a user for these mechanisms, in a gateway all or none; without mechanisms all
    of them.
    """

    user: str
    mechanisms: list[str] = msgspec.field(default_factory=list)


app = Commands("""Add, remove and list the users that log in with SCRAM.

The commands ask the gateway that runs on --data-dir, or the cluster at --bootstrap over the Kafka protocol. \
When no gateway runs,
they read and change the data directory itself, so that the first user is there before the first start.
""")

_MECHANISMS: Final = {hashing.mechanism: hashing for hashing in ScramHash}

User = Annotated[str, argument("USER", "The name of the user.")]
Mechanisms = Annotated[
    list[str] | None,
    option("--mechanism", "MECHANISM", f"{' or '.join(_MECHANISMS)}; may be repeated.", show_default="all"),
]


@app.command("add")
@asks(gateway_or_cluster)
def add(
    opened: Opened[Asker],
    user: User,
    password_file: str | None = option(
        "--password-file",
        "FILE",
        "A file whose first line is the password; - is standard input. [default: ask on the terminal]",
    ),
    mechanisms: Mechanisms = None,
    iterations: int = option(
        "--iterations",
        "N",
        f"How often the password is hashed: {MIN_ITERATIONS} to {MAX_ITERATIONS} times.",
        show_default=True,
        default=MIN_ITERATIONS,
    ),
) -> Output:
    """Add a user, or give the user a new password.

    The gateway stores salted hashes and never sees the password. A new password counts for the next
    login; open connections stay.

    \b
    For example:
      seqgate users add ann
      seqgate users add ann --password-file ann.password --data-dir data
      head -c 24 /dev/urandom | base64 | tee ann.password | seqgate users add ann --password-file -
    """  # noqa: D301 - \b keeps the lines of the list apart
    hashes = [_MECHANISMS[mechanism] for mechanism in _checked(mechanisms) or _MECHANISMS]
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise stop(
            f"--iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}, not {iterations}", code=2
        )
    try:
        check_name(user)
    except ControlError as error:
        raise stop(str(error), code=2) from None
    password = read_password(password_file)
    request = AddUserRequest(user, [credential_for(hashing, password, iterations) for hashing in hashes])
    with opened as client:
        _, changed = client.ask_running_or_data_directory(request)
    created = ["Created the data directory."] if changed.created_data_dir else []
    return Output(changed, [*created, f"User {shown(user)} can log in with {_listed(changed)}."])


@app.command("remove")
@asks(gateway_or_cluster)
def remove(opened: Opened[Asker], user: User, *, mechanisms: Mechanisms = None, consent: Consented) -> Output:
    """Remove a user, or the credentials of some mechanisms. Says what it would remove, and asks.

    The user can't log in any more; open connections stay until they close or must log in again
    (connections.max.reauth.ms). With --json the command never asks: without --yes it only reports.
    """
    request = RemoveUserRequest(user, _checked(mechanisms))
    with opened as client:

        def remove_them(execute: bool) -> ChangedUser:
            if execute:
                return client.ask_running_or_data_directory(request)[1]
            known = {
                row.user: row.credentials
                for row in client.ask_running_or_data_directory(ListUsersRequest())[1].users
            }
            if user not in known:
                raise _no_user(user)
            own = [each.mechanism for each in known[user]]
            for mechanism in request.mechanisms:
                if mechanism not in own:
                    raise _no_credential(user, mechanism)
            return ChangedUser(user, request.mechanisms or own)

        changed = consent.plan_ask_and_do(
            remove_them,
            lambda planned: [f"User {shown(user)} could not log in with {_listed(planned)} any more."],
            "Remove the user?" if not request.mechanisms else "Remove the credentials?",
        )
    outcome = "could not" if consent.is_planned else "can't"
    return Output(changed, [f"User {shown(user)} {outcome} log in with {_listed(changed)} any more."])


@app.command("list")
@asks(gateway_or_cluster)
def list_users(opened: Opened[Asker]) -> Output:
    """List the users with their mechanisms."""
    with opened as client:
        _, found = client.ask_running_or_data_directory(ListUsersRequest())
    listing = Table(
        (Column("user"), Column("mechanism"), Column("iterations", count)),
        [
            (shown(row.user), credential.mechanism, count(credential.iterations))
            for row in found.users
            for credential in row.credentials
        ],
    )
    total = f"{counted(len(found.users), 'user')}."
    return Output(found, [listing, total] if found.users else [total])


def _checked(mechanisms: list[str] | None) -> list[str]:
    """Return the named mechanisms, each once; an unknown one ends the command with a usage error."""
    for mechanism in mechanisms or ():
        if mechanism not in _MECHANISMS:
            raise stop(f"--mechanism must be {' or '.join(_MECHANISMS)}, not {mechanism}", code=2)
    return list(dict.fromkeys(mechanisms or ()))


def _listed(changed: ChangedUser) -> str:
    return " and ".join(changed.mechanisms)


def check_name(user: str) -> None:
    """Check that a user of this name could log in. Raises ControlError."""
    if not user:
        raise ControlError("the name of the user is empty")
    if not user.isascii():
        raise ControlError(
            f"no user {shown(user)} could log in: SCRAM takes names of ASCII characters only, as in Kafka"
        )


# The password of a new user, from a file, standard input or a prompt; never from an argument, which other
# users of the machine see.

STANDARD_INPUT: Final = "-"
SALT_BYTES: Final = 16


def read_password(file: str | None) -> str:
    """Return the password in the first line of a file (`-`: standard input), or typed twice at a prompt. A
    standard input that is no terminal is a file.
    """
    if file is None and not sys.stdin.isatty():
        file = STANDARD_INPUT
    if file is None:
        password = _ask()
    else:
        try:
            if file == STANDARD_INPUT:
                password = sys.stdin.readline()
                password.encode()  # bytes that are no UTF-8 came as surrogates
            else:
                with Path(file).open(encoding="utf-8") as lines:
                    password = lines.readline()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise stop(f"--password-file: {file} can't be read: {reason}", code=2) from None
    password = password.rstrip("\r\n")
    if not password:
        raise stop("the password must not be empty", code=2)
    return password


def _ask() -> str:
    import typer  # noqa: PLC0415 - slow to import

    try:
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        raise SystemExit(1) from None
    return password


def credential_for(mechanism: ScramHash, password: str, iterations: int) -> NewCredential:
    """Return the credential of a password, with a fresh salt. Hashing takes milliseconds of this process."""
    salt = secrets.token_bytes(SALT_BYTES)
    return NewCredential(
        mechanism.mechanism, iterations, salt, salt_password(mechanism, password.encode(), salt, iterations)
    )


# Over the Kafka protocol: asks a cluster about its users, and changes them. Raises ControlError.


def find_users(cluster: Cluster, _: ListUsersRequest) -> UserPage:
    """Return all users, by name."""
    answer = cluster.ask(cluster.reached, cluster.request(50, 0, users=None))
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
    for each in request.credentials:
        _alter(cluster, request.user, each.mechanism, each)
    return ChangedUser(request.user, [each.mechanism for each in request.credentials])


def remove_user(cluster: Cluster, request: RemoveUserRequest) -> ChangedUser:
    """Remove credentials of a user, one after the other, because a request changes only one."""
    mechanisms = request.mechanisms or _mechanisms_of(cluster, request.user)
    for mechanism in mechanisms:
        _alter(cluster, request.user, mechanism, None)
    return ChangedUser(request.user, list(mechanisms))


def _mechanisms_of(cluster: Cluster, user: str) -> Sequence[str]:
    for row in find_users(cluster, ListUsersRequest()).users:
        if row.user == user:
            return [credential.mechanism for credential in row.credentials]
    raise _no_user(user)


def _alter(cluster: Cluster, user: str, mechanism: str, new: NewCredential | None) -> None:
    """Set the credential of a mechanism, or remove it where there is no new one."""
    from seqgate.gateway.admin.remote.cluster import check  # noqa: PLC0415 - slow to import

    deletions: list[dict[str, Any]] = []
    upsertions: list[dict[str, Any]] = []
    row: dict[str, Any] = {"name": user, "mechanism": _hash_of(mechanism)}
    if new is None:
        deletions = [row]
    else:
        row |= {"iterations": new.iterations, "salt": new.salt, "salted_password": new.salted_password}
        upsertions = [row]
    asked = cluster.request(51, 0, deletions=deletions, upsertions=upsertions)
    (result,) = cluster.ask_controller(asked, "results")
    check(result)


OPERATIONS: Final[ClusterAnswers] = {
    ListUsersRequest: find_users,
    AddUserRequest: add_user,
    RemoveUserRequest: remove_user,
}


# In the gateway: the same in the metadata of a running gateway, or of a data directory that no gateway has
# open. Raises ControlError.
#
# Listing needs no lock and changes nothing. A change takes the directory's lock, and is durable before it is
# answered. Where there is no data directory yet, the first user creates it, so that a gateway can start with
# nobody but this user.


def list_users_live(gateway: LiveGateway, request: ListUsersRequest) -> UserPage:
    """Return one page of the users, by name."""
    return _page_of(gateway.services.topics.metadata_log.image, request)


def list_users_stopped(gateway: StoppedGateway, request: ListUsersRequest) -> UserPage:
    """Return all users, by name. Raises ControlError."""
    from seqgate.gateway.admin.stored import read_image, whole_state  # noqa: PLC0415 - slow to import

    return _page_of(read_image(whole_state(gateway.data_dir)), request)


def _page_of(image: MetadataImage, request: ListUsersRequest) -> UserPage:
    users = image.users.by_name
    names, complete = page(users, request.after, request.limit, key=lambda name: name)
    rows = [
        UserRow(
            name,
            [
                CredentialRow(hashing.mechanism, credential.iterations)
                for hashing, credential in sorted(users[name].items())
            ],
        )
        for name in names
    ]
    return UserPage(rows, complete)


async def change_user_live(gateway: LiveGateway, request: AddUserRequest | RemoveUserRequest) -> ChangedUser:
    """Set or remove credentials of a user. Raises ControlError."""
    from seqgate.log import LogError  # noqa: PLC0415 - slow to import

    decide = _decided(request, gateway.services.node.config)
    try:
        return await gateway.services.topics.metadata_log.commit(decide)
    except LogError as error:
        raise ControlError(f"the change could not be stored: {error}") from error


def change_user_stopped(gateway: StoppedGateway, request: AddUserRequest | RemoveUserRequest) -> ChangedUser:
    """Set or remove credentials of a user. Raises ControlError."""
    import asyncio  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.stored import create_metadata, open_metadata  # noqa: PLC0415

    if gateway.config.optional_str("seqgate.cluster") is not None:
        raise ControlError(
            "seqgate.cluster is set, and users of a cluster are in its bucket; start the gateway, and run "
            "the command while it runs"
        )
    created = isinstance(request, AddUserRequest) and create_metadata(
        gateway.data_dir, gateway.config.int("node.id")
    )

    async def commit() -> ChangedUser:
        async with open_metadata(gateway.data_dir) as metadata_log:
            return await metadata_log.commit(_decided(request, gateway.config))

    return msgspec.structs.replace(asyncio.run(commit()), created_data_dir=created)


def _decided(request: AddUserRequest | RemoveUserRequest, config: Config) -> Decide[ChangedUser]:
    return _adding(request, config) if isinstance(request, AddUserRequest) else _removing(request)


def _adding(request: AddUserRequest, config: Config) -> Decide[ChangedUser]:
    most = config.int("seqgate.scram.users.max")
    changes = [(_hash_of(each.mechanism), each) for each in request.credentials]
    return lambda image: _altered(image, request.user, changes, most=most)


def _removing(request: RemoveUserRequest) -> Decide[ChangedUser]:
    def decide(image: MetadataImage) -> Decision[ChangedUser]:
        known = image.users.by_name.get(request.user, {})
        if not known:
            raise _no_user(request.user)
        hashes = [_hash_of(mechanism) for mechanism in request.mechanisms] or sorted(known)
        return _altered(image, request.user, [(hashing, None) for hashing in hashes], most=0)

    return decide


def _altered(
    image: MetadataImage, user: str, changes: Sequence[tuple[ScramHash, NewCredential | None]], *, most: int
) -> Decision[ChangedUser]:
    """Set the credential of each hash function, or remove it where there is no new one. Decide on each change
    separately: a request of the Kafka protocol changes one credential of a user.
    """
    from seqgate.gateway.handlers.security.user_scram_credentials import Deletion, Upsertion, alter_users  # noqa: PLC0415 - slow to import
    from seqgate.gateway.metadata.decision import Decision  # noqa: PLC0415
    from seqgate.gateway.metadata.records import MetadataRecord  # noqa: PLC0415

    records: list[MetadataRecord] = []
    for hashing, new in changes:
        deletions, upsertions = [], []
        if new is None:
            deletions.append(Deletion(user, hashing))
        else:
            password = bytes(new.salted_password)
            upsertions.append(Upsertion(user, hashing, new.iterations, new.salt, password))
        decision = alter_users(image.users, deletions, upsertions, most=most)
        error = decision.answer[user]
        if error is not None:
            if new is None:
                raise _no_credential(user, hashing.mechanism)
            raise ControlError(f"user {user}: {error.message}")
        records += decision.records
    return Decision(records, ChangedUser(user, [hashing.mechanism for hashing, _ in changes]))


def _hash_of(mechanism: str) -> ScramHash:
    """Return the hash function of a mechanism. Raises ControlError."""
    if mechanism not in _MECHANISMS:
        raise ControlError(
            f"there is no mechanism {mechanism}; the mechanisms with credentials are {', '.join(_MECHANISMS)}"
        )
    return _MECHANISMS[mechanism]


def _no_user(user: str) -> ControlError:
    return ControlError(f"there is no user {user}")


def _no_credential(user: str, mechanism: str) -> ControlError:
    return ControlError(f"user {user} has no credential for {mechanism}")
