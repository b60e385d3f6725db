"""A candidate batch for the sequence rule: any object with the fields of a batch header."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    base_sequence: int = 0
    records: int = 1
    producer_id: int = 7
    producer_epoch: int = 0
    max_timestamp: int = 1_000
    is_transactional: bool = False

    @property
    def last_offset_delta(self) -> int:
        return self.records - 1

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.records - 1) % 2**31
