"""The OpenAPI 3.1 document, generated from the endpoints and from the types that decode their requests."""

import functools
import re
from importlib.metadata import version
from typing import Any

import msgspec

from privrl.service.application import JSON, Endpoint
from privrl.service.bodies import EXAMPLES
from privrl.service.refusals import REASONS, TYPE, ProblemDocument

_Object = dict[str, Any]


@functools.cache
def openapi_document(endpoints: tuple[Endpoint, ...]) -> bytes:
    """Generate the document, as JSON."""
    types = {one: None for endpoint in endpoints for one in (*endpoint.takes, *endpoint.gives) if one is not bytes}
    schemas, components = msgspec.json.schema_components(
        [*types, ProblemDocument], ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip([*types, ProblemDocument], schemas, strict=True))
    for one, example in EXAMPLES.items():
        if one.__name__ in components:
            components[one.__name__]["examples"] = [example]
    paths: dict[str, _Object] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    info = {"title": "privrl", "version": version("privrl"), "description": "Live studies with differential privacy."}
    security = {"key": {"type": "http", "scheme": "bearer"}}
    parts = {"schemas": components, "securitySchemes": security}
    tags = [{"name": name} for name in dict.fromkeys(endpoint.tag for endpoint in endpoints)]
    return msgspec.json.encode({"openapi": "3.1.0", "info": info, "tags": tags, "paths": paths, "components": parts})


def _operation(endpoint: Endpoint, by_type: dict[type, _Object]) -> _Object:
    found: _Object = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
    }
    in_path = {"in": "path", "required": True, "schema": {"type": "string"}}
    if names := re.findall(r"{(\w+)}", endpoint.path):
        found["parameters"] = [{"name": name, **in_path} for name in names]
    if endpoint.roles or "no-key" in endpoint.refuses:
        # Endpoints of devices need a key only if the study file says so: an empty requirement makes it optional.
        optional = not endpoint.roles and endpoint.shared
        found["security"] = [{"key": []}, {}] if optional else [{"key": []}]
    if endpoint.takes:
        found["requestBody"] = {"required": bool(endpoint.roles), "content": _content(endpoint.takes, by_type)}
    success: _Object = {"description": "Success"}
    if endpoint.gives:
        success["content"] = _content(endpoint.gives, by_type)
    found["responses"] = {str(endpoint.status): success}
    found["responses"] |= {str(status): {"description": meaning} for status, meaning in endpoint.also}
    if endpoint.unready:
        found["responses"]["503"] = success | {"description": "Not ready: `missing` says why"}
    keys = ("no-key", "wrong-key") if endpoint.roles else ()
    study = ("unknown-study",) if "{study}" in endpoint.path else ()
    by_status: dict[int, list[str]] = {}
    for reason in dict.fromkeys((*study, *keys, *endpoint.refuses, "failed")):
        by_status.setdefault(REASONS[reason][0], []).append(f"`{TYPE}{reason}`: {REASONS[reason][1]}")
    problem = {"application/problem+json": {"schema": by_type[ProblemDocument]}}
    for status, lines in sorted(by_status.items()):
        found["responses"][str(status)] = {"description": "; ".join(lines), "content": problem}
    return found


def _content(types: tuple[type, ...], by_type: dict[type, _Object]) -> _Object:
    """Describe JSON of one of several types, or raw bytes."""
    if types == (bytes,):
        return {"application/octet-stream": {}}
    one_of = [by_type[one] for one in types]
    return {JSON: {"schema": one_of[0] if len(one_of) == 1 else {"anyOf": one_of}}}
