"""The text of obstore's errors is read for the store's answer."""

from __future__ import annotations

import pytest

from seqgate.gateway.cluster.objects.objects import Refused, StoreFailed
from seqgate.gateway.cluster.objects.s3_errors import ErrorParts, answer_in, meaning

BUSY = (
    "Generic S3 error: Error performing PUT http://127.0.0.1:7070/seqgate/a in 1.5ms - Server returned "
    "non-2xx status code: "
    '503 Slow Down: <?xml version="1.0"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request '
    "rate.</Message>"
    '</Error>\n\nDebug source:\nGeneric {\n    store: "S3" <Code>AccessDenied</Code>'
)
NO_ANSWER = (
    "Generic S3 error: Error performing PUT http://127.0.0.1:7070/seqgate/a in 30s - HTTP error:\nerror "
    "sending request\n\nDebug source:\nGeneric {"
)


def test_the_parts_of_an_answer() -> None:
    assert answer_in(BUSY) == ErrorParts(503, "SlowDown", "Please reduce your request rate.")
    assert answer_in(NO_ANSWER) == ErrorParts(0, "", "")


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (BUSY, StoreFailed, "x: the store answered 503 SlowDown Please reduce your request rate."),
        (
            NO_ANSWER,
            StoreFailed,
            (
                "x: Error performing PUT http://127.0.0.1:7070/seqgate/a in 30s - HTTP error: error sending "
                "request"
            ),
        ),
        (
            BUSY.replace("SlowDown", "NoSuchBucket")
            .replace("503 Slow Down", "404 Not Found")
            .replace(" reduce your request rate.", ""),
            Refused,
            (
                "x: the bucket does not exist; create it, or correct seqgate.cluster (the store answered 404 "
                "NoSuchBucket Please)"
            ),
        ),
        ("x" * 1000, StoreFailed, "x: " + "x" * 300),
    ],
)
def test_what_an_error_means(text: str, kind: type[Exception], sentence: str) -> None:
    error = meaning("x", text)
    assert (type(error), str(error)) == (kind, sentence)


@pytest.mark.parametrize(
    "reason", ["HTTP error: error sending request", "Server returned non-2xx status code: 403 Forbidden: "]
)
def test_missing_credentials_are_named(reason: str) -> None:
    error = meaning(
        "x",
        f"Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - {reason}",
    )
    assert isinstance(error, StoreFailed), "the service that gives a machine its role may be away for a while"
    assert str(error).startswith(
        "x: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
