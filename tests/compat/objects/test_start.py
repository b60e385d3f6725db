"""What a gateway does with a store at its start: opens the address, and checks the store."""

from __future__ import annotations

import pytest

from seqgate.gateway.cluster.objects.address import StoreOptions, store_opener
from seqgate.gateway.cluster.objects.objects import Refused
from seqgate.gateway.cluster.objects.probe import probe
from tests.compat.objects.conftest import Open, Server
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}


async def test_every_store_passes_the_check(open_store: Open) -> None:
    objects = open_store()
    await probe(objects, "fresh")
    assert [entry async for entry in objects.list("")] == []


async def test_an_address_and_the_environment_are_enough(server: Server, prefix: str) -> None:
    opened = store_opener(f"s3://{BUCKET}/{prefix}", StoreOptions(server.endpoint), ENVIRONMENT)()
    await opened.create("a", b"content")
    assert await server.objects(prefix).get("a") == b"content"
    by_variable = ENVIRONMENT | {"AWS_ENDPOINT_URL": server.endpoint}
    whole_bucket = store_opener(f"s3://{BUCKET}", StoreOptions(), by_variable)()
    assert await whole_bucket.get(f"{prefix}/a") == b"content"


async def test_the_check_tells_what_the_store_refuses(server: Server) -> None:
    objects = store_opener("s3://nosuchbucket/x", StoreOptions(server.endpoint), ENVIRONMENT)()
    with pytest.raises(
        Refused, match=r"^s3://nosuchbucket/x/probe/fresh-0/created: the bucket does not exist; create it"
    ):
        await probe(objects, "fresh")
