"""A broker ends with the process that it was started for."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.testing.control import serving

LIMIT_S = 120.0


@pytest.mark.parametrize("tells", [True, False], ids=["the system tells", "it is looked at"])
async def test_the_end_of_the_process_is_noticed(monkeypatch: pytest.MonkeyPatch, tells: bool) -> None:
    monkeypatch.setattr(serving, "_LOOK_S", 0.01)
    if not tells:
        monkeypatch.delattr(os, "pidfd_open")
    ended = asyncio.Event()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        with serving._ended(process.pid, ended.set):
            assert not ended.is_set()
            process.communicate()
            await asyncio.wait_for(ended.wait(), LIMIT_S)
        with pytest.raises(StartFailed, match="No such process"), serving._ended(process.pid, ended.set):
            pass
