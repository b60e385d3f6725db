"""Contents as text, as JSON, and as bytes in hexadecimal."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from gateway.console.contents.errors import ContentError

_IN_A_LINE: Final = 16
_LEAST_PRINTABLE: Final = 0x20
_MOST_PRINTABLE: Final = 0x7E
_LAYOUT: Final = frozenset("\t\n\r")
_LONGEST_CHARACTER: Final = 4


def text(content: bytes, *, is_cut: bool = False) -> str:
    """Return a content as UTF-8. A content that `is_cut` may end inside a character. Raises ContentError."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start > len(content) - _LONGEST_CHARACTER:
            return content[: error.start].decode()
        raise ContentError(f"the content is no UTF-8 at byte {error.start:,}") from None


def is_readable(found: str) -> bool:
    """Return whether people can read a text: it has no control characters but tabs and the ends of lines."""
    return all(letter.isprintable() or letter in _LAYOUT for letter in found)


def formatted_json(content: bytes | str, *, indent: int = 2) -> str:
    """Return JSON with indents, or in one line for -1; numbers keep their digits. Raises ContentError."""
    try:
        formatted = msgspec.json.format(content, indent=indent)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ContentError(f"the content is no JSON: {error}") from None
    return formatted if isinstance(formatted, str) else text(formatted)


def json_text(value: Any) -> str:
    """Return a value as JSON with indents. Raises ContentError."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    except (RecursionError, ValueError) as error:
        raise ContentError(f"the content can't be shown as JSON: {error}") from None


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as text."""
    return f"0x{value.hex()}" if isinstance(value, bytes | bytearray) else str(value)


def hexadecimal(content: bytes) -> str:
    """Return lines with the place, sixteen bytes, and the letters that they are."""
    return "\n".join(
        _hex_line(start, content[start : start + _IN_A_LINE]) for start in range(0, len(content), _IN_A_LINE)
    )


def _hex_line(start: int, part: bytes) -> str:
    letters = "".join(chr(byte) if _LEAST_PRINTABLE <= byte <= _MOST_PRINTABLE else "." for byte in part)
    return f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {letters}"
