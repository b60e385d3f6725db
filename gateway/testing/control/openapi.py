"""The description of the test control for programs that generate clients: OpenAPI 3.1."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.testing.control.orders import PART_FAULTS, REQUEST_FAULTS
from gateway.testing.control.routes import ROUTES, Route


def description() -> dict[str, Any]:
    """Return the description of all routes."""
    kinds = sorted({route.body for route in ROUTES if route.body is not None}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas["Order"]["properties"]["fault"]["enum"] = [*REQUEST_FAULTS, *PART_FAULTS]
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Seqgate test control",
            "version": "1",
            "description": "Lets a broker fail on purpose, moves its clock, and looks inside. For tests only.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(route: Route) -> dict[str, Any]:
    words = [word for word in re.split(r"[/{}-]", route.path) if word]
    found: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.does,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", route.path)
        ],
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {}}},
            "400": {"description": 'The request is wrong: {"error": the sentence that says why}.'},
            "404": {"description": "What the path names does not exist."},
        },
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found
