"""The meaning of the errors of an S3 store: which pass, which never will, and how to remove the cause. Pure.

obstore reports an error as text that holds the HTTP status and the body of the answer, in which S3 names the
error by its code. Source: Amazon S3 API Reference, "Error responses", List of error codes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from seqgate.gateway.cluster.objects.objects import Refused, StoreFailed, Untrusted

_STATUS: Final = re.compile(r"Server returned non-2xx status code: ([0-9]{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9._-]{1,100})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})")
_NOWHERE: Final = "redirect without LOCATION"
"""The text of obstore for a redirect of S3 (301 PermanentRedirect), whose body it drops."""
_ETAG_MISSING: Final = "ETag Header missing"
NO_ETAG: Final = "the store gives objects no ETag, which the cluster depends on; use a store that does"
_ROLES: Final = "//169.254."
"""The address of a machine's role credentials. obstore asks there when it has no other credentials."""
_NO_CREDENTIALS: Final = (
    "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run on a machine that "
    "has a role. "
)
_PREFIX: Final = "Generic S3 error: "
_DETAILS: Final = "\n\nDebug source:"
_LONGEST: Final = 300
NO_SUCH_KEY: Final = "NoSuchKey"
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)(?:\(\s*\w+\(\s*(\w+))?")
"""The reason of rustls for refusing a certificate, in the details of an error."""
_NO_CERTIFICATES: Final = "No certificates found in `root_certificate`"
_OTHER_HOST: Final = (
    "the store's certificate is for other hosts than the one in seqgate.cluster.endpoint; name a host of "
    "the certificate"
)
_EXPIRED_CERTIFICATE: Final = (
    "the store's certificate has expired; renew it, or correct the clock of this machine"
)
_EARLY_CERTIFICATE: Final = "the store's certificate is not valid yet; correct the clock of this machine"
_DISTRUST: Final = {
    "UnknownIssuer": "no authority that is trusted has signed the store's certificate; name a file with the "
    "authority's certificate (PEM) by seqgate.cluster.ca.file or AWS_CA_BUNDLE",
    "NotValidForName": _OTHER_HOST,
    "NotValidForNameContext": _OTHER_HOST,
    "Expired": _EXPIRED_CERTIFICATE,
    "ExpiredContext": _EXPIRED_CERTIFICATE,
    "NotValidYet": _EARLY_CERTIFICATE,
    "NotValidYetContext": _EARLY_CERTIFICATE,
    "CaUsedAsEndEntity": "the store's certificate is that of an authority (CA:TRUE), which TLS does not "
    "accept from a server; give the store a certificate that the authority has signed",
}

_ACCESS: Final = (
    "the store denies access; grant the access key s3:GetObject, s3:PutObject and s3:DeleteObject on the "
    "objects under the address, and s3:ListBucket on the bucket"
)
_UNKNOWN_KEY: Final = "the store does not know the access key; correct AWS_ACCESS_KEY_ID"
_REGION: Final = (
    "the bucket is in another region than the requests name; set seqgate.cluster.region, or AWS_REGION, to "
    "the bucket's region"
)
_EXPIRED: Final = "the session token has expired or is wrong; set a new AWS_SESSION_TOKEN with its access key"
_CONDITIONS: Final = (
    "the store does not carry out conditional writes (If-None-Match, If-Match), which the cluster depends "
    "on; use a store that does"
)
_REFUSALS: Final = {
    "NoSuchBucket": "the bucket does not exist; create it, or correct seqgate.cluster",
    "InvalidBucketName": "the store does not accept the name of the bucket; correct seqgate.cluster",
    "AccessDenied": _ACCESS,
    "AllAccessDisabled": _ACCESS,
    "AccountProblem": "the store has locked the account; ask the store's operator",
    "InvalidAccessKeyId": _UNKNOWN_KEY,
    "XAdminUserNotFound": _UNKNOWN_KEY,
    "SignatureDoesNotMatch": "the secret key is wrong; correct AWS_SECRET_ACCESS_KEY",
    "RequestTimeTooSkewed": "the clock of this machine and the store's differ too much; set the clock, for "
    "example by NTP",
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "NotImplemented": _CONDITIONS,
    "EntityTooLarge": "the object is larger than the store allows; lower seqgate.cluster.put.max.bytes",
}
"""The advice for each code of an error that every later call would get, too."""
_REFUSALS_WITHOUT_CODE: Final = {301: _REGION, 401: _UNKNOWN_KEY, 403: _ACCESS, 501: _CONDITIONS}


class ErrorParts(NamedTuple):
    """The parts of an error's text: the HTTP status, 0 without one, and the code and message in the body."""

    status: int
    code: str
    message: str


def answer_in(text: str) -> ErrorParts:
    """Return the store's answer, read from the text of an error."""
    shown = text.split(_DETAILS, 1)[0]
    status, code, message = (pattern.search(shown) for pattern in (_STATUS, _CODE, _MESSAGE))
    return ErrorParts(int(status[1]) if status else 0, code[1] if code else "", message[1] if message else "")


def meaning(where: str, text: str) -> StoreFailed | Refused:
    """Return the error for a call that failed with this text, about the object or bucket `where`. A 404 for
    anything but a missing key means nothing about the key: a proxy may have sent it.
    """
    if _ROLES in text:
        return StoreFailed(f"{where}: {_NO_CREDENTIALS}{_in_words(text)}")
    if _NOWHERE in text:
        return Refused(f"{where}: {_REGION} (the store answered with a redirect)")
    if _ETAG_MISSING in text:
        return Refused(f"{where}: {NO_ETAG}")
    answer = answer_in(text)
    distrust = None if answer.status else _CERTIFICATE.search(text)
    if distrust is not None:
        kind = distrust[2] or distrust[1]
        return Untrusted(
            f"{where}: {_DISTRUST.get(kind, f'the certificate of the store is not trusted ({kind})')}"
        )
    sentence = _REFUSALS.get(answer.code)
    if sentence is None and not answer.code:
        sentence = _REFUSALS_WITHOUT_CODE.get(answer.status)
    told = " ".join(part for part in (str(answer.status or ""), answer.code, answer.message) if part)
    if sentence is not None:
        return Refused(f"{where}: {sentence} (the store answered {told})")
    if told:
        return StoreFailed(f"{where}: the store answered {told}")
    return StoreFailed(f"{where}: {_in_words(text)}")


def is_about_certificates(text: str) -> bool:
    """Return whether obstore refused to open a store because of the authorities' certificates."""
    return _NO_CERTIFICATES in text or _CERTIFICATE.search(text) is not None


def _in_words(text: str) -> str:
    """Return why there was no answer, in one line."""
    return " ".join(text.split(_DETAILS, 1)[0].removeprefix(_PREFIX).split())[:_LONGEST]
