"""The settings of the export of metrics: which values they take, and what an error message shows of them."""

from __future__ import annotations

import pytest

from seqgate.gateway.config import ConfigError, load_config
from seqgate.gateway.config.metrics import OTLP_ENDPOINT, OTLP_HEADERS, parse_headers


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:4318/v1/metrics",
        "https://collector.example/v1/metrics?key=x",
        "http://[::1]:4318/v1/metrics",
        "http://collector",
    ],
)
def test_a_whole_url_is_an_endpoint(url: str) -> None:
    assert load_config(overrides=[f"{OTLP_ENDPOINT}={url}"]).str(OTLP_ENDPOINT) == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("127.0.0.1:4318", "whole URL"),
        ("grpc://127.0.0.1:4317", "whole URL"),
        ("http:///v1/metrics", "whole URL"),
        ("http://[::1/v1", "whole URL"),
        ("http://x:99999/", "whole URL"),
        ("http://x:0/", "whole URL"),
        ("http://x/a b", "whole URL"),
        ("http://x/a\u0007", "whole URL"),
        ("http://ann:secret@x/", "must not have a user"),
    ],
)
def test_anything_else_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        load_config(overrides=[f"{OTLP_ENDPOINT}={url}"])
    assert "secret" not in str(caught.value)


def test_headers_are_decoded() -> None:
    assert parse_headers("Authorization=Bearer%20a%2Cb==, x-scope=1,empty=") == {
        "authorization": "Bearer a,b==",
        "x-scope": "1",
        "empty": "",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret", "header 1 must have the form NAME=VALUE"),
        ("a=1,,b=2", "header 2 must have the form NAME=VALUE"),
        ("a b=secret", "header 1 must have the form"),
        ("a=secret%0d%0ab: c", "printable ASCII"),
        ("a=secret%00", "printable ASCII"),
        ("a=secretü", "printable ASCII"),
        ("Content-Length=secret", "the gateway itself sends the header content-length"),
        ("", "header 1 must have the form"),
    ],
)
def test_a_wrong_header_is_refused_and_its_value_not_shown(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        load_config(overrides=[f"{OTLP_HEADERS}={text}"])
    assert "secret" not in str(caught.value)
