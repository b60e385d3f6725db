"""How the commands of `seqgate faults` ask the test control."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.admin.options import stop
from gateway.admin.request import ControlError

Control = Annotated[
    str, typer.Option("--control", metavar="HOST:PORT", help="The address of the test control.")
]


def asked(control: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer of the test control. Ends the command with a sentence when the test control refuses."""
    from gateway.admin.faults.control_client import ask  # noqa: PLC0415 - slow to import

    try:
        return ask(control, method, path, body)
    except ControlError as error:
        raise stop(str(error)) from None
