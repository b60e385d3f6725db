from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.admin.remote.client_security import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b\nc d", {"a": "b", "c": "d"}),
        ("  a\t:\tb", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("# a=b\n ! c=d\n\n  \ne=f # g", {"e": "f # g"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c\\\n\td", {"a": "bcd"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00e9\\t\\n\\x", {"a": "é\t\nx"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\\n# b", {"a": "# b"}),
        ('j=M required password="a;b\\\\"c";', {"j": 'M required password="a;b\\"c";'}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.text(alphabet=st.sampled_from("ab=: \t\\\n\r#!u0é")))
def test_any_text_is_read(text: str) -> None:
    assert isinstance(parse_properties(text), dict)
