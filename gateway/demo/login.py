"""The login of one client of the demo, in the words of each client library."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, NamedTuple

PROTOCOL = "SASL_SSL"
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
LOGIN_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class Login(NamedTuple):
    """The name and password of a user, the mechanism, and the file with the authority that the client trusts."""

    user: str
    password: str
    mechanism: str
    trusted: str

    def write(self, path: Path) -> Path:
        """Write the login to a file that only its owner may read."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(self._asdict()))
        return path

    @classmethod
    def read(cls, path: Path) -> Login:
        """Return the login that `write` wrote."""
        return cls(**json.loads(path.read_text()))

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the settings of confluent-kafka."""
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.trusted,
        }

    def for_kafka_python(self) -> dict[str, Any]:
        """Return the arguments of kafka-python's clients."""
        return {**self._in_python(), "ssl_cafile": self.trusted}

    def for_aiokafka(self) -> dict[str, Any]:
        """Return the arguments of aiokafka's clients."""
        return {**self._in_python(), "ssl_context": ssl.create_default_context(cafile=self.trusted)}

    def _in_python(self) -> dict[str, Any]:
        return {
            "security_protocol": PROTOCOL,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def for_spark(self) -> dict[str, str]:
        """Return the options of Spark's source, which are those of Kafka's Java clients."""
        module = LOGIN_MODULES[self.mechanism]
        return {
            "kafka.security.protocol": PROTOCOL,
            "kafka.sasl.mechanism": self.mechanism,
            "kafka.sasl.jaas.config": f'{module} required username="{self.user}" password="{self.password}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self.trusted,
        }
