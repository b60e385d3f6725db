"""The sessions of a bucket: their registrations, and the boundaries of their write-ahead logs.

A registration is the next object of `meta/`, created only if it is absent. `meta/` is one dense log of the
whole cluster. Its objects are registrations, and changes of the metadata
(`seqgate.gateway.cluster.metadata`), in the order in which they were created. So the number of a registration
is unique for ever without an allocator. A registration is JSON:

    version          of this content
    cluster_version  of everything that the registering release writes into the bucket
    cluster_id       that of the first registration
    node_id, nonce   whose session it is; the nonce is in each object of its write-ahead log
    registered_ms, host, release   for people

Objects of a session's write-ahead log with a seq below the boundary may be deleted, as no start needs them.
Whoever deletes objects moves the boundary first, by a conditional replacement, and never back. So a taker
that sealed the log at `seq` and then finds the boundary above `seq` knows that the place was used and
emptied, and that its seal means nothing.

The object of a boundary is JSON: `version` and `boundary`. Without the object the boundary is 0.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from seqgate.gateway.cluster.objects.objects import AlreadyThere, ObjectStore, StoreFailed
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.wal_object import (
    NONCE_BYTES,
    SESSIONS_BOUNDARY_KEY,
    SHORTENED_KEY,
    CorruptWalObject,
    boundary_key,
    registration_key,
)
from seqgate.log import IncompatibleFormat

CLUSTER_VERSION: Final = 4
"""The newest version of a bucket's content that is known. A release with another format there raises it."""
LEAST_VERSION: Final = 3
"""The version that this release writes while gateways of an earlier release are live, or may be."""
SNAPSHOTS_SINCE: Final = 4
"""The first cluster version whose `meta/` has snapshots, and may be shortened."""
_VERSION: Final = 1
SHARED_METADATA_SINCE: Final = 3
"""The first cluster version whose metadata is in `meta/`; before, it was stored as any partition."""
READ_AT_ONCE: Final = 64
CHANGE_MAGIC: Final = b"SQMC"
"""The first bytes of a change; a registration begins with a brace."""
_OBJECT: Final = re.compile(r"meta/([0-9]{20})")


WAITING: Final = "the gateway waits to register its session"


class CorruptRegistration(Exception):
    """The bytes are no registration of a session. The message names the object and what is wrong."""


class LogShortened(Exception):
    """The next objects of `meta/` were deleted: this process stood still for too long. Start it again."""


class SessionFacts(NamedTuple):
    """The facts about the gateway in a registration, besides its node id."""

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


class Snapshot(NamedTuple):
    """The metadata before object `seq` of `meta/`: an image as record batches, and sessions that matter."""

    seq: int
    next_offset: int
    """The offset after the last record before `seq`, and after the last one of `batches`."""
    cluster_id: str
    kept_end: int | None
    """The number behind the first registration with cluster version SNAPSHOTS_SINCE; None without one.

    Objects up to there stay for ever, as an earlier release reads `meta/` from the beginning. So it meets
    that registration, which refuses it with a sentence, and it never creates an object in an emptied place.
    """
    sessions: tuple[RegisteredSession, ...]
    batches: tuple[bytes, ...]
    """The records of the image. Their offsets have no gaps, and end at `next_offset`."""


