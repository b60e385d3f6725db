"""Decodes times as numbers: an answer without a time has -1, which kio refuses where a time can't be null."""

from dataclasses import field, fields, make_dataclass
from functools import cache
from typing import Any

from kio.static.primitive import i64


@cache
def with_times_as_numbers(entity_type: type[Any]) -> type[Any]:
    """Return kio's class with numbers (ms) instead of times."""
    times = [each.name for each in fields(entity_type) if each.metadata.get("kafka_type") == "datetime_i64"]
    return make_dataclass(
        entity_type.__name__,
        [(name, i64, field(metadata={"kafka_type": "int64"})) for name in times],
        bases=(entity_type,),
        namespace={"__type__": entity_type.__type__},
        frozen=True,
        slots=True,
        kw_only=True,
    )
