"""The names in the certificate of a listener, by which clients recognize it. A renewed certificate must keep
these names.

Source: Kafka's SslFactory.CertificateEntries.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509

from seqgate.gateway.security.stores import KeyPair


@dataclass(frozen=True, slots=True)
class Identity:
    """The subject of a certificate, and its subject alternative names.

    Two subjects that differ only in capitals and spaces are the same, as they are to Java.
    """

    subject: tuple[frozenset[tuple[str, str]], ...]
    alternative_names: frozenset[x509.GeneralName]


@dataclass(frozen=True, slots=True)
class AllowedChanges:
    """The names that a renewed certificate may change: the settings `ssl.allow.dn.changes` and
    `ssl.allow.san.changes`.
    """

    subject: bool = False
    alternative_names: bool = False


def identity_of(pair: KeyPair) -> Identity:
    """Return the names in the certificate, by which clients recognize the listener."""
    certificate = pair.certificate
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    subject = tuple(
        frozenset((attribute.oid.dotted_string, _folded(attribute.value)) for attribute in part)
        for part in certificate.subject.rdns
    )
    return Identity(subject, frozenset(names or ()))


def change_complaint(present: Identity, new: Identity, allowed: AllowedChanges) -> str | None:
    """Return why a certificate can't replace the present one; None when it can.

    Additional alternative names are allowed.
    """
    if new.subject != present.subject and not allowed.subject:
        return "the new certificate has another subject, which clients may not recognize; ssl.allow.dn.changes=true allows it"
    missing = present.alternative_names - new.alternative_names
    if missing and not allowed.alternative_names:
        shown = ", ".join(sorted(str(name.value) for name in missing))
        return (
            f"the new certificate lacks subject alternative names of the present one ({shown}), by which "
            "clients may connect; "
            "ssl.allow.san.changes=true allows it"
        )
    return None


def _folded(value: str | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else " ".join(value.casefold().split())
