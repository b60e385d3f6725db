"""Registration of sessions: each is the next object of `meta/`, created only if it is absent.

So the session number is unique for ever without an allocator, and the numbers have no gaps. A registration is JSON:

    version          of this content
    cluster_version  of everything that the registering release writes into the bucket
    cluster_id       that of the first registration
    node_id, nonce   whose session it is; the nonce is in each object of its write-ahead log
    registered_ms, host, release   for people
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from typing import Final, NamedTuple

import msgspec

from gateway.cluster.objects.objects import AlreadyThere, Missing, ObjectStore, StoreFailed
from gateway.cluster.wal.keys import registration_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import NONCE_BYTES
from log import IncompatibleFormat

CLUSTER_VERSION: Final = 2
"""The version of what this release writes into a bucket. A release that changes a format there, or adds one, raises it."""
_VERSION: Final = 1
READ_AT_ONCE: Final = 16
"""Registrations that are read at the same time."""
_REGISTRATION: Final = re.compile(r"meta/([0-9]{20})")


class CorruptRegistration(Exception):
    """The bytes are no registration of a session. The message names the object and what is wrong."""


class SessionFacts(NamedTuple):
    """What a registration tells about the gateway besides its node id."""

    cluster_id: str
    """The id that the cluster gets if this is its first session."""
    now_ms: int
    host: str
    release: str


class Session(NamedTuple):
    """A session of this process."""

    session: int
    node_id: int
    nonce: bytes
    cluster_id: str


class RegisteredSession(NamedTuple):
    """A session of any process."""

    session: int
    node_id: int
    nonce: bytes
    cluster_id: str
    cluster_version: int
    registered_ms: int
    host: str
    release: str


class _Stored(msgspec.Struct):
    version: int
    cluster_version: int
    cluster_id: str
    node_id: int
    nonce: str
    registered_ms: int
    host: str
    release: str


class _Versions(msgspec.Struct):
    version: int
    cluster_version: int


async def register(
    objects: ObjectStore, node_id: int, facts: SessionFacts, *, chance: random.Random | None = None
) -> Session:
    """Register a new session of this node, behind all others. Waits until the store answers.

    The cluster id is that of the first session. Raises IncompatibleFormat where a later release registered a session,
    CorruptRegistration, Refused.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    reads = PersistentReads(objects, "the gateway waits to register its session", chance)
    earlier = await _all(reads)
    while True:
        number = len(earlier)
        cluster_id = earlier[0].cluster_id if earlier else facts.cluster_id
        registered = RegisteredSession(
            number, node_id, nonce, cluster_id, CLUSTER_VERSION, facts.now_ms, facts.host, facts.release
        )
        winner = await _create(reads, registered)
        if winner.nonce == nonce:
            return Session(number, node_id, nonce, cluster_id)
        earlier.append(winner)


async def sessions(objects: ObjectStore, *, chance: random.Random | None = None) -> list[RegisteredSession]:
    """Return all sessions, in the order of their numbers. Waits until the store answers.

    Raises IncompatibleFormat, CorruptRegistration, Refused.
    """
    return await _all(
        PersistentReads(objects, "the gateway waits to read the sessions of the cluster", chance)
    )


def encode_registration(registered: RegisteredSession) -> bytes:
    """Return the content of the registration."""
    stored = _Stored(
        _VERSION,
        registered.cluster_version,
        registered.cluster_id,
        registered.node_id,
        registered.nonce.hex(),
        registered.registered_ms,
        registered.host,
        registered.release,
    )
    return msgspec.json.encode(stored)


def decode_registration(content: bytes, session: int) -> RegisteredSession:
    """Return the registration of the session. Raises CorruptRegistration, IncompatibleFormat."""
    key = registration_key(session)
    try:
        versions = msgspec.json.decode(content, type=_Versions)
        if versions.cluster_version > CLUSTER_VERSION or versions.version > _VERSION:
            raise IncompatibleFormat(
                f"{key} has version {versions.version} and cluster version {versions.cluster_version}; this program reads "
                f"{_VERSION} and {CLUSTER_VERSION}. A later release has used the bucket: run that release."
            )
        stored = msgspec.json.decode(content, type=_Stored)
        nonce = bytes.fromhex(stored.nonce)
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptRegistration(f"{key} is damaged: {error}.") from error
    if len(nonce) != NONCE_BYTES or stored.node_id < 0 or min(versions.version, versions.cluster_version) < 1:
        raise CorruptRegistration(f"{key} is damaged: it has impossible values: {stored}.")
    return RegisteredSession(
        session,
        stored.node_id,
        nonce,
        stored.cluster_id,
        stored.cluster_version,
        stored.registered_ms,
        stored.host,
        stored.release,
    )


async def _create(reads: PersistentReads, registered: RegisteredSession) -> RegisteredSession:
    """Create the registration unless the number is taken; return the registration that has the number then."""
    key = registration_key(registered.session)
    content = encode_registration(registered)
    while True:
        failure: Exception | None = None
        try:
            await reads.objects.create(key, content)
        except (AlreadyThere, StoreFailed) as error:
            failure = error  # perhaps our registration is there nevertheless
        found = await _read(reads, registered.session)
        if found is not None:
            return found
        if failure is not None:
            await reads.failed(failure)


async def _all(reads: PersistentReads) -> list[RegisteredSession]:
    """Return all sessions. A listing may be old, so it only tells how many sessions there are at least."""
    known = await reads.answered(lambda: _listed_end(reads.objects))
    found: list[RegisteredSession] = []
    while True:
        numbers = range(len(found), max(len(found) + 1, min(known, len(found) + READ_AT_ONCE)))
        for number, registered in zip(
            numbers, await asyncio.gather(*(_read(reads, number) for number in numbers)), strict=True
        ):
            if registered is not None:
                found.append(registered)
            elif number < known:
                raise CorruptRegistration(
                    f"{registration_key(number)} is missing, and later sessions are there. Somebody deleted it; without it "
                    "nobody can tell which write-ahead logs the cluster has."
                )
            else:
                return found


async def _listed_end(objects: ObjectStore) -> int:
    """Return the number after the last registration in a listing."""
    end = 0
    async for entry in objects.list("meta/"):
        match = _REGISTRATION.fullmatch(entry.key)
        if match is not None:
            end = max(end, int(match[1]) + 1)
    return end


async def _read(reads: PersistentReads, session: int) -> RegisteredSession | None:
    try:
        return decode_registration(await reads.get(registration_key(session)), session)
    except Missing:
        return None
