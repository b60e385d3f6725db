"""The list of operations agrees with the requests, functions, commands and documentation."""

from __future__ import annotations

import ast
import asyncio
import getpass
import importlib
import inspect
import json
import logging
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import seqgate.gateway.admin
from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.groups.deletion import DeleteGroupsRequest
from seqgate.gateway.admin.operation import ControlOperation, LiveGateway, StoppedGateway
from seqgate.gateway.admin.operations import OPERATIONS
from seqgate.gateway.admin.pids import ClaimBlockRequest
from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError, PagedRequest, Request, page
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.users import AddUserRequest, NewCredential, RemoveUserRequest
from seqgate.gateway.runtime.loop.log_output import AUDIT, UNLIMITED
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.support import open_node

FOLDER = Path(seqgate.gateway.admin.__file__).parent
NAMES = [operation.request.operation_name() for operation in OPERATIONS]


def requests_in_folders() -> Iterator[type[Request[Any]]]:
    for found in pkgutil.walk_packages(seqgate.gateway.admin.__path__, "seqgate.gateway.admin."):
        for member in vars(importlib.import_module(found.name)).values():
            if (
                inspect.isclass(member)
                and issubclass(member, Request)
                and member.__module__ == found.name
                and member not in {Request, PagedRequest}
            ):
                yield member


def hints(function: Any) -> tuple[list[Any], Any]:
    """Return the types of a function's parameters, and of its answer."""
    source = inspect.getsource(inspect.getmodule(function))
    for_the_checker = {  # the module of a command imports them for the type checker alone
        alias.name: getattr(importlib.import_module(imported.module or ""), alias.name)
        for node in ast.parse(source).body
        if isinstance(node, ast.If)
        for imported in node.body
        if isinstance(imported, ast.ImportFrom)
        for alias in imported.names
    }
    found = get_type_hints(function, localns=for_the_checker)
    return [kind for name, kind in found.items() if name != "return"], found["return"]


def test_every_request_is_an_operation_under_a_name_of_its_own() -> None:
    assert {operation.request for operation in OPERATIONS} == set(requests_in_folders())
    assert len(set(NAMES)) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_functions_take_the_request_and_return_its_answer(operation: ControlOperation[Any]) -> None:
    for function, gateway in ((operation.run, LiveGateway), (operation.stopped, StoppedGateway)):
        if function is not None:
            written = inspect.unwrap(function)
            kinds, answer_type = hints(written)
            (asked,) = (kind for kind in kinds if operation.request in {kind, *get_args(kind)})
            assert answer_type == operation.request.answer_type()
            assert written is not function or kinds == [gateway, asked]


def test_every_operation_has_a_command() -> None:
    made = {
        node.func.id
        for path in FOLDER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {operation.request.__name__ for operation in OPERATIONS} <= made


def test_what_changes_something_needs_alter_over_the_network() -> None:
    rights = {operation.request.network_right for operation in OPERATIONS if operation.changes}
    assert rights == {"", "ALTER"}


@pytest.mark.parametrize("limit", [-1, 0, MAX_PAGE_ROWS + 1])
@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if issubclass(operation.request, PagedRequest)],
    ids=[
        name
        for name, operation in zip(NAMES, OPERATIONS, strict=True)
        if issubclass(operation.request, PagedRequest)
    ],
)
async def test_pages_have_a_limit(tmp_path: Path, operation: ControlOperation[Any], limit: int) -> None:
    values = {"topic": "t", "group": "g", "transactional_id": "t", "number": 1}
    required = [name for name in operation.request.__struct_fields__ if name in values]
    request = operation.request(**{name: values[name] for name in required}, limit=limit)
    async with open_node(tmp_path) as node:
        with pytest.raises(ControlError, match=f"limit must be between 1 and 10000, not {limit}"):
            await answer(node, request)


@pytest.mark.parametrize(
    ("after", "limit", "expected"),
    [
        (None, 2, (["a", "b"], False)),
        (None, 4, (["a", "b", "c", "d"], True)),
        ("b", 2, (["c", "d"], True)),
        ("b", 1, (["c"], False)),
        ("bb", 1, (["c"], False)),
        ("d", 1, ([], True)),
        (None, 0, ([], False)),
    ],
)
def test_a_page_is_cut_from_items_in_any_order(
    after: str | None, limit: int, expected: tuple[list[str], bool]
) -> None:
    assert page(iter("cadb"), after, limit, key=lambda letter: letter) == expected


# Changes over the control socket are in the log and in the audit log; requests that only read are not, and
# secrets never are.


async def test_a_change_names_the_user_of_the_system(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_node(tmp_path / "data") as node:
        node.services.node.audit.is_on = True
        control = ControlServer(node.services, tmp_path)
        assert await control.start()
        salted = NewCredential("SCRAM-SHA-256", 4096, b"planted-salt", b"planted-password")
        await asyncio.to_thread(ask, tmp_path, AddUserRequest("ann", [salted]))
        await asyncio.to_thread(ask, tmp_path, StatusRequest())
        await asyncio.to_thread(ask, tmp_path, DeleteGroupsRequest(["g"]))
        for refused in (RemoveUserRequest("nobody"), ClaimBlockRequest(0, "x")):
            with pytest.raises(ControlError):
                await asyncio.to_thread(ask, tmp_path, refused)
        await control.stop()
    (audited,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == AUDIT]
    (line,) = [record.getMessage() for record in caplog.records if record.name == UNLIMITED]
    what = "user ann, credentials (mechanism SCRAM-SHA-256, iterations 4096)"
    assert audited == {
        "event": "changed",
        "principal": f"system user {getpass.getuser()}",
        "address": "control socket",
        "listener": "control socket",
        "client_id": f"pid {os.getpid()}",
        "request": "users.add",
        "action": "seqgate users.add",
        "resources": [what],
    }
    assert line == f"seqgate users.add: {what}, by the system user {getpass.getuser()} (pid {os.getpid()})"
    assert "planted" not in caplog.text
