"""The OpenAPI document is one of version 3.1, complete, and made of what requests are decoded by."""

import json

import openapi_spec_validator
import pytest

from privrl.service import operator
from privrl.service.endpoints import ENDPOINTS
from privrl.service.openapi import openapi
from privrl.service.refusals import REASONS
from privrl.service.web import Endpoint


@pytest.mark.parametrize("endpoints", [ENDPOINTS, operator.ENDPOINTS], ids=["public", "operator"])
def test_it_is_valid_and_complete(endpoints: tuple[Endpoint, ...]) -> None:
    document = json.loads(openapi(endpoints))
    assert document["openapi"] == "3.1.0"
    openapi_spec_validator.validate(document)
    listed = {(path, method.upper()) for path, some in document["paths"].items() for method in some}
    assert listed == {(endpoint.path, endpoint.method) for endpoint in endpoints}


def test_every_reason_is_documented_somewhere() -> None:
    text = (openapi(ENDPOINTS) + openapi(operator.ENDPOINTS)).decode()
    unlisted = {reason for reason in REASONS if f"problem:{reason}`" not in text}
    assert unlisted == {"not-found", "not-allowed"}  # of addresses that are not in the document
