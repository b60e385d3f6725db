"""Asks a cluster about client quotas, and changes them. Every function raises ControlError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kio.schema.alter_client_quotas.v1 import request as altering
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.describe_client_quotas.v1 import request as describing
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.static.primitive import f64, i8

from seqgate.gateway.admin.quotas.command import QuotaRow
from seqgate.gateway.admin.remote.cluster import Cluster, ask_broker, check, refusal

_EXACT: Final = i8(0)
_DEFAULT: Final = i8(1)


def find(cluster: Cluster, wanted: Mapping[str, str | None]) -> list[QuotaRow]:
    """Return the entities with these types and names, and perhaps others, sorted; without any, all."""
    request = describing.DescribeClientQuotasRequest(
        components=tuple(
            describing.ComponentData(
                entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
            )
            for kind, name in wanted.items()
        ),
        strict=False,
    )
    answer = ask_broker(cluster.reached, request, DescribeClientQuotasResponse)
    check(answer)
    rows = [
        QuotaRow(
            {part.entity_type: part.entity_name for part in sorted(entry.entity, key=_type)},
            {quota.key: float(quota.value) for quota in sorted(entry.values, key=lambda quota: quota.key)},
        )
        for entry in answer.entries or ()
    ]
    return sorted(rows, key=lambda row: [(kind, name or "") for kind, name in row.entity.items()])


def _type(part: object) -> str:
    return str(getattr(part, "entity_type", ""))


def change(
    cluster: Cluster, entity: Mapping[str, str | None], settings: Mapping[str, float], unset: Sequence[str]
) -> str | None:
    """Set and remove quotas of an entity, all of them or none; return the reason if the cluster refuses."""
    request = altering.AlterClientQuotasRequest(
        entries=(
            altering.EntryData(
                entity=tuple(
                    altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
                ),
                ops=(
                    *(
                        altering.OpData(key=key, value=f64(value), remove=False)
                        for key, value in settings.items()
                    ),
                    *(altering.OpData(key=key, value=f64(0.0), remove=True) for key in unset),
                ),
            ),
        ),
        validate_only=False,
    )
    (result,) = ask_broker(cluster.reached, request, AlterClientQuotasResponse).entries
    return refusal(result.error_code, result.error_message)
