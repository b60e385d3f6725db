"""The description of a client: the properties by which subscriptions select clients, and the labels of the pushed metrics."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

CLIENT_LABELS: Final = ("client_id", "client_instance_id", "client_software_name", "client_software_version")
"""The labels of each series that a client pushes. The address and port are no labels."""


@dataclass(frozen=True, slots=True)
class ClientDescription:
    """A client as it was at its first telemetry request. Source: Kafka's ClientMetricsInstanceMetadata."""

    client_instance_id: uuid.UUID
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: int

    def selected_values(self) -> dict[str, str]:
        """Return the values that selectors compare, by selector."""
        return {
            "client_instance_id": instance_id_text(self.client_instance_id),
            "client_id": self.client_id,
            "client_software_name": self.client_software_name,
            "client_software_version": self.client_software_version,
            "client_source_address": self.client_source_address,
            "client_source_port": str(self.client_source_port),
        }

    def labels(self) -> dict[str, str]:
        """Return the values of CLIENT_LABELS."""
        values = self.selected_values()
        return {name: values[name] for name in CLIENT_LABELS}


def instance_id_text(client_instance_id: uuid.UUID) -> str:
    """Return a client instance id as Kafka's clients show it: URL-safe Base64 without padding, 22 characters."""
    return urlsafe_b64encode(client_instance_id.bytes).decode().rstrip("=")
