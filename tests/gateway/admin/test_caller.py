"""Changes over the control socket are in the log and in the audit log; requests that only read are not, and
secrets never are.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
import os
from pathlib import Path

import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.groups.messages import DeleteGroupsRequest
from seqgate.gateway.admin.pids.messages import ClaimBlockRequest
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.admin.status.messages import StatusRequest
from seqgate.gateway.admin.users.messages import AddUserRequest, NewCredential, RemoveUserRequest
from seqgate.gateway.runtime.loop.log_output import AUDIT, UNLIMITED
from tests.gateway.handlers.support import open_node


async def test_a_change_names_the_user_of_the_system(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with open_node(tmp_path / "data") as node:
        node.services.node.audit.is_on = True
        control = ControlServer(node.services, tmp_path)
        assert await control.start()
        salted = NewCredential("SCRAM-SHA-256", 4096, b"planted-salt", b"planted-password")
        await asyncio.to_thread(ask, tmp_path, AddUserRequest("ann", [salted]))
        await asyncio.to_thread(ask, tmp_path, StatusRequest())
        await asyncio.to_thread(ask, tmp_path, DeleteGroupsRequest(["g"]))
        for refused in (RemoveUserRequest("nobody"), ClaimBlockRequest(0, "x")):
            with pytest.raises(ControlError):
                await asyncio.to_thread(ask, tmp_path, refused)
        await control.stop()
    (audited,) = [json.loads(record.getMessage()) for record in caplog.records if record.name == AUDIT]
    (line,) = [record.getMessage() for record in caplog.records if record.name == UNLIMITED]
    what = (
        "AddUserRequest(user='ann', credentials=[NewCredential(mechanism='SCRAM-SHA-256', iterations=4096)])"
    )
    assert audited == {
        "event": "changed",
        "principal": f"system user {getpass.getuser()}",
        "address": "control socket",
        "listener": "control socket",
        "client_id": f"pid {os.getpid()}",
        "request": "users.add",
        "action": "seqgate users.add",
        "resources": [what],
    }
    assert line == f"seqgate users.add: {what}, by the system user {getpass.getuser()} (pid {os.getpid()})"
    assert "planted" not in caplog.text
