"""The answers of the control socket that change nothing, for programs that reach only the metrics listener, such as the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Union

import msgspec

from gateway.admin.operation import LiveGateway
from gateway.admin.operations import OPERATIONS, answer_live, changes_something
from gateway.admin.request import ControlError, Request

VIEWS: Final = frozenset(
    {
        "status",
        "cluster.gateways",
        "producers",
        "verdicts",
        "names",
        "backlog",
        "pids.list",
        "pids.owner",
        "pids.overlaps",
        "groups.list",
        "groups.describe",
        "transactions.list",
        "transactions.describe",
        "transactions.hanging",
        "tasks",
        "log-lines",
    }
)
"""The operations that a view may ask for: those that only read, and tell no credentials."""
_REQUESTS: Final = {
    operation.request.operation_name(): operation.request
    for operation in OPERATIONS
    if operation.request.operation_name() in VIEWS
}
_TYPE: Final[Any] = Union[tuple(_REQUESTS.values())]  # noqa: UP007 - `|` takes no list


class NoView(Exception):
    """There is no view of this name; the message is a sentence."""


class RefusedFields(Exception):
    """The view refuses its fields; the message is a sentence."""


async def view(gateway: LiveGateway, name: str, fields: Mapping[str, Sequence[str]]) -> bytes:
    """Return the answer of an operation as JSON: what this gateway knows, also where others of a cluster know more.

    `fields` are those of the request, as texts; a field that is a list has several. Raises NoView, RefusedFields,
    ControlError.
    """
    request = _request(name, fields)
    return msgspec.json.encode(await answer_live(gateway, request))


def _request(name: str, fields: Mapping[str, Sequence[str]]) -> Request[Any]:
    wanted = _REQUESTS.get(name)
    if wanted is None:
        raise NoView(f"there is no view {name!r}; there are {', '.join(sorted(VIEWS))}")
    if "operation" in fields:
        raise RefusedFields("the path names the view; leave the field operation out")
    lists = {
        field.name
        for field in msgspec.structs.fields(wanted)
        if any(kind in str(field.type) for kind in ("list", "tuple"))
    }
    values: dict[str, Any] = {
        field: list(texts) if field in lists else texts[-1] for field, texts in fields.items()
    }
    try:
        request: Request[Any] = msgspec.convert({"operation": name, **values}, _TYPE, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedFields(f"the view {name} refuses its fields: {error}") from None
    if changes_something(request):
        raise ControlError(f"{name} changes something, and a view does not")
    return request
