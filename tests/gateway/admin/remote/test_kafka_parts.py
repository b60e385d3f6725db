"""Packages that are imported in parts give the names that they give when they are imported whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seqgate.gateway.admin.remote.kafka_parts import PARTS

SCRIPT = """
import sys
from importlib import import_module
from seqgate.gateway.admin.remote import kafka_parts

kafka_parts.install()
package = import_module(sys.argv[1])
for name, place in kafka_parts.PARTS[sys.argv[1]].items():
    found = getattr(package, name)
    assert not place or found is getattr(import_module(f"{package.__name__}.{place}"), name)
names = kafka_parts.PARTS[sys.argv[1]]
assert not names or not vars(package).get("__all__"), "no name of PARTS executes the package"
for _ in range(2):
    assert not hasattr(package, "nothing_has_this_name")
for name in getattr(package, "__all__", ()):
    assert name in vars(package), "the package is executed for any other name"
"""
ERRORS = """
import sys
from seqgate.gateway.admin.remote import kafka_parts

kafka_parts.install()
from kafka import errors, structs
assert errors.KafkaError and structs.TopicPartition
assert "kafka.net" not in sys.modules
"""


LOGIN = """
import sys
from seqgate.gateway.admin.remote import kafka_parts

kafka_parts.install()
from kafka.net.sasl import get_sasl_mechanism
import ssl
assert not {"hashlib", "kafka.net.sasl.plain", "_ssl"}.intersection(sys.modules)
assert get_sasl_mechanism("PLAIN") is sys.modules["kafka.net.sasl.plain"].SaslMechanismPlain
assert issubclass(ssl.SSLWantReadError, OSError)
assert "_ssl" in sys.modules
"""


TOGETHER = """
import socket, sys, threading
from seqgate.gateway.admin.remote import kafka_parts

kafka_parts.install()
import ssl
assert "_ssl" not in sys.modules
sys.setswitchinterval(1e-5)
begin, classes, troubles = threading.Barrier(8), set(), []

def use():
    begin.wait()
    try:
        context = ssl.create_default_context()
        classes.add(type(context))
        one, other = socket.socketpair()
        with other, context.wrap_socket(one, server_hostname="a", do_handshake_on_connect=False):
            pass
    except Exception as error:
        troubles.append(error)

threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not troubles and classes == {ssl.SSLContext}, (troubles, classes)
"""


def run(script: str, *words: str) -> None:
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", PARTS)
def test_a_package_in_parts_has_the_names_of_the_whole(package: str) -> None:
    run(SCRIPT, package)


def test_a_module_below_a_package_is_a_name_of_it() -> None:
    run(ERRORS)


def test_what_a_login_and_tls_need_is_imported_when_it_is_used() -> None:
    run(LOGIN)


def test_threads_that_use_tls_at_once_have_the_same_classes() -> None:
    run(TOGETHER)
