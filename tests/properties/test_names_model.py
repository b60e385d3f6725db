"""Random lives of a deduplicating partition. `names_life` says what is checked after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seqgate.log.format.records import EndMarker
from seqgate.log.state.names import Names
from seqgate.seq_validator.names import NameTable, TopicNames
from seqgate.seq_validator.names.entry import NameEntry
from tests.faults.directory_life import new_disk
from tests.models.names import NO_PRODUCER
from tests.properties.names_life import CODECS, EPOCHS, IDEMPOTENT, TRANSACTIONAL, NamesLife
from tests.properties.names_with_limits import TIMES_MS
from tests.properties.random_names import Breach, RandomNames

FIRST_SEED = 1
LIVES = 60
positions = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=5)
epochs = st.lists(st.sampled_from(EPOCHS), min_size=1, max_size=2).map(lambda some: tuple(sorted(some)))


class LifeOfNames(RuleBasedStateMachine):
    """Each rule changes the log and the model in the same way."""

    @initialize(is_on=st.booleans(), compact=st.booleans(), has_limits=st.booleans())
    def begin(self, is_on: bool, compact: bool, has_limits: bool) -> None:
        self.life = NamesLife(new_disk(), is_on=is_on, compact=compact, has_limits=has_limits)
        self.life.begin()

    @rule(
        positions=positions,
        producer_id=st.sampled_from((NO_PRODUCER, *IDEMPOTENT, *TRANSACTIONAL)),
        codec=st.sampled_from(CODECS),
        epochs=st.just((-1,)) | epochs,
    )
    def send(
        self, positions: list[tuple[int, int]], producer_id: int, codec: str, epochs: tuple[int, ...]
    ) -> None:
        self.life.send(positions, producer_id=producer_id, codec=codec, epochs=epochs)

    @rule(positions=positions)
    def send_while_a_flush_is_under_way(self, positions: list[tuple[int, int]]) -> None:
        self.life.flush(lambda: self.life.send(positions))

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        self.life.end(producer_id, commit=commit)

    @rule(back=st.integers(0, 9))
    def retry(self, back: int) -> None:
        self.life.retry(back)

    @rule(application=st.integers(0, 2))
    def send_half(self, application: int) -> None:
        self.life.send_half(application)

    @rule()
    def flush(self) -> None:
        self.life.flush()

    @rule()
    def fail_flush(self) -> None:
        self.life.fail_flush()

    @rule()
    def capture(self) -> None:
        self.life.capture()

    @rule(passed_ms=st.sampled_from(TIMES_MS))
    def pass_time(self, passed_ms: int) -> None:
        self.life.pass_time(passed_ms)

    @rule()
    def expire(self) -> None:
        self.life.expire()

    @rule(names_max=st.integers(1, 3))
    def alter_limit(self, names_max: int) -> None:
        self.life.alter_limit(names_max)

    @rule()
    def roll(self) -> None:
        self.life.roll()

    @rule()
    def checkpoint(self) -> None:
        self.life.checkpoint()

    @rule()
    def compact(self) -> None:
        self.life.compact()

    @rule()
    def toggle(self) -> None:
        self.life.toggle()

    @rule(max_bytes=st.integers(1, 400))
    def replay(self, max_bytes: int) -> None:
        self.life.replay(max_bytes)

    @rule(part=st.integers(0, 100))
    def delete_records(self, part: int) -> None:
        self.life.delete_records(part)

    @rule(kept_bytes=st.integers(0, 4_000))
    def retain(self, kept_bytes: int) -> None:
        self.life.retain(kept_bytes)

    @rule(clean=st.booleans())
    def stop(self, clean: bool) -> None:
        self.life.stop(clean=clean)

    @rule()
    def kill(self) -> None:
        self.life.kill()

    @rule(seed=st.integers(0, 10_000))
    def power_cut(self, seed: int) -> None:
        self.life.power_cut(seed)

    @rule(which=st.integers(0, 2), is_damaged=st.booleans())
    def lose_snapshots(self, which: int, is_damaged: bool) -> None:
        self.life.lose_snapshots(which, is_damaged=is_damaged)

    @invariant()
    def is_as_the_history_has_it(self) -> None:
        self.life.compare()

    def teardown(self) -> None:
        self.life.stop(clean=False)
        self.life.replay(1 << 30)
        self.life.compare()


LifeOfNames.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestLifeOfNames = LifeOfNames.TestCase


def live_all(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        life = RandomNames(seed)
        life.run()
        counts += life.counts
    return counts


def test_lives_on_a_disk_that_fails() -> None:
    counts = live_all(range(FIRST_SEED, FIRST_SEED + LIVES))
    for what in ("duplicates", "commits", "undecided", "failed flushes", "failed steps", "cuts"):
        assert counts[what] > LIVES // 2, what
    for what in ("lost snapshots", "no room", "evicted", "expired", "forgetting", "known again"):
        assert counts[what] > 0, what


def test_a_life_is_its_seed() -> None:
    first, second = RandomNames(7), RandomNames(7)
    for life in (first, second):
        life.run()
    assert first.counts == second.counts
    assert len(first.disk.log) == len(second.disk.log)


def evict_any(topic: TopicNames, now_ms: int) -> Iterator[bytes]:
    return (
        name
        for name, known in topic._names.items()
        if not any(table.is_pending(name) for table in known.tables)
    )


def expire_any(table: NameTable, now_ms: int, expiration_ms: int) -> Iterator[bytes]:
    return (name for name, entry in table._entries.items() if now_ms - entry.last_active_ms >= expiration_ms)


def enter_for_others(
    topic: TopicNames, table: NameTable, name: bytes, now_ms: int, *, may_evict: bool = True
) -> None:
    topic._make_room(now_ms)
    topic._enter(table, name).last_active_ms = now_ms
    topic._names.move_to_end(name)


def forget_at_once(table: NameTable, name: bytes) -> None:
    del table._entries[name]
    table._topic.leave(table, name)


MISTAKES: dict[str, tuple[object, str, object]] = {
    "nothing is written down": (Names, "unsaved_below", lambda names, offset: False),
    "answered too early": (NameEntry, "offset_to_wait_for", lambda entry, sequence_id, high_watermark: -1),
    "aborted ones count": (EndMarker, "is_commit", True),
    "names that are active are evicted": (TopicNames, "_evictable", evict_any),
    "names in open transactions expire": (NameTable, "_idle", expire_any),
    "forgotten names are taken up at once": (NameTable, "forget", forget_at_once),
    "reading the log again evicts": (TopicNames, "enter", enter_for_others),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])  # type: ignore[arg-type]
    with pytest.raises(Breach, match="seed"):
        live_all(range(60))
