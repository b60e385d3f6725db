"""Seals all sessions before one, as a start of a single gateway does."""

from __future__ import annotations

from random import Random

from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.wal.ended import SealedWal, seal_all
from seqgate.gateway.cluster.wal.sessions import RegisteredSession, Session, sessions


async def seal_earlier(
    objects: ObjectStore, own: Session, reason: str, *, chance: Random | None = None
) -> list[tuple[RegisteredSession, SealedWal]]:
    earlier = [each for each in await sessions(objects, chance=chance) if each.session < own.session]
    return await seal_all(objects, own, earlier, reason, chance=chance)
