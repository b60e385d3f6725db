"""The newest batches that a running gateway did not store."""

from __future__ import annotations

from itertools import islice

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.verdicts.messages import ListVerdictsRequest, VerdictPage, VerdictRow
from seqgate.gateway.runtime.partitions.verdicts import Verdict


def list_verdicts(gateway: LiveGateway, request: ListVerdictsRequest) -> VerdictPage:
    """Return the newest verdicts that pass the filters."""
    newest = gateway.services.partitions.counters.verdicts.newest
    found = (verdict for verdict in reversed(newest) if _passes(verdict, request))
    rows = [VerdictRow(*verdict) for verdict in islice(found, request.limit)]
    return VerdictPage(rows, newest.maxlen or 0)


def _passes(verdict: Verdict, request: ListVerdictsRequest) -> bool:
    return (
        verdict.number > request.after
        and request.topic in {None, verdict.topic}
        and request.partition in {None, verdict.partition}
        and request.producer_id in {None, verdict.producer_id}
    )
