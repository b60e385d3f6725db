"""The control socket: an input is what a client writes to it.

The gateway answers the input with one line of JSON, and then still answers another client. A request without
`execute` only reads and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import msgspec

from seqgate.gateway.admin.operations import OPERATIONS
from seqgate.gateway.admin.request import ControlAnswer
from tests.fuzzing.changes import EXTREMES, changed
from tests.fuzzing.composed_requests import GROUPS, TOPICS, TRANSACTION
from tests.fuzzing.fresh_scenes import fresh_scenes
from tests.fuzzing.scene import Scene
from tests.fuzzing.target import Breach, Run

MAX_INPUT_BYTES = 2048
PEAK_BYTES = 64 << 20
BASE_WORK = 600.0
INPUTS_PER_SCENE = 500
KINDS: tuple[Any, ...] = tuple(operation.request for operation in OPERATIONS)


def opened() -> AbstractContextManager[Run]:
    return fresh_scenes(_feed, INPUTS_PER_SCENE)


async def _feed(scene: Scene, data: bytes) -> bool:
    _check(await _ask(scene, data))
    if _check(await _ask(scene, b'{"operation":"status"}\n')).error is not None:
        raise Breach("the gateway no longer reports its status")
    scene.complaints.check()
    return True


async def _ask(scene: Scene, data: bytes) -> bytes:
    path = str(scene.gateway._control.path)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    with suppress(OSError):
        writer.write_eof()
    line = b""
    with suppress(OSError):
        line = await reader.read()
    writer.close()
    return line


def _check(line: bytes) -> ControlAnswer:
    if not line.endswith(b"\n") or line.count(b"\n") != 1:
        raise Breach(f"the answer is {line!r}")
    return msgspec.json.decode(line, type=ControlAnswer)


def _filled(kind: Any) -> dict[str, Any]:
    """Return a value for each required field."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            values[field.encode_name] = {
                "topic": TOPICS[0],
                "group": GROUPS[0],
                "groups": list(GROUPS),
                "transactional_id": TRANSACTION,
                "target": "earliest",
                "owner": "fuzzer",
            }.get(field.name, 1)
    return values


def seeds() -> Iterator[bytes]:
    for kind in KINDS:
        yield _line({"operation": kind.operation_name(), **_filled(kind)})
    yield b"\n"
    yield b"{}"
    yield b'{"operation":"status","operation":"tasks"}\n'
    yield b"[" * 2000 + b"\n"


def mutated(data: bytes, chance: random.Random) -> bytes:
    kind = chance.choice(KINDS)
    request = {"operation": kind.operation_name(), **_filled(kind)}
    for field in msgspec.structs.fields(kind):
        if chance.random() < 0.4:
            request[field.encode_name] = _value(chance)
    line = _line(request)
    return changed(line, chance, 1) if chance.random() < 0.3 else line


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _value(chance: random.Random) -> Any:
    values = (
        *EXTREMES, 1.5, True, None, "", *TOPICS, *GROUPS, TRANSACTION, "\ud800", [], [""], [1, 2], ["plain", 0],
        ["plain", 0, 7], {}, [{"topic": "plain", "partitions": [0, -1]}], "(a", "Empty", "timestamp", "shift",
    )  # fmt: skip
    return chance.choice(values)
