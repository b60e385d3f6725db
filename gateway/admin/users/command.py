"""`seqgate users`: the users that log in with SCRAM."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec

from seqgate.gateway.admin.commands import Commands, Output, argument, asks, option, stop
from seqgate.gateway.admin.options import Asker, Opened, gateway_or_cluster
from seqgate.gateway.admin.request import PagedRequest, Request
from seqgate.gateway.admin.tables import Column, Table, count, counted, shown
from seqgate.gateway.security.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramHash,
    salt_password,
)

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
    password = read_password(password_file)
    request = AddUserRequest(user, [credential_for(hashing, password, iterations) for hashing in hashes])
    with opened as client:
        _, changed = client.ask_or_read(request)
    created = ["Created the data directory."] if changed.created_data_dir else []
    return Output(changed, [*created, f"User {shown(user)} can log in with {_listed(changed)}."])


@app.command("remove")
@asks(gateway_or_cluster)
def remove(opened: Opened[Asker], user: User, mechanisms: Mechanisms = None) -> Output:
    """Remove a user, or the credentials of some mechanisms.

    The user can't log in any more; open connections stay until they close or must log in again
    (connections.max.reauth.ms).
    """
    request = RemoveUserRequest(user, _checked(mechanisms))
    with opened as client:
        _, changed = client.ask_or_read(request)
    return Output(changed, [f"User {shown(user)} can't log in with {_listed(changed)} any more."])


@app.command("list")
@asks(gateway_or_cluster)
def list_users(opened: Opened[Asker]) -> Output:
    """List the users with their mechanisms."""
    with opened as client:
        _, page = client.ask_or_read(ListUsersRequest())
    listing = Table(
        (Column("user"), Column("mechanism"), Column("iterations", count)),
        [
            (shown(row.user), credential.mechanism, count(credential.iterations))
            for row in page.users
            for credential in row.credentials
        ],
    )
    total = f"{counted(len(page.users), 'user')}."
    return Output(page, [listing, total] if page.users else [total])


def _checked(mechanisms: list[str] | None) -> list[str]:
    """Return the named mechanisms, each once; an unknown one ends the command with a usage error."""
    for mechanism in mechanisms or ():
        if mechanism not in _MECHANISMS:
            raise stop(f"--mechanism must be {' or '.join(_MECHANISMS)}, not {mechanism}", code=2)
    return list(dict.fromkeys(mechanisms or ()))


def _listed(changed: ChangedUser) -> str:
    return " and ".join(changed.mechanisms)


# The password of a new user, from a file, standard input or a prompt; never from an argument, which other
# users of the machine see.

STANDARD_INPUT: Final = "-"
SALT_BYTES: Final = 16


def read_password(file: str | None) -> str:
    """Return the password in the first line of a file (`-`: standard input), or typed twice at a prompt."""
    if file is None:
        password = _ask() if sys.stdin.isatty() else sys.stdin.readline()
    elif file == STANDARD_INPUT:
        password = sys.stdin.readline()
    else:
        try:
            with Path(file).open(encoding="utf-8") as lines:
                password = lines.readline()
        except (OSError, UnicodeDecodeError) as error:
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
    """Set credentials of a user, all or none; credentials of other mechanisms stay."""

    user: str
    credentials: list[NewCredential]


class RemoveUserRequest(Request[ChangedUser], tag="users.remove"):
    """Remove the credentials of a user for these mechanisms, all or none; without mechanisms all of them."""

    user: str
    mechanisms: list[str] = msgspec.field(default_factory=list)
