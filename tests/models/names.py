"""The rule of producer names in its fewest words: which records of a batch are new, and when a batch is
refused.

Properties, fuzzing and simulation compare with this one model. The model knows no offsets, files or limits; a
caller that needs these keeps them itself. Any hashable value can be a name.
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
    """The state that one partition remembers of one name."""

    highest: int = NO_SEQUENCE_ID
    """The highest sequence id outside of open transactions."""
    epoch: int = NO_EPOCH
    held: dict[int, int] = field(default_factory=dict)
    """The highest sequence id in the open transaction of each producer; it counts when the transaction
    commits.
    """

    def decide(self, producer: int, *, commit: bool) -> None:
        """End the transaction of a producer: the sequence ids in the transaction count from now on, or never."""
        held = self.held.pop(producer, NO_SEQUENCE_ID)
        if commit:
            self.highest = max(self.highest, held)


class Refusal(enum.Enum):
    """The reason why a batch is refused."""

    UNDECIDED = "undecided"
    """Another producer has an open transaction with a name of the batch."""
    FENCED = "fenced"
    """The name was seen with a higher name epoch."""


class Claim(NamedTuple, Generic[Name]):
    """The name and sequence id of a record; `position` is the caller's word for the record."""

    position: int
    name: Name
    sequence_id: int
    epoch: int = NO_EPOCH


@dataclass
class Judged(Generic[Name]):
    """The outcome of a batch that is accepted."""

    duplicates: set[int] = field(default_factory=set)
    """The positions of the duplicates. All other records are new, and only new records are stored."""
    names: dict[Name, NameState] = field(default_factory=dict)
    """The state of the batch's names after the batch is accepted."""
    repeated: set[Name] = field(default_factory=set)
    """The names of which the batch has only duplicates. So no stored record carries the batch's epoch of such
    a name.
    """


def judge(
    known: Mapping[Name, NameState], claims: Iterable[Claim[Name]], transaction_of: int = NO_PRODUCER
) -> Judged[Name] | Refusal:
    """Return the outcome of a batch with these records, in their order, without changing any state. A record
    is new when its sequence id is above all sequence ids of its name outside of open transactions, above
    those held by the batch's own transaction, and above those earlier in the batch. The last new record of a
    name sets the name epoch.
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
