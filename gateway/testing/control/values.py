"""Keys and values in JSON: text where the bytes are UTF-8, {"base64": ...} for all others."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from gateway.testing.stored import StoredRecord


def shown(value: bytes | None) -> Any:
    """Return bytes for an answer."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def read(value: Any) -> bytes | None:
    """Return the bytes that a request names. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error:
            pass
    raise ValueError(f'a value must be text, null or {{"base64": "..."}}, not {value!r}')


def record_row(record: StoredRecord) -> dict[str, Any]:
    """Return a record for an answer."""
    return {
        **record._asdict(),
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [{"name": name, "value": shown(value)} for name, value in record.headers],
    }


def read_record(row: dict[str, Any]) -> StoredRecord:
    """Return the record of a row that `record_row` made."""
    headers = tuple((each["name"], read(each["value"])) for each in row["headers"])
    return StoredRecord(**{**row, "key": read(row["key"]), "value": read(row["value"]), "headers": headers})
