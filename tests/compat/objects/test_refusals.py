"""What a store will never carry out is refused with one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects
from tests.compat.objects.conftest import S3_STORES, Server
from tests.support.fault_proxy import Answer, Fault, FaultProxy
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY

ENDING = r" \(the store answered .*\)$"


async def refused_everywhere(objects: ObstoreObjects, sentence: str) -> None:
    """Check that each call is refused with this sentence."""

    async def listed() -> None:
        async for entry in objects.list("a/"):
            raise AssertionError(entry)

    for call in (
        objects.create("a/1", b""),
        objects.get("a/1"),
        objects.get("a/1", 1, 2),
        objects.get_end("a/1", 2),
        objects.read("a/1"),
        objects.replace("a/1", b"", None),
        objects.replace("a/1", b"", '"version"'),
        objects.delete("a/1"),
        listed(),
    ):
        with pytest.raises(Refused, match=rf"^s3://[a-z/]+[^:]*: .*{sentence}.*{ENDING}") as told:
            await call
        assert "\n" not in str(told.value)


def of_server(server: Server, **settings: str) -> ObstoreObjects:
    bucket = settings.pop("bucket", BUCKET)
    right = {
        "endpoint": server.endpoint,
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
    }
    return ObstoreObjects(bucket, "test", {**right, **settings})


async def test_no_such_bucket(server: Server) -> None:
    await refused_everywhere(of_server(server, bucket="nosuchbucket"), "the bucket does not exist; create it")


@pytest.mark.parametrize("name", [name for name in S3_STORES if name != "moto"])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"access_key_id": "other"}, "does not know the access key; correct AWS_ACCESS_KEY_ID"),
        ({"secret_access_key": "other"}, "the secret key is wrong; correct AWS_SECRET_ACCESS_KEY"),
        ({"region": "eu-west-1"}, "in another region than the requests name; set seqgate.cluster.region"),
    ],
    ids=["access key", "secret key", "region"],
)
async def test_a_store_that_checks_signatures(
    request: pytest.FixtureRequest, name: str, settings: dict[str, str], sentence: str
) -> None:
    await refused_everywhere(of_server(request.getfixturevalue(name), **settings), sentence)


@pytest.fixture
def refusing() -> Iterator[FaultProxy]:
    """A server that answers as a test plans; no store is behind it."""
    with FaultProxy(upstream=1) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            Answer.error("403 Forbidden", "AccessDenied", "Access Denied"),
            "denies access; grant the access key s3:GetObject",
        ),
        (Answer("403 Forbidden"), "denies access; grant the access key s3:GetObject"),
        (Answer("401 Unauthorized"), "does not know the access key"),
        (Answer.error("403 Forbidden", "InvalidAccessKeyId"), "does not know the access key"),
        (Answer.error("403 Forbidden", "SignatureDoesNotMatch"), "the secret key is wrong"),
        (
            Answer.error("403 Forbidden", "RequestTimeTooSkewed", "Too large."),
            "set the clock, for example by NTP",
        ),
        (
            Answer.error("400 Bad Request", "ExpiredToken"),
            "session token has expired or is wrong; set a new AWS_SESSION_TOKEN",
        ),
        (Answer.error("400 Bad Request", "InvalidToken"), "session token has expired or is wrong"),
        (Answer.error("400 Bad Request", "AuthorizationHeaderMalformed"), "in another region"),
        (Answer.error("301 Moved Permanently", "PermanentRedirect"), "in another region"),
        (Answer.error("400 Bad Request", "InvalidBucketName"), "does not accept the name of the bucket"),
        (Answer.error("501 Not Implemented", "NotImplemented"), "does not carry out conditional writes"),
        (Answer("501 Not Implemented"), "does not carry out conditional writes"),
        (Answer.error("400 Bad Request", "EntityTooLarge"), "lower seqgate.cluster.put.max.bytes"),
    ],
    ids=lambda value: value.status + value.body.decode()[:40] if isinstance(value, Answer) else "",
)
async def test_each_code(refusing: FaultProxy, answer: Answer, sentence: str) -> None:
    for method in ("PUT", "GET", "DELETE"):
        refusing.plan(method, *[answer] * 5)
    objects = ObstoreObjects(
        BUCKET,
        "test",
        {
            "endpoint": f"http://127.0.0.1:{refusing.port}",
            "region": REGION,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
        },
    )
    await refused_everywhere(objects, sentence)


async def test_a_403_without_a_body_of_a_proxy(server: Server, proxy: FaultProxy) -> None:
    proxy.plan("GET", Fault.STRANGE_403)
    with pytest.raises(Refused, match="the store denies access"):
        await server.objects("test", port=proxy.port).get("a")


async def test_a_store_without_etags(refusing: FaultProxy) -> None:
    refusing.plan("PUT", Answer("200 OK"))
    settings = {
        "endpoint": f"http://127.0.0.1:{refusing.port}",
        "access_key_id": "x",
        "secret_access_key": "x",
    }
    with pytest.raises(
        Refused, match="gives objects no ETag, which the cluster depends on; use a store that does"
    ):
        await ObstoreObjects(BUCKET, "test", settings).create("a", b"")
