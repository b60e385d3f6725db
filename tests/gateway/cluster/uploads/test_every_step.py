"""An event at every step of a round of uploads: nothing that was acknowledged is lost, and the round ends or
is repeated.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from seqgate.gateway.cluster.cache.bucket import BucketSource
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.log.sparse import SegmentKey
from tests.gateway.cluster.uploads.walk import PLAIN, TROUBLE_S, Walk, manifests_in, missing_of
from tests.support.simulated_objects import Fate, SimulatedBucket, SimulatedObjects
from tests.tiers import in_tiers

MOST_STEPS = 200
STRIDE = 2
"""Each event happens at every second step; half of the events begin with the second one."""
PARTS = 3
"""The steps of an event are divided: one part runs in `make test-all`, the others in `make test-nightly`."""
OUTAGE_S = 240.0
CALLS = ("create", "replace", "get", "delete")
CHANGES = ("create", "replace")


def _offline(walk: Walk) -> None:
    walk.plain.log.go_offline("a test says so")


def _both_offline(walk: Walk) -> None:
    _offline(walk)
    walk.compacted.log.go_offline("a test says so")


def _reopened(walk: Walk) -> None:
    _both_offline(walk)
    walk.reopen(walk.plain)
    walk.reopen(walk.compacted)


def _appended(walk: Walk) -> None:
    for key in walk.served:
        walk.append(key, 7)


def _truncated(walk: Walk) -> None:
    walk.delete_records(20)


def _emptied(walk: Walk) -> None:
    walk.delete_records(walk.plain.log.high_watermark)


def _compacted(walk: Walk) -> None:
    walk.compact()


def _grown_and_compacted(walk: Walk) -> None:
    walk.append(next(key for key in walk.served if walk.served[key] is walk.compacted), 20)
    walk.loop.call_later(0.5, walk.compact)


def _half_compacted(walk: Walk) -> None:
    walk.compact_slowly()


def _deleted(walk: Walk) -> None:
    walk.delete_topic(PLAIN)


def _recreated(walk: Walk) -> None:
    walk.recreate(PLAIN)


def _stood_still(walk: Walk) -> None:
    walk.loop.pass_time(OUTAGE_S)


def _away(walk: Walk) -> None:
    now_s = walk.loop.time()
    walk.bucket.outages.append((now_s, now_s + OUTAGE_S))


def _fates(*fates: Fate, of: Sequence[str] = CALLS) -> Callable[[Walk], None]:
    def plan(walk: Walk) -> None:
        for operation in of:
            walk.objects.plan(operation, *fates)

    return plan


def _refused(walk: Walk) -> None:
    walk.objects.refusal = "the credentials have expired"
    walk.loop.call_later(TROUBLE_S, setattr, walk.objects, "refusal", "")


def failing(method: str, error: int) -> Callable[[Walk], None]:
    """Return the event after which a method of the storage fails for a while with an error number."""

    def happen(walk: Walk) -> None:
        def fail(*_: Any) -> NoReturn:
            raise OSError(error, os.strerror(error))

        setattr(walk.storage, method, fail)
        walk.loop.call_later(TROUBLE_S, delattr, walk.storage, method)

    return happen


def _cancelled(walk: Walk) -> None:
    walk.round.cancel()


EVENTS = {
    "offline": _offline,
    "both offline": _both_offline,
    "reopened": _reopened,
    "appended": _appended,
    "truncated": _truncated,
    "emptied": _emptied,
    "compacted": _compacted,
    "grown and compacted": _grown_and_compacted,
    "half compacted": _half_compacted,
    "deleted": _deleted,
    "recreated": _recreated,
    "stood still": _stood_still,
    "away": _away,
    "409 before": _fates(*[Fate.CONFLICTS_BEFORE] * 8, of=CHANGES),
    "409 after": _fates(*[Fate.CONFLICTS_AFTER] * 8, of=CHANGES),
    "503 before": _fates(*[Fate.FAILS_BEFORE] * 8),
    "503 after": _fates(*[Fate.FAILS_AFTER] * 8),
    "late": _fates(*[Fate.LANDS_LATE] * 2),
    "silent": _fates(*[Fate.SILENT_AFTER] * 3),
    "refused": _refused,
    "unreadable": failing("read_pinned", errno.EIO),
    "no files": failing("read_file", errno.EMFILE),
    "cancelled": _cancelled,
}


@pytest.mark.parametrize("part", in_tiers(range(PARTS), all=[0], nightly=range(1, PARTS)))
@pytest.mark.parametrize("name", EVENTS)
def test_the_bucket_has_everything_and_nothing_else(tmp_path: Path, name: str, part: int) -> None:
    event = EVENTS[name]
    for at in range(1 + list(EVENTS).index(name) % STRIDE + STRIDE * part, MOST_STEPS, STRIDE * PARTS):
        walk = Walk(tmp_path / str(at))
        walk.prepare()
        has_happened = walk.walk(at, event)
        walk.check(walk.bucket, "amid")
        walk.finish()
        walk.end()
        walk.check(walk.bucket, "end")
        if not has_happened:
            return
    raise AssertionError(f"the round has more than {MOST_STEPS} steps")


async def _reads_the_same(
    restored: Mapping[PartitionKey, Manifest], before: SimulatedBucket, after: SimulatedBucket
) -> None:
    """Check that segments which stayed in the bucket have the bytes that the taker's files and indexes are
    about.
    """
    sources = [
        BucketSource(SimulatedObjects(SimulatedBucket(objects=dict(bucket.objects))), restored)
        for bucket in (before, after)
    ]
    for key, manifest in restored.items():
        for segment in manifest.segments:
            name = SegmentKey(*key, segment.base, manifest.generation)
            first, second = [await source.read(name, 0, segment.size_bytes) for source in sources]
            assert first == second


@pytest.mark.tier("all")
def test_a_takeover_finds_everything_whatever_the_old_session_does_later(tmp_path: Path) -> None:
    for at in range(1, MOST_STEPS):
        walk = Walk(tmp_path / str(at))
        walk.prepare()
        has_happened = walk.walk(at, Walk.take_over)
        walk.end()
        if not has_happened:
            return
        assert walk.sealed is not None
        walk.check(walk.sealed, "taken over")
        walk.check(walk.bucket, "taken over again")
        named = {key: found for key, found in manifests_in(walk.sealed).items() if key in walk.acked}
        assert not missing_of(named, walk.bucket), "the old session deleted what the new one needs"
        walk.run(_reads_the_same(named, walk.sealed, walk.bucket))
    raise AssertionError(f"the round has more than {MOST_STEPS} steps")
