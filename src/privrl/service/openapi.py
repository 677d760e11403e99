"""The OpenAPI 3.1 document, from the list of endpoints and the types that their requests are decoded by."""

import functools
import re
from importlib.metadata import version
from typing import Any

import msgspec

from privrl.service.refusals import REASONS, TYPE, ProblemDocument
from privrl.service.web import Endpoint

_ALWAYS = ("failed",)


@functools.cache
def openapi(endpoints: tuple[Endpoint, ...]) -> bytes:
    """The document, as JSON."""
    forms = list(dict.fromkeys(one for endpoint in endpoints for one in (*endpoint.takes, *endpoint.gives)))
    forms = [*(one for one in forms if one is not bytes), ProblemDocument]
    named = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components(forms, ref_template=named)
    schema_of = dict(zip(forms, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "privrl", "version": version("privrl"), "description": "Live studies with privacy."},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(endpoint: Endpoint, schema_of: dict[type, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": endpoint.name, "summary": endpoint.summary, "responses": {}}
    names = re.findall(r"{(\w+)}", endpoint.path)
    if names:
        where = {"in": "path", "required": True, "schema": {"type": "string"}}
        found["parameters"] = [{"name": name, **where} for name in names]
    if endpoint.roles:
        found["security"] = [{"key": []}]
    if endpoint.takes:
        found["requestBody"] = {"required": bool(endpoint.roles), "content": _content(endpoint.takes, schema_of)}
    answered: dict[str, Any] = {"description": "Done"}
    if endpoint.gives:
        answered["content"] = _content(endpoint.gives, schema_of)
    found["responses"][str(endpoint.status)] = answered
    keyed = ("no-key", "wrong-key") if endpoint.roles else ()
    study = ("unknown-study",) if "{study}" in endpoint.path else ()
    by_status: dict[int, list[str]] = {}
    for reason in dict.fromkeys((*study, *keyed, *endpoint.refuses, *_ALWAYS)):
        by_status.setdefault(REASONS[reason][0], []).append(reason)
    for status, reasons in sorted(by_status.items()):
        words = "; ".join(f"`{TYPE}{reason}`: {REASONS[reason][1]}" for reason in reasons)
        content = {"application/problem+json": {"schema": schema_of[ProblemDocument]}}
        found["responses"][str(status)] = {"description": words, "content": content}
    return found


def _content(forms: tuple[type, ...], schema_of: dict[type, Any]) -> dict[str, Any]:
    """JSON of one of several types; `bytes` is anything."""
    if forms == (bytes,):
        return {"application/octet-stream": {}}
    one_of = [schema_of[form] for form in forms]
    return {"application/json": {"schema": one_of[0] if len(one_of) == 1 else {"anyOf": one_of}}}
