"""The subject of a certificate as text, as Java writes it (X500Principal.getName, RFC 2253).

Kafka's principals and ACLs contain this text, so every character must be the same.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_text(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, its last part first: `CN=writer,OU=ingest,O=Example`."""
    name = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute_text(each) for each in part) for part in reversed(list(name.rdns)))


def _attribute_text(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{attribute.oid.dotted_string}=#{_der_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    inner = value.strip(" ")
    before = len(value) - len(value.lstrip(" "))
    after = len(value) - len(inner) - before
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in inner).replace(
        "\0", "\\00"
    )
    return "\\ " * before + escaped + "\\ " * after


def _der_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the attribute's value in DER, tag and length included."""
    encoded = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the name, its part, the pair of type and value
        encoded = _content(encoded)
    return _after(encoded)


def _content(encoded: bytes) -> bytes:
    """Return the content of the first DER element."""
    header, size = _header(encoded)
    return encoded[header : header + size]


def _after(encoded: bytes) -> bytes:
    """Return the bytes after the first DER element."""
    header, size = _header(encoded)
    return encoded[header + size :]


def _header(encoded: bytes) -> tuple[int, int]:
    """Return (size of the header, size of the content) of a DER element. The header is its tag and length."""
    first = encoded[1]
    if first < 0x80:
        return 2, first
    more = first & 0x7F
    return 2 + more, int.from_bytes(encoded[2 : 2 + more], "big")
