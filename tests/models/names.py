"""The rule of producer names in its fewest words: which records of a batch are new, and when a batch is refused.

Properties, fuzzing and simulation compare with this one model. It knows no offsets, no files and no limits: whoever needs them
keeps them beside it. A name is whatever the caller tells names apart by.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

NO_PRODUCER = -1
NO_SEQUENCE_ID = -1
NO_EPOCH = -1

Name = TypeVar("Name", bound=Hashable)


@dataclass
class NameState:
    """What one partition remembers of one name."""

    highest: int = NO_SEQUENCE_ID
    """The highest sequence id that counts."""
    epoch: int = NO_EPOCH
    held: dict[int, int] = field(default_factory=dict)
    """The highest sequence id in the open transaction of each producer; it counts when the transaction commits."""

    def decide(self, producer: int, *, commit: bool) -> None:
        """End the transaction of a producer: what it held counts from now on, or never."""
        held = self.held.pop(producer, NO_SEQUENCE_ID)
        if commit:
            self.highest = max(self.highest, held)


class Refusal(enum.Enum):
    """Why a batch is not taken."""

    UNDECIDED = "undecided"
    """Another producer holds a name of the batch in an open transaction."""
    FENCED = "fenced"
    """The name was seen with a higher epoch."""


class Claim(NamedTuple, Generic[Name]):
    """What a record says of itself; `position` is the caller's word for the record."""

    position: int
    name: Name
    sequence_id: int
    epoch: int = NO_EPOCH


@dataclass
class Judged(Generic[Name]):
    """What becomes of a batch that is taken."""

    duplicates: set[int] = field(default_factory=set)
    """The positions of the records that were there before; all others are new, and only they are stored."""
    names: dict[Name, NameState] = field(default_factory=dict)
    """The names of the batch as they are once it is taken."""
    repeated: set[Name] = field(default_factory=set)
    """The names of which the batch has nothing but duplicates: no stored record tells their epoch."""


def judge(
    known: Mapping[Name, NameState], claims: Iterable[Claim[Name]], transaction_of: int = NO_PRODUCER
) -> Judged[Name] | Refusal:
    """Return what becomes of a batch with these records, in their order; changes nothing.

    A record is new when its sequence id is above all of its name that count, that the batch's own transaction holds, and that
    come before it in the batch. The last new record of a name tells its epoch.
    """
    judged: Judged[Name] = Judged()
    new_epochs: dict[Name, int] = {}
    for claim in claims:
        state = judged.names.get(claim.name)
        if state is None:
            state = judged.names[claim.name] = deepcopy(known.get(claim.name, NameState()))
            if state.held.keys() - {transaction_of}:
                return Refusal.UNDECIDED
        if claim.epoch < state.epoch:
            return Refusal.FENCED
        state.epoch = claim.epoch
        if claim.sequence_id <= max(state.highest, state.held.get(transaction_of, NO_SEQUENCE_ID)):
            judged.duplicates.add(claim.position)
            continue
        new_epochs[claim.name] = claim.epoch
        if transaction_of == NO_PRODUCER:
            state.highest = claim.sequence_id
        else:
            state.held[transaction_of] = claim.sequence_id
    for name, epoch in new_epochs.items():
        judged.names[name].epoch = epoch
    judged.repeated = judged.names.keys() - new_epochs.keys()
    return judged
