"""Questions that every gateway of a cluster answers for itself, and that one gateway passes on."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.admin import operations
from seqgate.gateway.admin.backup.bucket import HeldLog, HoldRequest, ReleasedLog, ReleaseRequest
from seqgate.gateway.admin.client import answer_of
from seqgate.gateway.admin.cluster.gateways import OtherAnswer, OthersRequest
from seqgate.gateway.admin.groups.listing import ListGroupsRequest
from seqgate.gateway.admin.logs import LogLinesRequest
from seqgate.gateway.admin.operation import ControlOperation
from seqgate.gateway.admin.operations import answer_question
from seqgate.gateway.admin.pids import ClaimBlockRequest
from seqgate.gateway.admin.producers import ListProducersRequest
from seqgate.gateway.admin.request import ControlAnswer, ControlError, Request
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.tasks import ListTasksRequest
from seqgate.gateway.admin.verdicts import ListVerdictsRequest
from seqgate.gateway.runtime.loop.audit import Requester
from seqgate.gateway.runtime.loop.log_output import AUDIT, UNLIMITED
from seqgate.gateway.security.acls.access import Operation
from tests.gateway.admin.answers import answer, live
from tests.gateway.handlers.support import open_node
from tests.gateway.handlers.two_brokers import OTHER
from tests.gateway.handlers.two_gateways import Cluster, open_cluster

ASKER = Requester("User:ann", "192.0.2.7", "SASL_SSL", "seqgate", "DescribeCluster")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(tmp_path) as cluster:
        cluster.there.services.node.questions = partial(answer_question, live(cluster.there))
        yield cluster


async def others(cluster: Cluster, request: Request[object], *besides: int) -> list[OtherAnswer]:
    question = msgspec.json.encode(request).decode()
    return (await answer(cluster.here, OthersRequest(question, list(besides)))).answers


@pytest.mark.parametrize("request_type", [ListVerdictsRequest, ListTasksRequest, LogLinesRequest])
async def test_another_gateway_answers_for_itself(
    cluster: Cluster, request_type: type[Request[object]]
) -> None:
    (told,) = await others(cluster, request_type())
    assert told.node_id == OTHER
    assert answer_of(told.answer, request_type()).nodes == [OTHER]  # type: ignore[attr-defined]


async def test_an_answer_may_be_longer_than_a_string_of_kafka(cluster: Cluster) -> None:
    long = ControlAnswer(error="x" * 0x8000)

    async def answered(question: str, may: object, requester: object) -> bytes:
        return msgspec.json.encode(long)

    cluster.there.services.node.questions = answered
    (told,) = await others(cluster, StatusRequest())
    assert told.answer == long


async def test_whom_the_asker_reaches_itself_is_not_asked(cluster: Cluster) -> None:
    assert await others(cluster, StatusRequest(), OTHER) == []
    assert cluster.asked == []


async def test_a_gateway_alone_asks_nobody(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        assert (await answer(node, OthersRequest("{}", []))).answers == []


async def test_a_gateway_that_is_away_is_named_with_the_reason(cluster: Cluster) -> None:
    cluster.silent.add(OTHER)
    (told,) = await others(cluster, StatusRequest())
    with pytest.raises(ControlError, match="broker 2 is away"):
        answer_of(told.answer, StatusRequest())


async def test_a_gateway_of_an_earlier_release_answers_no_question(cluster: Cluster) -> None:
    cluster.there.services.node.questions = None
    (told,) = await others(cluster, StatusRequest())
    assert told.answer.error == "broker 2 is of an earlier release"


async def test_only_what_each_answers_for_itself_is_told(cluster: Cluster) -> None:
    for refused in (ListGroupsRequest(), ClaimBlockRequest(1, "loader")):
        (told,) = await others(cluster, refused)
        with pytest.raises(
            ControlError, match=r"(groups.list|pids.claim) is answered on the control socket only"
        ):
            answer_of(told.answer, refused)
    (told,) = await others(cluster, ListProducersRequest())
    assert answer_of(told.answer, ListProducersRequest()).complete


@pytest.mark.parametrize(
    ("request_type", "right"), [(ListVerdictsRequest, Operation.DESCRIBE), (LogLinesRequest, Operation.ALTER)]
)
async def test_a_question_needs_a_right(
    tmp_path: Path, request_type: type[Request[object]], right: Operation
) -> None:
    question = msgspec.json.encode(request_type()).decode()
    async with open_node(tmp_path) as node:
        refused, told = [
            msgspec.json.decode(await answer_question(live(node), question, may, ASKER), type=ControlAnswer)
            for may in (lambda _: False, lambda asked: asked is right)
        ]
    assert refused.error is not None
    assert f"needs {right.name} on the cluster" in refused.error
    assert told.error is None


async def test_a_question_that_changes_something_needs_alter(tmp_path: Path) -> None:
    question = msgspec.json.encode(HoldRequest("b")).decode()
    async with open_node(tmp_path) as node:
        refused, told = [
            msgspec.json.decode(
                await answer_question(
                    live(node),
                    question,
                    lambda asked, has=has: asked is has,  # type: ignore[misc]
                    ASKER,
                ),
                type=ControlAnswer,
            )
            for has in (Operation.DESCRIBE, Operation.ALTER)
        ]
    assert refused.error == "backup.hold over the network needs ALTER on the cluster"
    assert told.error == "this gateway has no bucket: it was started without --cluster"


async def test_a_change_over_the_network_names_who_asked_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    held = ControlOperation(HoldRequest, lambda *_: HeldLog(1, 2, "n", 3), changes=True)
    released = ControlOperation(ReleaseRequest, lambda *_: ReleasedLog(is_intact=False), changes=True)
    monkeypatch.setitem(operations._BY_REQUEST, HoldRequest, held)
    monkeypatch.setitem(operations._BY_REQUEST, ReleaseRequest, released)
    async with open_node(tmp_path) as node:
        node.services.node.audit.is_on = True
        for request in (ListTasksRequest(), ReleaseRequest("b"), HoldRequest("b"), ReleaseRequest("b")):
            question = msgspec.json.encode(request).decode()
            await answer_question(live(node), question, lambda _: True, ASKER)
    (audited,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == AUDIT]
    (line,) = [record.getMessage() for record in caplog.records if record.name == UNLIMITED]
    assert audited == {
        "event": "changed",
        **ASKER._asdict(),
        "request": "backup.hold",
        "action": "seqgate backup.hold",
        "resources": ["backup b"],
    }
    assert line == "seqgate backup.hold: backup b, by User:ann at 192.0.2.7 (client 'seqgate')"


@pytest.mark.parametrize("question", ["", "[", '{"type":"no such"}', '{"x":' * 6_000], ids=len)
async def test_what_is_no_question_is_refused(tmp_path: Path, question: str) -> None:
    async with open_node(tmp_path) as node:
        told = msgspec.json.decode(
            await answer_question(live(node), question, lambda _: True, ASKER), type=ControlAnswer
        )
    assert told.error is not None
    assert told.error.startswith("the question is not understood: ")


async def test_lines_after_those_that_a_gateway_had_before_its_restart_are_told(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        node_id = node.services.node.node_id
        whole = await answer(node, LogLinesRequest())
        newest = max((line.number for line in whole.lines), default=0)
        assert (await answer(node, LogLinesRequest(after_of={node_id: newest}))).lines == []
        restarted = await answer(node, LogLinesRequest(after_of={node_id: newest + 1}))
    assert restarted.lines == whole.lines
