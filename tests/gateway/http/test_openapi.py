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
LONGEST_WAIT_MS = 50
MOST_PARTITIONS = 4
"""Thousands are allowed, and take the broker their time."""
STREAMED = "/v1/subscriptions/{name}/events"
"""Its answer has no end."""
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


def test_a_parameter_that_no_operation_knows_is_refused_by_every_one(http: httpx.Client, topic: str) -> None:
    described = http.get("/openapi.json").json()
    operations = [(path, method) for path, item in described["paths"].items() for method in item]
    assert len(operations) > 20
    for path, method in operations:
        there = path.format(topic=topic, name=topic, group=topic)
        body: dict[str, Any] | None = {} if method in ("post", "patch", "put") else None
        refused = http.request(method, there, params={"partitoin": "1"}, json=body)
        assert refused.status_code == 400, (method, path, refused.text)
        raw = path.endswith("/records") and method == "post"
        assert ("Parameters in the query are for raw bodies" if raw else "'partitoin'") in refused.json()["detail"]
    known = http.get(f"/v1/topics/{topic}/records", params={"form": "end"}).json()["detail"]
    assert known == (
        "There is no parameter 'form' here; there are partition, offset, from, limit, max_bytes, wait_ms, key, decode."
    )
    raw = http.post(f"/v1/topics/{topic}/records?kee=1", content=b"x", headers={"Content-Type": "text/plain"})
    assert raw.status_code == 400 and "kee" in raw.json()["detail"]
    assert http.get(f"/v1/topics/{topic}").status_code == 200, "nothing was done"


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_requests_made_from_the_description_meet_no_error_of_ours(
    gateway: GatewayThread, http: httpx.Client, mode: schemathesis.GenerationMode
) -> None:
    """Those that follow it, and those that do not."""
    topic = f"described-{uuid.uuid4().hex[:8]}"
    http.post("/v1/topics", json={"name": topic})
    for kind in ("stream", "queue"):
        made = http.post("/v1/subscriptions", json={"name": f"{topic}-{kind}", "topic": topic, "kind": kind})
        assert made.status_code == 201, made.text
    there = {"topic": [topic], "name": [f"{topic}-stream", f"{topic}-queue"], "group": [f"{topic}-queue"]}
    described = http.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(described)
    answered: dict[str, set[int]] = {}
    turn = 0
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
        def meet(case: Any) -> None:
            nonlocal turn
            turn += 1
            for name in case.path_parameters or {}:
                if case.method != "DELETE" and turn % 3:  # of something that is there, two times of three
                    case.path_parameters[name] = there[name][turn % len(there[name])]
            (case.query or {}).pop("wait_ms", None)  # waiting is nothing to look at here
            if isinstance(case.body, dict):
                if isinstance(count := case.body.get("partitions"), int):
                    case.body["partitions"] = min(count, MOST_PARTITIONS)
                if operation.path.endswith("/pull") and isinstance(case.body.get("wait_ms", 0), int):
                    case.body["wait_ms"] = min(case.body.get("wait_ms", 0), LONGEST_WAIT_MS)
            statuses = answered.setdefault(operation.label, set())
            address = f"http://{gateway.host}:{gateway.port}"
            if operation.path == STREAMED:
                with session.request(**case.as_transport_kwargs(base_url=address), stream=True, timeout=30) as begun:
                    statuses.add(begun.status_code)
                    assert str(begun.status_code) in described["paths"][STREAMED]["get"]["responses"], begun.status_code
                    assert begun.status_code < 500
                return
            answer = case.call(base_url=address, session=session, timeout=30)
            statuses.add(answer.status_code)
            case.validate_response(answer, checks=CHECKS)

        meet()

    results: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in results]
    for operation in operations:
        # A path of any string cannot be wrong.
        has_input = bool(operation.body) or bool(operation.query)
        if has_input or mode is schemathesis.GenerationMode.POSITIVE:
            try_operation(operation)
    statuses = set().union(*answered.values())
    assert statuses & {200, 201, 204} and statuses & {400, 404}, answered
    if mode is schemathesis.GenerationMode.POSITIVE:
        assert set(answered) == {operation.label for operation in operations}, "each was tried"
