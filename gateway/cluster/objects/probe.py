"""Checks, before a gateway trusts an object store, that of many creations of one key exactly one wins.

Some stores that speak S3 take conditional writes and do not keep the condition, at all or among many writers.
On such a store two gateways could both believe that an object of the write-ahead log is theirs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Changed,
    Missing,
    ObjectStore,
    Refused,
    StoreFailed,
    Untrusted,
)

T = TypeVar("T")
RACERS: Final = 16
CREATED: Final = "created"
REPLACED: Final = "replaced"
ATTEMPTS: Final = 5
"""Times that the check is made anew after a call failed."""
PAUSE_S: Final = 0.5
"""The wait before the second attempt; it doubles with each further one."""
_CONTENTS: Final = [b"racer %d" % racer for racer in range(RACERS)]
_UNSAFE: Final = "use a store with conditional writes (If-None-Match, If-Match) that hold among many writers"
_logger = logging.getLogger(__name__)


async def probe(objects: ObjectStore, name: str) -> None:
    """Check the store with the keys `probe/{name}-…`, deleted afterwards. Each probe has a fresh `name`.

    A call that fails tells nothing about the store. When too many fail, the check begins again with new keys.
    Raises Refused if the store must not be used, or its certificate is not trusted; StoreFailed if calls kept
    failing, at the last attempt with this error.
    """
    folders: list[str] = []
    try:
        for attempt in range(ATTEMPTS):
            folders.append(f"probe/{name}-{attempt}")
            try:
                return await _check(objects, folders[-1])
            except Untrusted as failure:
                raise Refused(str(failure)) from failure
            except StoreFailed as failure:
                if attempt == ATTEMPTS - 1:
                    raise
                _logger.warning("The object store is checked again, because a call failed: %s", failure)
            await asyncio.sleep(PAUSE_S * 2**attempt)
    finally:
        await _clean_up(objects, folders)


async def _check(objects: ObjectStore, folder: str) -> None:
    """Let several calls race for one creation and for one replacement, and list the resulting objects."""
    created, replaced = f"{folder}/{CREATED}", f"{folder}/{REPLACED}"
    creations = [objects.create(created, content) for content in _CONTENTS]
    await _check_winner(objects, created, await _winners(creations, AlreadyThere), "creations")
    try:
        version = await objects.replace(replaced, b"before the race", None)
    except Changed:
        raise StoreFailed(
            "the store says that a fresh key has an object, as after a conflict of two calls"
        ) from None
    replacements = [objects.replace(replaced, content, version) for content in _CONTENTS]
    await _check_winner(objects, replaced, await _winners(replacements, Changed), "replacements")
    listed = [entry.key async for entry in objects.list(f"{folder}/")]
    if listed != [created, replaced]:
        raise StoreFailed(f"it lists {listed} instead of {[created, replaced]}")


async def _winners(calls: list[Coroutine[Any, Any, T]], lost: type[Exception]) -> list[bytes]:
    """Run the calls at once, and return the contents that the store says it has written. A call that failed
    may have won; S3, for example, answers some racers with a conflict.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    failures = [result for result in results if isinstance(result, StoreFailed)]
    if len(failures) > RACERS // 2:
        raise failures[0]
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, (StoreFailed, lost)):
            raise result
    return [
        content
        for content, result in zip(_CONTENTS, results, strict=True)
        if not isinstance(result, BaseException)
    ]


async def _check_winner(objects: ObjectStore, key: str, winners: list[bytes], what: str) -> None:
    if len(winners) > 1:
        raise Refused(
            f"of {RACERS} {what} of one object, the store carried out {len(winners)} instead of 1; {_UNSAFE}"
        )
    try:
        content = await objects.get(key)
    except Missing:
        content = None
    if winners and content != winners[0]:
        raise Refused(
            f"of {RACERS} {what} of one object, the store says that it has carried out one, but the object "
            f"{'is missing' if content is None else 'has another content'}; {_UNSAFE}"
        )
    if not winners and content not in _CONTENTS:
        raise StoreFailed(f"the store has carried out none of {RACERS} {what} of one object")


async def _clean_up(objects: ObjectStore, folders: list[str]) -> None:
    """Delete the objects of the attempts. Those that stay take a hundred bytes, and nobody reads them."""
    keys = [f"{folder}/{name}" for folder in folders for name in (CREATED, REPLACED)]
    results = await asyncio.gather(*(objects.delete(key) for key in keys), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, (StoreFailed, Refused)):
            raise result
