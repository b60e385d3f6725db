"""Checks that a pair of producer id and epoch is handed out once, and that the holder of an older one is
fenced.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from tests.simulation.checkers.facts import Facts, IncarnationName, incarnation_of, place, told
from tests.simulation.history import GotProducerId, TopicPartition


def producer_ids(facts: Facts) -> list[str]:
    """Find ids with two owners: an id belongs to one incarnation or one transactional id, an (id, epoch) to
    one incarnation.

    If a request for a transactional id began after an answer had arrived, its own answer must have a later
    producer epoch or another id.
    """
    breaches = []
    owners: dict[int, tuple[str, GotProducerId]] = {}
    holders: dict[tuple[int, int], GotProducerId] = {}
    for event in facts.all(GotProducerId):
        who = str(_incarnation(event))
        owner = event.transactional_id or who
        first_owner, first = owners.setdefault(event.producer_id, (owner, event))
        what = f"{event.at_ms} ms: producer id {event.producer_id}"
        if first_owner != owner:
            breaches.append(f"{what} went to {owner}, and at {first.at_ms} ms to {first_owner}")
            continue
        holder = holders.setdefault((event.producer_id, event.producer_epoch), event)
        if _incarnation(holder) != _incarnation(event):
            breaches.append(
                f"{what} went with epoch {event.producer_epoch} to {who}, "
                f"and at {holder.at_ms} ms to {_incarnation(holder)}"
            )
    return breaches + _check_epochs(facts)


def _check_epochs(facts: Facts) -> list[str]:
    breaches = []
    answers: dict[str, list[GotProducerId]] = defaultdict(list)
    for event in facts.all(GotProducerId):
        earlier = answers[event.transactional_id or str(_incarnation(event))]
        for other in earlier:
            if (
                other.at_ms < event.asked_at_ms
                and other.producer_id == event.producer_id
                and other.producer_epoch > event.producer_epoch
            ):
                breaches.append(
                    f"{event.at_ms} ms: {event.transactional_id or event.producer} got epoch "
                    f"{event.producer_epoch} of producer id {event.producer_id}, and at {other.at_ms} ms "
                    f"epoch {other.producer_epoch}"
                )
                break
        earlier.append(event)
    return breaches


def _incarnation(event: GotProducerId) -> IncarnationName:
    return IncarnationName(event.producer, event.incarnation)


def fencing(facts: Facts) -> list[str]:
    """Find requests of an older incarnation that succeeded although they began after a newer one had its
    producer epoch.

    Also find records of an older incarnation behind those of a newer one in the log.
    """
    fences = _fences(facts)
    breaches = []
    for event in facts.acknowledged.values():
        fence, sent = fences.get(incarnation_of(event.name)), facts.sent.get(event.name)
        if fence is not None and sent is not None and sent.at_ms > fence.at_ms:
            breaches.append(
                f"{event.at_ms} ms: {told(event.name)}, sent at {sent.at_ms} ms, was acknowledged, "
                f"and {_incarnation(fence)} took over at {fence.at_ms} ms"
            )
    for name, transaction in facts.transactions.items():
        fence = fences.get(IncarnationName(name.producer, name.incarnation))
        if fence is not None and transaction.end and transaction.commit_asked_at_ms > fence.at_ms:
            breaches.append(
                f"{transaction.ends[0].at_ms} ms: the commit of {name}, asked for at "
                f"{transaction.commit_asked_at_ms} ms, was accepted, and {_incarnation(fence)} took over at "
                f"{fence.at_ms} ms"
            )
    return breaches + _check_stored(facts)


def _fences(facts: Facts) -> dict[IncarnationName, GotProducerId]:
    """Return, for each incarnation, the first answer to a newer one."""
    fences: dict[IncarnationName, GotProducerId] = {}
    answers: dict[str, list[GotProducerId]] = defaultdict(list)
    for event in facts.all(GotProducerId):
        answers[event.transactional_id].append(event)
    for incarnation, answer in facts.incarnations.items():
        if answer.transactional_id:
            fence = next(filter(partial(_is_newer, answer), answers[answer.transactional_id]), None)
            if fence is not None:
                fences[incarnation] = fence
    return fences


def _is_newer(answer: GotProducerId, other: GotProducerId) -> bool:
    """Return whether `other` went to a newer incarnation: with a later epoch, or requested after `answer` had
    arrived.
    """
    if other.transactional_id != answer.transactional_id or _incarnation(other) == _incarnation(answer):
        return False
    if other.producer_id == answer.producer_id:
        return other.producer_epoch > answer.producer_epoch
    return other.asked_at_ms > answer.at_ms


def _check_stored(facts: Facts) -> list[str]:
    breaches = []
    newest: dict[tuple[TopicPartition, str], GotProducerId] = {}
    for partition, reading in facts.uncommitted.items():
        for offset, value in reading.records:
            name = facts.name(value)
            answer = facts.incarnations.get(incarnation_of(name)) if name else None
            if name is None or answer is None or not answer.transactional_id:
                continue
            known = newest.setdefault((partition, answer.transactional_id), answer)
            if _is_newer(answer, known):
                breaches.append(
                    f"{place(partition, offset)} holds {told(name)} after records of {_incarnation(known)}, "
                    f"which had fenced it off"
                )
            elif _is_newer(known, answer):
                newest[partition, answer.transactional_id] = answer
    return breaches
