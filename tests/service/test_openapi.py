"""The OpenAPI document is one of version 3.1, complete, and made of what requests are decoded by."""

import json

import msgspec
import openapi_spec_validator
import pytest

from privrl.service import operator_endpoints
from privrl.service.application import Endpoint
from privrl.service.bodies import EXAMPLES, PilotAnswer, PurgeBody, StudyList, StudySummary, TicketAnswer
from privrl.service.openapi import openapi_document
from privrl.service.public_endpoints import ENDPOINTS
from privrl.service.refusals import REASONS


@pytest.mark.parametrize("endpoints", [ENDPOINTS, operator_endpoints.ENDPOINTS], ids=["public", "operator"])
def test_it_is_valid_and_complete(endpoints: tuple[Endpoint, ...]) -> None:
    document = json.loads(openapi_document(endpoints))
    assert document["openapi"] == "3.1.0"
    openapi_spec_validator.validate(document)
    listed = {(path, method.upper()) for path, some in document["paths"].items() for method in some}
    assert listed == {(endpoint.path, endpoint.method) for endpoint in endpoints}


def test_every_reason_is_documented_somewhere() -> None:
    text = (openapi_document(ENDPOINTS) + openapi_document(operator_endpoints.ENDPOINTS)).decode()
    unlisted = {reason for reason in REASONS if f"problem:{reason}`" not in text}
    assert unlisted == {"not-allowed"}  # of addresses that are not in the document


def test_it_says_who_needs_a_key_and_what_a_probe_answers() -> None:
    paths = json.loads(openapi_document(ENDPOINTS))["paths"]
    study = "/v1/studies/{study}"
    assert paths[f"{study}/actions"]["post"]["security"] == [{"key": []}]
    assert paths[f"{study}/tickets"]["post"]["security"] == [{"key": []}, {}]  # of devices, only in some studies
    assert "security" not in paths[f"{study}/certificate"]["get"]
    assert "missing" in paths["/readyz"]["get"]["responses"]["503"]["description"]
    assert {"200", "201"} < paths[f"{study}/reports"]["post"]["responses"].keys()  # new, and counted before
    assert "304" in paths[f"{study}/plan"]["get"]["responses"]
    assert paths[f"{study}/outcomes"]["post"]["tags"] == paths[f"{study}/outcomes:batch"]["post"]["tags"] == ["pilots"]
    operator = json.loads(openapi_document(operator_endpoints.ENDPOINTS))["paths"]
    assert operator["/metrics"]["get"]["security"] == [{"key": []}]
    operations = [one for some in (*paths.values(), *operator.values()) for one in some.values()]
    verbs = {one["operationId"].split("_")[0] for one in operations}
    assert verbs == {"issue", "draw", "count", "list", "show", "pause", "resume", "purge"}
    assert all(len(one["tags"]) == 1 for one in operations)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_examples_are_of_their_types(kind: type[msgspec.Struct]) -> None:
    read = msgspec.json.decode(json.dumps(EXAMPLES[kind]), type=kind)
    assert json.loads(msgspec.json.encode(read)) == EXAMPLES[kind] | json.loads(msgspec.json.encode(read))
    assert EXAMPLES[kind].keys() <= set(kind.__struct_fields__)


def test_every_body_that_a_client_sends_and_every_study_has_an_example() -> None:
    endpoints = (*ENDPOINTS, *operator_endpoints.ENDPOINTS)
    taken = {kind for endpoint in endpoints for kind in endpoint.takes if kind is not bytes}
    assert taken | {PilotAnswer, StudyList, StudySummary, TicketAnswer} <= EXAMPLES.keys()
    schemas = json.loads(openapi_document(ENDPOINTS))["components"]["schemas"]
    assert all(schemas[kind.__name__]["examples"] for kind in EXAMPLES if kind is not PurgeBody)
