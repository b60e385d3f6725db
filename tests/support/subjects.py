"""Subjects of certificates, and how Java writes them (javax.security.auth.x500.X500Principal.getName)."""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID


def _name(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value, _validate=False) for kind, value in parts])


SUBJECTS = {
    "CN=writer": _name((NameOID.COMMON_NAME, "writer")),
    "CN=writer,OU=ingest,O=Example,L=Köln,ST=NRW,C=DE": _name(
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "NRW"),
        (NameOID.LOCALITY_NAME, "Köln"),
        (NameOID.ORGANIZATION_NAME, "Example"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "ingest"),
        (NameOID.COMMON_NAME, "writer"),
    ),
    r"CN=a\,b\+c\"d\\e\<f\>g\;h": _name((NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h')),
    r"CN=\#first\#": _name((NameOID.COMMON_NAME, "#first#")),
    r"CN=a\=b": _name((NameOID.COMMON_NAME, "a=b")),
    r"CN=\ \ spaced\ \ ": _name((NameOID.COMMON_NAME, "  spaced  ")),
    "UID=u,DC=example,DC=org,STREET=Main": _name(
        (NameOID.STREET_ADDRESS, "Main"),
        (NameOID.DOMAIN_COMPONENT, "org"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.USER_ID, "u"),
    ),
    "1.2.840.113549.1.9.1=#160a6d65406578616d706c65,CN=me": _name(
        (NameOID.COMMON_NAME, "me"), (NameOID.EMAIL_ADDRESS, "me@example")
    ),
    "CN=人,O=日本": _name((NameOID.ORGANIZATION_NAME, "日本"), (NameOID.COMMON_NAME, "人")),
}
"""The subject of each text."""
