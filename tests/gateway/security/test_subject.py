from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from seqgate.gateway.security.key_stores import subject_text
from tests.support.certificates import Authority
from tests.support.subjects import SUBJECTS


def text_of(subject: x509.Name) -> str:
    return subject_text(Authority().client(subject).certificate.public_bytes(Encoding.DER))


@pytest.mark.parametrize("text", SUBJECTS)
def test_a_subject_is_written_as_java_writes_it(text: str) -> None:
    assert text_of(SUBJECTS[text]) == text


def test_a_long_value_of_an_unknown_kind_is_written_whole() -> None:
    address = "x" * 200 + "@example.org"
    subject = x509.Name([x509.NameAttribute(NameOID.EMAIL_ADDRESS, address)])
    assert text_of(subject) == f"1.2.840.113549.1.9.1=#1681d4{address.encode().hex()}"