@dataclass
class SharedLogContent:
    """The objects of `meta/` that were read: from the first one on, or behind a snapshot."""

    sessions: list[RegisteredSession] = field(default_factory=list)
    changes: list[tuple[int, bytes]] = field(default_factory=list)
    end_seq: int = 0
    """The number of the first object that was not read."""
    base: Snapshot | None = None
    """The snapshot that stands for all objects before its number."""

    @classmethod
    def behind(cls, snapshot: Snapshot | None) -> SharedLogContent:
        """Return the content of a snapshot, or that of an empty log."""
        if snapshot is None:
            return cls()
        return cls(list(snapshot.sessions), end_seq=snapshot.seq, base=snapshot)

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None while no session was registered."""
        if self.base is not None:
            return self.base.cluster_id
        return self.sessions[0].cluster_id if self.sessions else None

    @property
    def kept_end(self) -> int | None:
        """The number behind the objects of `meta/` that stay for ever, if known: see `Snapshot.kept_end`."""
        if self.base is not None and self.base.kept_end is not None:
            return self.base.kept_end
        versions = ((each.session, each.cluster_version) for each in self.sessions)
        return next((session + 1 for session, version in versions if version >= SNAPSHOTS_SINCE), None)

    def add(self, content: bytes) -> None:
        """Add the next object. Raises CorruptRegistration, IncompatibleFormat."""
        if content.startswith(CHANGE_MAGIC):
            self.changes.append((self.end_seq, content))
        else:
            self.sessions.append(decode_registration(content, self.end_seq))
        self.end_seq += 1

    def before(self, session: int) -> list[RegisteredSession]:
        return [known for known in self.sessions if known.session < session]

    def of(self, session: int) -> RegisteredSession | None:
        return next((known for known in self.sessions if known.session == session), None)


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
    objects: ObjectStore,
    node_id: int,
    facts: SessionFacts,
    *,
    known: SharedLogContent | None = None,
    chance: random.Random | None = None,
) -> Session:
    """Register a new session of this node, behind all others. Waits until the store answers. Adds to `known`
    what it has not read, up to the registration. The cluster id is that of the first session. Raises
    IncompatibleFormat where a later release registered a session, CorruptRegistration, LogShortened, Refused.
    """
    known = SharedLogContent() if known is None else known
    await read_on(PersistentReads(objects, WAITING, chance), known)
    while True:
        session = await register_next(objects, node_id, facts, known, chance=chance)
        if session is not None:
            return session


def written_version(known: SharedLogContent, used: int) -> int:
    """Return the cluster version of what a new session writes, where the metadata says that the cluster uses
    the version `used`. Gateways of an earlier release may read the bucket until all live ones know a later
    version. An empty bucket has none.
    """
    return max(LEAST_VERSION, used) if known.end_seq else CLUSTER_VERSION


async def register_next(
    objects: ObjectStore,
    node_id: int,
    facts: SessionFacts,
    known: SharedLogContent,
    *,
    nonce: bytes | None = None,
    cluster_version: int | None = None,
    chance: random.Random | None = None,
) -> Session | None:
    """Register a new session right behind `known`; None if another object came first, which `known` then has.

    So the node id may be chosen by all that comes before the registration. `nonce` is a new one of
    `fresh_nonce`, made here by default. `cluster_version` is the version of what the session writes, by
    default the newest; a release that does not know it refuses the bucket. Waits and raises as `register`.
    """
    reads = PersistentReads(objects, WAITING, chance)
    nonce = fresh_nonce() if nonce is None else nonce
    number = known.end_seq
    cluster_id = known.cluster_id or facts.cluster_id
    version = CLUSTER_VERSION if cluster_version is None else cluster_version
    registered = RegisteredSession(
        number, node_id, nonce, cluster_id, version, facts.now_ms, facts.host, facts.release
    )
    content = encode_registration(registered)
    present = await create_or_read(reads, registration_key(number), content)
    # A start that stood still may have found the place empty because the object there was deleted.
    await check_not_shortened(reads, number)
    known.add(present)
    return Session(number, node_id, nonce, cluster_id) if present == content else None


def fresh_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


async def sessions(objects: ObjectStore, *, chance: random.Random | None = None) -> list[RegisteredSession]:
    """Return all sessions, in order. Waits. Raises IncompatibleFormat, CorruptRegistration, Refused."""
    return (await read_shared_log(objects, chance=chance)).sessions


async def read_shared_log(objects: ObjectStore, *, chance: random.Random | None = None) -> SharedLogContent:
    """Return all objects of a `meta/` that was never shortened. Raises LogShortened, and as `sessions`."""
    content = SharedLogContent()
    reads = PersistentReads(objects, "the gateway waits to read the sessions of the cluster", chance)
    await read_on(reads, content)
    return content


def encode_registration(registered: RegisteredSession) -> bytes:
    _, node_id, nonce, cluster_id, version, registered_ms, host, release = registered
    facts = (registered_ms, host, release)
    return msgspec.json.encode(_Stored(_VERSION, version, cluster_id, node_id, nonce.hex(), *facts))


def decode_registration(content: bytes, session: int) -> RegisteredSession:
    """Return the registration of the session. Raises CorruptRegistration, IncompatibleFormat."""
    key = registration_key(session)
    try:
        versions = msgspec.json.decode(content, type=_Versions)
        if versions.cluster_version > CLUSTER_VERSION or versions.version > _VERSION:
            raise IncompatibleFormat(
                f"{key} has version {versions.version} and cluster version {versions.cluster_version}; this "
                "program reads "
                f"{_VERSION} and {CLUSTER_VERSION}. A later release has used the bucket: run that release."
            )
        stored = msgspec.json.decode(content, type=_Stored)
        nonce = bytes.fromhex(stored.nonce)
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptRegistration(f"{key} is damaged: {error}.") from error
    if len(nonce) != NONCE_BYTES or stored.node_id < 0 or min(versions.version, versions.cluster_version) < 1:
        raise CorruptRegistration(f"{key} is damaged: it has impossible values: {stored}.")
    _, cluster_version, cluster_id, node_id, _, *others = msgspec.structs.astuple(stored)
    return RegisteredSession(session, node_id, nonce, cluster_id, cluster_version, *others)


async def create_or_read(
    reads: PersistentReads, key: str, content: bytes, *, is_read_back: bool = True
) -> bytes:
    """Create the object unless it is there; return the content that is there then. Waits until the store
    answers. Raises Refused. A creation that failed is tried again with the same bytes until the object is
    there, whoever created it.
    """
    while True:
        failure: Exception | None = None
        try:
            await reads.objects.create(key, content)
        except (AlreadyThere, StoreFailed) as error:
            failure = error  # perhaps our object is there nevertheless
        else:
            if not is_read_back:
                return content
        found = await reads.find(key)
        if found is not None:
            return found
        if failure is not None:
            await reads.failed(failure)


async def read_on(reads: PersistentReads, content: SharedLogContent) -> None:
    """Read the objects that follow. A listing may be old, so it only tells how many objects there are at
    least. Raises CorruptRegistration, IncompatibleFormat, LogShortened, Refused.
    """
    begin = content.end_seq
    await _read_on(reads, content, begin)
    await check_not_shortened(reads, begin)


async def check_not_shortened(reads: PersistentReads, seq: int) -> None:
    """Check that object `seq` of `meta/`, if it is there or missing, was never deleted. Call this after the
    object was read, found missing or created. Raises LogShortened, IncompatibleFormat, CorruptWalObject,
    Refused.
    """
    boundary = await read_shortened(reads)
    if seq < boundary:
        raise LogShortened(
            f"the metadata log in the bucket begins at object {boundary} by now, and this process would "
            f"continue at {seq}; start the gateway again"
        )


async def _read_on(reads: PersistentReads, content: SharedLogContent, begin: int) -> None:
    known = await reads.answered(lambda: _listed_end(reads.objects, content.end_seq))
    while True:
        first = content.end_seq
        numbers = range(first, max(first + 1, min(known, first + READ_AT_ONCE)))
        for found in await asyncio.gather(*(reads.find(registration_key(number)) for number in numbers)):
            if found is not None:
                content.add(found)
            elif content.end_seq < known:
                await check_not_shortened(reads, begin)
                raise CorruptRegistration(
                    f"{registration_key(content.end_seq)} is missing, and later objects are there. Somebody "
                    "deleted it; without it "
                    "nobody can tell which write-ahead logs and which metadata the cluster has."
                )
            else:
                return


async def _listed_end(objects: ObjectStore, first: int) -> int:
    """Return the number after the last object in a listing that begins behind the object before `first`."""
    end = first
    async for entry in objects.list("meta/", registration_key(first - 1) if first else ""):
        match = _OBJECT.fullmatch(entry.key)
        if match is not None:
            end = max(end, int(match[1]) + 1)
    return end


VERSION: Final = 1


class _BoundaryStored(msgspec.Struct):
    version: int
    boundary: int = 0


def encode_boundary(boundary: int) -> bytes:
    return msgspec.json.encode(_BoundaryStored(VERSION, boundary))


def decode_boundary(content: bytes, key: str) -> int:
    """Return the boundary. Raises CorruptWalObject, IncompatibleFormat; `key` is for the messages."""
    try:
        stored = msgspec.json.decode(content, type=_BoundaryStored)
    except msgspec.DecodeError as error:
        raise CorruptWalObject(f"{key} is damaged: {error}.") from error
    if stored.version > VERSION:
        raise IncompatibleFormat(f"{key} has version {stored.version}; this program reads version {VERSION}.")
    if stored.version < 1 or stored.boundary < 0:
        raise CorruptWalObject(f"{key} is damaged: it has impossible values: {stored}.")
    return stored.boundary


async def read_boundary(reads: PersistentReads, node_id: int, session: int) -> int:
    """Return the boundary of the session. Raises CorruptWalObject, IncompatibleFormat, Refused."""
    return await _read(reads, boundary_key(node_id, session))


async def read_sessions_boundary(reads: PersistentReads) -> int:
    """Return the number below which all sessions are sealed and collected. Raises as `read_boundary`."""
    return await _read(reads, SESSIONS_BOUNDARY_KEY)


async def read_shortened(reads: PersistentReads) -> int:
    """Return the number below which objects of `meta/` may be deleted. Raises as `read_boundary`."""
    return await _read(reads, SHORTENED_KEY)


async def _read(reads: PersistentReads, key: str) -> int:
    content = await reads.find(key)
    return 0 if content is None else decode_boundary(content, key)
