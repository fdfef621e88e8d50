"""The description is true: requests made from it never meet an error of ours, and answers are as described."""

import uuid
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.gateway.server import GatewayThread

EXAMPLES = 10
MOST_PARTITIONS = 4
"""Thousands are allowed, and take the broker their time."""
OWN_PATHS = ("/v1/topics", "/v1/cluster", "/v1/groups", "/v1/session")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_every_operation_says_what_it_takes_and_gives(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    operations = [
        (path, method, operation) for path, item in described["paths"].items() for method, operation in item.items()
    ]
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(names) == len(set(names))
    assert {"/v1/topics", "/v1/topics/{topic}/records", "/v1/cluster", "/v1/groups"} <= set(described["paths"])
    for path, method, operation in operations:
        assert operation["summary"], path
        assert any(status.startswith("2") for status in operation["responses"]), (path, method)
        assert "400" in operation["responses"]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_requests_made_from_the_description_meet_no_error_of_ours(
    gateway: GatewayThread, http: httpx.Client, mode: schemathesis.GenerationMode
) -> None:
    """Those that follow it, and those that do not. Other parts' paths are for their tests."""
    topic = f"described-{uuid.uuid4().hex[:8]}"
    http.post("/v1/topics", json={"name": topic})
    schema = schemathesis.openapi.from_dict(http.get("/openapi.json").json())
    answered: set[int] = set()
    session = requests.Session()
    session.trust_env = False

    def try_operation(operation: Any) -> None:
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode))
        def meet(case: schemathesis.Case) -> None:
            if case.method != "DELETE" and "topic" in (case.path_parameters or {}) and len(answered) % 2:
                case.path_parameters["topic"] = topic
            (case.query or {}).pop("wait_ms", None)  # waiting is nothing to look at here
            if isinstance(case.body, dict) and isinstance(count := case.body.get("partitions"), int):
                case.body["partitions"] = min(count, MOST_PARTITIONS)
            answer = case.call(base_url=f"http://{gateway.host}:{gateway.port}", session=session, timeout=30)
            answered.add(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        meet()

    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        # A path of any string cannot be wrong.
        has_input = bool(operation.body) or bool(operation.query)
        if operation.path.startswith(OWN_PATHS) and (has_input or mode is schemathesis.GenerationMode.POSITIVE):
            try_operation(operation)
    assert answered & {200, 201, 204} and answered & {400, 404}, answered
