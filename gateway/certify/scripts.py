"""The thirty fault scripts."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.certify import acts
from gateway.certify.script import RandomFaults, RequestFault, Script
from gateway.testing.effects import Effect, Kind

_DROP: Final = Effect(Kind.DROP_ANSWER)
_CLOSE: Final = Effect(Kind.CLOSE)
_HOLD: Final = Effect(Kind.DELAY, 400)
"""Lets several requests of a client be in flight at once."""
_ASKS_WHO_LEADS: Final = "asks who leads the partition, and sends the batch again"
_WAITS: Final = "waits and sends again, in the order of its values"
_ORDER: Final = "sends all of them again, in their order; none of them twice"


def _error(code: ErrorCode) -> Effect:
    return Effect(Kind.ERROR, error=code)


def _error_after(code: ErrorCode) -> Effect:
    return Effect(Kind.ERROR_AFTER, error=code)


SCRIPTS: Final = (
    # --- answers
    Script(
        "first-answer-lost",
        "The first batch is stored, and the connection closes in place of its answer.",
        faults=(RequestFault(_DROP),),
    ),
    Script(
        "middle-answer-lost",
        "A batch in the middle is stored, and the connection closes in place of its answer.",
        faults=(RequestFault(_DROP, after=4),),
    ),
    Script(
        "answer-lost-again",
        "The answer of a batch is lost, and then those of two retries.",
        faults=(RequestFault(_DROP, times=3, after=2),),
    ),
    Script(
        "answer-never-comes",
        "A batch is stored; its answer never comes, and the connection stays open.",
        "sends the batch again after its request timeout",
        faults=(RequestFault(Effect(Kind.LOSE_ANSWER), after=2),),
    ),
    Script(
        "answer-too-late",
        "The answer of a batch comes after the client's request timeout.",
        "sends the batch again, and does not take the late answer for that of another request",
        faults=(RequestFault(Effect(Kind.DELAY), after=2),),
    ),
    Script(
        "answers-lost-amid-requests",
        "Several batches are in flight and stored, and their connection closes before any is answered.",
        _ORDER,
        faults=(RequestFault(_HOLD, after=1), RequestFault(_DROP, after=1)),
    ),
    # --- connections
    Script(
        "connection-closed-again",
        "The connection closes at a batch in the middle, and at two retries; nothing is stored.",
        "connects again, and sends the batch again",
        faults=(RequestFault(_CLOSE, times=3, after=2),),
    ),
    # --- errors
    Script(
        "leader-moves",
        "Two batches are refused with NOT_LEADER_OR_FOLLOWER.",
        _ASKS_WHO_LEADS,
        faults=(RequestFault(_error(ErrorCode.not_leader_or_follower), times=2, after=2),),
    ),
    Script(
        "leader-moves-unseen",
        "A batch is refused with NOT_LEADER_OR_FOLLOWER, and the connection closes twice when the client asks who leads.",
        _ASKS_WHO_LEADS,
        act=acts.leader_moves_unseen,
    ),
    Script(
        "replicas-missing",
        "Three batches are refused with NOT_ENOUGH_REPLICAS.",
        _WAITS,
        faults=(RequestFault(_error(ErrorCode.not_enough_replicas), times=3, after=2),),
    ),
    Script(
        "replicas-missing-after-append",
        "A batch is stored, and answered with NOT_ENOUGH_REPLICAS_AFTER_APPEND.",
        faults=(RequestFault(_error_after(ErrorCode.not_enough_replicas_after_append), after=2),),
    ),
    Script(
        "request-timed-out",
        "A batch is stored, and answered with REQUEST_TIMED_OUT.",
        faults=(RequestFault(_error_after(ErrorCode.request_timed_out), after=2),),
    ),
    Script(
        "topic-unknown",
        "Two batches are refused with UNKNOWN_TOPIC_OR_PARTITION, as by a broker that lags behind.",
        _ASKS_WHO_LEADS,
        faults=(RequestFault(_error(ErrorCode.unknown_topic_or_partition), times=2, after=2),),
    ),
    Script(
        "batch-corrupted",
        "A batch is refused with CORRUPT_MESSAGE, as after a bit flipped on its way.",
        "sends the batch again, or reports the failure",
        faults=(RequestFault(_error(ErrorCode.corrupt_message), after=2),),
        may_give_up=True,
    ),
    Script(
        "error-amid-requests",
        "Several batches are in flight, and one in the middle is refused with NOT_LEADER_OR_FOLLOWER.",
        _ORDER,
        faults=(
            RequestFault(_HOLD, after=1),
            RequestFault(_error(ErrorCode.not_leader_or_follower), after=1),
        ),
    ),
    Script(
        "refused-for-good",
        "A batch is refused with TOPIC_AUTHORIZATION_FAILED.",
        "reports the failure, and does not claim the records of the batch",
        faults=(RequestFault(_error(ErrorCode.topic_authorization_failed), after=2),),
        may_give_up=True,
    ),
    Script(
        "last-batches-refused",
        "The last batches are refused four times with NOT_ENOUGH_REPLICAS.",
        "ends when everything is acknowledged, and not before",
        act=acts.last_batches_refused,
        act_at=18,
    ),
    Script(
        "throttled",
        "Three answers tell the client to wait for 300 ms, as a quota does.",
        "waits",
        faults=(RequestFault(Effect(Kind.THROTTLE, 300), times=3, after=1),),
    ),
    # --- before the first batch
    Script(
        "producer-id-refused",
        "Two requests for a producer id are refused with COORDINATOR_LOAD_IN_PROGRESS.",
        "asks again",
        faults=(RequestFault(_error(ErrorCode.coordinator_load_in_progress), api="InitProducerId", times=2),),
    ),
    Script(
        "producer-id-lost",
        "A producer id is handed out, and the connection closes in place of the answer.",
        "asks again",
        faults=(RequestFault(_DROP, api="InitProducerId"),),
    ),
    Script(
        "metadata-lost",
        "The connection closes in place of the first two answers to Metadata.",
        "asks again",
        faults=(RequestFault(_DROP, api="Metadata", times=2),),
    ),
    Script(
        "topic-created-late",
        "The topic is missing when the application starts, and is created after two requests for it.",
        "asks until the topic is there",
        act=acts.topic_created_late,
        act_at=0,
        has_topic=False,
    ),
    # --- the broker
    Script(
        "broker-killed",
        "The broker is killed with batches that are stored and not answered, and starts again.",
        "connects again and sends them again; the broker recognises them after its recovery",
        act=acts.broker_killed,
    ),
    Script(
        "broker-restarted",
        "The broker stops cleanly, and starts again.",
        "connects again",
        act=acts.broker_restarted,
    ),
    Script(
        "power-cut",
        "The machine of the broker loses its power; batches without an answer may be lost.",
        "sends again what was not answered, in the order of its values",
        act=acts.power_cut,
    ),
    Script(
        "partition-offline",
        "The partition is offline for a while: KAFKA_STORAGE_ERROR.",
        _WAITS,
        act=acts.partition_offline,
    ),
    Script(
        "disk-full",
        "The disk of the broker is full for a while: KAFKA_STORAGE_ERROR.",
        _WAITS,
        act=acts.disk_full,
    ),
    Script(
        "producer-forgotten",
        "The broker forgets the producer id, as after a long pause.",
        "gets a new producer id or a new epoch, and goes on; it may report a failure instead",
        act=acts.producer_forgotten,
        may_give_up=True,
    ),
    # --- chance
    Script(
        "random-1",
        "Up to twelve batches fail, in ways that --seed chooses.",
        faults=(RandomFaults(1),),
    ),
    Script(
        "random-2",
        "Up to twelve batches fail, in other ways that --seed chooses.",
        faults=(RandomFaults(2),),
    ),
)

CALM: Final = Script("calm", "Nothing fails.", "sends each value once")
"""The run before the scripts: an application that fails without a fault can't be judged."""


def named(names: list[str]) -> list[Script]:
    """Return the scripts with these names, in the order of SCRIPTS. Raises ValueError for a name that no script has."""
    known = {script.name for script in SCRIPTS}
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is not the name of a script; `seqgate certify --list` lists them")
    return [script for script in SCRIPTS if script.name in names]
