"""Names that expire, or are evicted when there are too many. Time passes only when a test asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from seqgate.log import FlushTicket, LogConfig
from seqgate.log.state.names import NamesCapture
from seqgate.seq_validator.names import NameState
from tests.faults.directory_life import now_ms
from tests.faults.simulated_disk import SimulatedDisk
from tests.properties.names_comparison import ComparedNames

MIN_IDLE_MS = 100
EXPIRATION_MS = 1_000
TIMES_MS = (1, 40, 100, 300, EXPIRATION_MS)


class NamesWithLimits(ComparedNames):
    """Knows when each name was active, and so which names may be forgotten and which must be remembered."""

    def __init__(self, disk: SimulatedDisk, config: LogConfig, *, has_limits: bool) -> None:
        super().__init__(disk)
        self.has_limits = has_limits
        self.clock_ms = now_ms()
        self.topic_config = config
        if has_limits:
            self.topic_config = replace(
                config, deduplication_names_max=2, deduplication_expiration_ms=EXPIRATION_MS
            )

    def now_ms(self) -> int:
        """Return the time (ms) of the simulated clock."""
        return self.clock_ms

    def pass_time(self, passed_ms: int) -> None:
        self.clock_ms += passed_ms

    def open(self) -> None:
        super().open()
        assert self.directory is not None
        self.directory.environment.name_budget.min_idle_ms = MIN_IDLE_MS

    def alter_limit(self, names_max: int) -> None:
        """Set the limit of remembered names."""
        if self.has_limits:
            self.topic_config = replace(self.topic_config, deduplication_names_max=names_max)
            self.log.update_config(self.topic_config)

    def expire(self) -> None:
        """Expire names, as the gateway does every few minutes."""
        before = self.remembered()
        expiration_ms = self.topic_config.deduplication_expiration_ms
        idle = self._idle(before, expiration_ms) if expiration_ms >= 0 else []
        self.log.record_states.expire_names(self.now_ms())
        gone = before.keys() - self.remembered().keys()
        assert gone == set(idle), f"{gone} expired, not {idle}"
        self._forget(gone)
        self.counts["expired"] += len(gone)

    def remembered(self) -> Mapping[bytes, NameState]:
        """Return all remembered names while deduplication is on."""
        log = self.log
        return (
            {state.name: state for state in log.record_states.name_states()}
            if log.record_states.names_ready
            else {}
        )

    def may_be_written_down_still(self, names: Collection[bytes]) -> bool:
        """Return whether one of the names was evicted and can't be added again until the eviction is durable."""
        return any(one.name in names and not one.is_written for one in self.history.forgotten)

    def is_refused(self, before: Mapping[bytes, NameState], names: Collection[bytes]) -> bool:
        """Return whether there is no room for the new ones among these names."""
        missing = self._missing(before, names)
        return missing > 0 and len(self._idle(before, MIN_IDLE_MS)) < missing

    def note_evicted(self, before: Mapping[bytes, NameState], names: Collection[bytes]) -> None:
        """After a batch with these names was accepted, check that only the longest idle names were evicted,
        and no more than needed.
        """
        after = self.remembered()
        gone = before.keys() - after.keys()
        may_go = [name for name in self._idle(before, MIN_IDLE_MS) if name not in names]
        count = max(0, min(self._missing(before, names), len(may_go)))
        assert gone <= set(may_go), f"{gone} were evicted, only {may_go} might be"
        assert len(gone) == count, f"{gone} were evicted, and should have been {count}"
        latest_ms = max((before[name].last_active_ms for name in gone), default=0)
        assert all(before[name].last_active_ms >= latest_ms for name in may_go if name not in gone)
        self._forget(gone)
        self.counts["evicted"] += len(gone)

    def note_written(self, ticket: FlushTicket) -> None:
        """Note a finished flush: names evicted before the flush began may be added again."""
        for names in ticket.captures:
            if not isinstance(names, NamesCapture):
                continue
            written = {name for name, *_ in names.names}
            for one in self.history.forgotten:
                # names that came and went since the capture are not in it either
                was_seen = self.history.last_offset_of(one.name) < names.log_end_offset
                one.is_written = one.is_written or (was_seen and one.name not in written)

    def _missing(self, before: Mapping[bytes, NameState], names: Collection[bytes]) -> int:
        newcomers = sum(name not in before for name in names)
        return newcomers and len(before) + newcomers - self.topic_config.deduplication_names_max

    def _idle(self, names: Mapping[bytes, NameState], for_ms: int) -> list[bytes]:
        now = self.now_ms()
        return [
            name
            for name, state in names.items()
            if not state.is_pending and now - state.last_active_ms >= for_ms
        ]

    def _forget(self, names: Collection[bytes]) -> None:
        self.history.forget(names, self.history.end_offset)
        for name in names:
            self.active.pop(name, None)
