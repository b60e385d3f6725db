"""The password of a new user, from a file, standard input or a prompt; never from an argument, which other users of the machine see."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Final

import typer

from gateway.admin.options import stop
from gateway.admin.users.messages import NewCredential
from gateway.security.sasl.scram_credential import ScramHash, salt_password

STANDARD_INPUT: Final = "-"
SALT_BYTES: Final = 16


def read_password(file: str | None) -> str:
    """Return the password in the first line of a file (`-`: standard input), or the one typed twice at a prompt."""
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
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def credential_for(mechanism: ScramHash, password: str, iterations: int) -> NewCredential:
    """Return the credential of a password, with a fresh salt.

    The hashing takes some milliseconds, in the command's own process.
    """
    salt = secrets.token_bytes(SALT_BYTES)
    return NewCredential(
        mechanism.mechanism, iterations, salt, salt_password(mechanism, password.encode(), salt, iterations)
    )
