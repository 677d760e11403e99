"""The OpenAPI document is one of version 3.1, complete, and made of what requests are decoded by."""

import json

import openapi_spec_validator
import pytest

from privrl.service import operator_endpoints
from privrl.service.application import Endpoint
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
    assert unlisted == {"not-found", "not-allowed"}  # of addresses that are not in the document
