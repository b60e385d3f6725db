"""The page about the control socket, written from the list of operations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gateway.admin.operation import Operation
from gateway.admin.request import MAX_ANSWER_BYTES, MAX_PAGE_ROWS, MAX_REQUEST_BYTES, PAGE_ROWS

_INTRODUCTION: Final = f"""\
# The control socket

`seqgate` commands ask a running gateway over `control.sock` in its data directory, a Unix domain socket that only the owner of the
gateway's process may open. Use the commands with `--json` in scripts: the socket belongs to one release, and its operations may change
with the next one.

    echo '{{"operation":"status"}}' | nc -U data/control.sock

A connection carries one request and one answer, each a line of JSON: at most {MAX_REQUEST_BYTES:,} bytes of request and
{MAX_ANSWER_BYTES:,} bytes of answer. The answer is `{{"result": …}}`, or `{{"error": "a sentence"}}`. Lists come in pages of `limit`
rows, {PAGE_ROWS:,} unless the request says otherwise and at most {MAX_PAGE_ROWS:,}.

Written by `python -m gateway.documentation docs` (`make docs`) from the list in `gateway/admin/operations.py`; a test compares the two.
Fields with a `?` are optional. *Stopped*: the command also answers from a data directory that no gateway has open. (`seqgate sweep` sweeps
such a directory in its own process.)

| operation | fields | what the gateway does or answers | stopped |
| --- | --- | --- | --- |
"""


def control_socket_page(operations: Iterable[Operation[Any]]) -> str:
    """Return the page about the control socket, as Markdown."""
    return _INTRODUCTION + "".join(f"{_row(operation)}\n" for operation in operations)


def _row(operation: Operation[Any]) -> str:
    request = operation.request
    fields = ", ".join(
        f"`{field.encode_name}`" + ("" if field.required else "?")
        for field in msgspec.structs.fields(request)
    )
    text = " ".join((inspect.getdoc(request) or "").split())
    return f"| `{request.operation_name()}` | {fields} | {text} | {'yes' if operation.stopped else ''} |"
