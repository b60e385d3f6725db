"""Checks that a partition has one owner at a time in a group, and that a member of an older generation can't
commit.

A member of the consumer protocol may commit with an older epoch only the partitions that it has held since
that epoch (KIP-1251).

Owners of different generations overlap if the older one is active in its generation once more: then it had
not released the partition. (A member of the consumer protocol takes the next epoch only after it has released
what it must, and a member that was removed returns in a later epoch.)
"""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.checkers.facts import Facts, place
from tests.simulation.history import Assigned, OffsetsCommitted, OffsetsCommitting, TopicPartition


def owners(facts: Facts) -> list[str]:
    """Find partitions with two owners at a time in one generation or member epoch, and generations that go
    back.
    """
    breaches = []
    held: dict[tuple[str, int], dict[TopicPartition, tuple[str, int]]] = defaultdict(dict)
    generations: dict[tuple[str, str], int] = {}
    for event in facts.all(Assigned):
        owner_of = held[event.group, event.generation]
        for partition, (owner, _) in list(owner_of.items()):
            if owner == event.member and partition not in event.partitions:
                del owner_of[partition]
        for partition in sorted(event.partitions):
            owner, at_ms = owner_of.setdefault(partition, (event.member, event.at_ms))
            if owner != event.member:
                breaches.append(
                    f"{event.at_ms} ms: {place(partition)} was assigned to {event.member} in generation "
                    f"{event.generation} of {event.group}, and at {at_ms} ms to {owner}"
                )
        newest = generations.setdefault((event.group, event.member), event.generation)
        if event.generation < newest:
            breaches.append(
                f"{event.at_ms} ms: {event.member} came to generation {event.generation} of {event.group} "
                f"after {newest}"
            )
        generations[event.group, event.member] = max(newest, event.generation)
    return breaches


def early_owners(facts: Facts) -> list[str]:
    """Find partitions that went to a member while a member of an older generation still owned them."""
    breaches = []
    last: dict[tuple[str, str], Assigned] = {}
    taken: dict[tuple[str, str], list[tuple[TopicPartition, Assigned]]] = defaultdict(list)
    for event in facts.all(Assigned):
        who = (event.group, event.member)
        before = last.get(who)
        if before is not None and before.generation == event.generation:
            breaches += [
                f"{taker.at_ms} ms: {place(partition)} was assigned to {taker.member} in generation "
                f"{taker.generation} of {event.group}, and {event.member}, which had it since {before.at_ms} "
                f"ms, was still in generation {event.generation} at {event.at_ms} ms"
                for partition, taker in taken[who]
            ]
        last[who] = event
        taken[who] = []
        for (group, member), other in last.items():
            if group == event.group and member != event.member and other.generation < event.generation:
                taken[group, member] += [(one, event) for one in sorted(other.partitions & event.partitions)]
    return breaches


def old_generations(facts: Facts) -> list[str]:
    """Find commits of classic group members that began after a later generation had its assignment."""
    answered = {
        (event.group, event.member, event.asked_at_ms): event for event in facts.all(OffsetsCommitted)
    }
    newest: dict[str, Assigned] = {}
    breaches = []
    for event in facts.history.events:
        if isinstance(event, Assigned):
            known = newest.get(event.group)
            if known is None or event.generation > known.generation:
                newest[event.group] = event
        if isinstance(event, OffsetsCommitting) and event.generation >= 0:
            known = newest.get(event.group)
            accepted = answered.get((event.group, event.member, event.at_ms))
            if known and accepted and event.generation < known.generation and known.at_ms < event.at_ms:
                breaches.append(
                    f"{accepted.at_ms} ms: a commit of {event.member} in generation {event.generation} of "
                    f"{event.group} was accepted, asked for at {event.at_ms} ms, and generation "
                    f"{known.generation} was assigned at {known.at_ms} ms"
                )
    return breaches


def stale_epochs(facts: Facts) -> list[str]:
    """Find commits of consumer group members that began after a later epoch of another member had the
    partition.
    """
    answered = {
        (event.group, event.member, event.asked_at_ms, event.offsets): event
        for event in facts.all(OffsetsCommitted)
    }
    taken: dict[tuple[str, TopicPartition], list[Assigned]] = defaultdict(list)
    breaches = []
    for event in facts.history.events:
        if isinstance(event, Assigned):
            for partition in event.partitions:
                taken[event.group, partition].append(event)
        if not isinstance(event, OffsetsCommitting) or event.member_epoch < 0:
            continue
        accepted = answered.get((event.group, event.member, event.at_ms, event.offsets))
        if accepted is None:
            continue
        breaches += [
            f"{accepted.at_ms} ms: a commit of {event.member} at epoch {event.member_epoch} of {event.group} "
            f"was accepted for {place(partition)}, asked for at {event.at_ms} ms, and {taker.member} had the "
            f"partition at epoch {taker.generation} from {taker.at_ms} ms on"
            for partition, _ in event.offsets
            for taker in taken[event.group, partition]
            if taker.member != event.member
            and taker.generation > event.member_epoch
            and taker.at_ms < event.at_ms
        ]
    return breaches
