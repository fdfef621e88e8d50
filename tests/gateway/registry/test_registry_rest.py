"""The registry's REST API: what Confluent documents, asked by plain HTTP."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headwater.gateway.server import GatewayThread
from headwater.testing import Broker
from tests.gateway.gateways import client_of, serving
from tests.gateway.registry.registry_client import (
    ID,
    INCOMPATIBLE,
    MEDIA_TYPE,
    V1,
    V2,
    RegistryClient,
    code,
    record,
)


@pytest.fixture
def registry(http: httpx.Client) -> RegistryClient:
    return RegistryClient(http)


def test_a_schema_has_one_id_in_every_subject_and_versions_of_its_own(registry: RegistryClient, name: str) -> None:
    one, other = f"{name}-one", f"{name}-other"
    first = registry.registered(one, V1)
    assert registry.registered(one, V1) == first
    assert registry.registered(one, "  " + V1.replace(",", " , ")) == first, "blanks make no other schema"
    second = registry.registered(one, V2)
    assert second != first
    assert registry.registered(other, V2) == second
    assert registry.ask("GET", f"/subjects/{one}/versions") == (200, [1, 2])
    assert registry.ask("GET", f"/subjects/{other}/versions") == (200, [1])
    assert {one, other} <= set(registry.ask("GET", "/subjects")[1])
    assert registry.ask("GET", "/subjects", subjectPrefix=one) == (200, [one])
    assert registry.ask("GET", f"/schemas/ids/{second}/subjects")[1] == [one, other]
    assert registry.ask("GET", f"/schemas/ids/{second}/versions")[1] == [
        {"subject": one, "version": 2}, {"subject": other, "version": 1},
    ]  # fmt: skip
    status, told = registry.ask("GET", f"/subjects/{one}/versions/latest")
    assert (status, told["version"], told["id"], told["subject"]) == (200, 2, second, one)
    assert json.loads(told["schema"]) == json.loads(V2)
    assert json.loads(registry.ask("GET", f"/schemas/ids/{first}")[1]["schema"]) == json.loads(V1)
    assert registry.ask("GET", f"/schemas/ids/{first}/schema")[1] == json.loads(V1)
    assert registry.ask("GET", f"/subjects/{one}/versions/1/schema")[1] == json.loads(V1)
    assert registry.ask("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert [each["version"] for each in registry.ask("GET", "/schemas", subjectPrefix=one)[1]] == [1, 2]


def test_a_schema_is_looked_up_by_its_text(registry: RegistryClient, name: str) -> None:
    assert code(registry.ask("POST", f"/subjects/{name}", {"schema": V1})) == 40401
    schema_id = registry.registered(name, V1)
    status, told = registry.ask("POST", f"/subjects/{name}", {"schema": V1})
    assert (status, told["id"], told["version"]) == (200, schema_id, 1)
    assert code(registry.ask("POST", f"/subjects/{name}", {"schema": V2})) == 40403


def test_what_is_not_compatible_is_refused_with_the_place_and_the_reason(registry: RegistryClient, name: str) -> None:
    registry.registered(name, V1)
    status, told = registry.register(name, INCOMPATIBLE)
    assert (status, told["error_code"]) == (409, 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1" in told["message"] and "age" in told["message"]
    path = f"/compatibility/subjects/{name}/versions/latest"
    assert registry.ask("POST", path, {"schema": V2}) == (200, {"is_compatible": True})
    status, told = registry.ask("POST", path, {"schema": INCOMPATIBLE}, verbose="true")
    assert status == 200 and told["is_compatible"] is False and "/fields/1" in told["messages"][0]
    assert registry.ask("POST", f"/compatibility/subjects/{name}/versions", {"schema": V2})[1]["is_compatible"]
    assert code(registry.ask("POST", f"/compatibility/subjects/{name}/versions/9", {"schema": V2})) == 40402
    assert code(registry.ask("POST", f"/compatibility/subjects/{name}-no/versions/1", {"schema": V2})) == 40401
    assert registry.ask("PUT", f"/config/{name}", {"compatibility": "FORWARD"})[1] == {"compatibility": "FORWARD"}
    assert registry.register(name, INCOMPATIBLE)[0] == 200, "old readers can read it"


def test_levels_are_those_of_the_subject_or_those_of_all(registry: RegistryClient, name: str) -> None:
    assert code(registry.ask("GET", f"/config/{name}")) == 40408
    assert registry.ask("GET", f"/config/{name}", defaultToGlobal="true") == registry.ask("GET", "/config")
    assert registry.ask("PUT", f"/config/{name}", {"compatibility": "full_transitive"})[0] == 200
    assert registry.ask("GET", f"/config/{name}")[1] == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert code(registry.ask("PUT", f"/config/{name}", {"compatibility": "SIDEWAYS"})) == 42203
    assert registry.ask("DELETE", f"/config/{name}")[1] == {"compatibilityLevel": "FULL_TRANSITIVE"}
    assert code(registry.ask("DELETE", f"/config/{name}")) == 40408


def test_modes_keep_writers_out_and_let_ids_in(registry: RegistryClient, name: str) -> None:
    assert code(registry.ask("GET", f"/mode/{name}")) == 40409
    assert registry.ask("GET", "/mode") == (200, {"mode": "READWRITE"})
    assert registry.ask("PUT", f"/mode/{name}", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert code(registry.register(name, V1)) == 42205
    assert code(registry.ask("PUT", f"/mode/{name}", {"mode": "ASLEEP"})) == 42204
    assert registry.ask("PUT", f"/mode/{name}", {"mode": "IMPORT"})[0] == 200
    own = record(ID, name="Imported_" + name.replace("-", "_"))
    assert registry.registered(name, own, id=900_001, version=7) == 900_001
    assert registry.ask("GET", f"/subjects/{name}/versions") == (200, [7])
    assert code(registry.register(name, V1, id=900_001, version=8)) == 42205, "an id has one schema"
    assert registry.ask("DELETE", f"/mode/{name}")[1] == {"mode": "IMPORT"}
    assert code(registry.register(name, V2, id=900_002)) == 42205
    assert code(registry.ask("PUT", f"/mode/{name}", {"mode": "IMPORT"})) == 42205
    assert registry.ask("PUT", f"/mode/{name}", {"mode": "IMPORT"}, force="true")[0] == 200


def test_deleting_is_soft_first_and_then_for_good(registry: RegistryClient, name: str) -> None:
    first, second = registry.registered(name, V1), registry.registered(name, V2)
    assert code(registry.ask("DELETE", f"/subjects/{name}/versions/1", permanent="true")) == 40407
    assert registry.ask("DELETE", f"/subjects/{name}/versions/1") == (200, 1)
    assert code(registry.ask("DELETE", f"/subjects/{name}/versions/1")) == 40406
    assert code(registry.ask("GET", f"/subjects/{name}/versions/1")) == 40402
    assert registry.ask("GET", f"/subjects/{name}/versions/1", deleted="true")[1]["id"] == first
    assert registry.ask("GET", f"/subjects/{name}/versions") == (200, [2])
    assert registry.ask("GET", f"/subjects/{name}/versions", deleted="true") == (200, [1, 2])
    assert registry.ask("GET", f"/schemas/ids/{first}")[0] == 200, "records may have its id"
    assert registry.ask("DELETE", f"/subjects/{name}/versions/1", permanent="true") == (200, 1)
    assert registry.ask("GET", f"/subjects/{name}/versions", deleted="true") == (200, [2])

    assert code(registry.ask("DELETE", f"/subjects/{name}", permanent="true")) == 40405
    assert registry.ask("DELETE", f"/subjects/{name}") == (200, [2])
    assert code(registry.ask("DELETE", f"/subjects/{name}")) == 40404
    assert code(registry.ask("GET", f"/subjects/{name}/versions")) == 40401
    assert name not in registry.ask("GET", "/subjects")[1]
    assert name in registry.ask("GET", "/subjects", deleted="true")[1]
    assert registry.registered(name, V2) == second, "what was deleted softly may come back"
    assert registry.ask("GET", f"/subjects/{name}/versions") == (200, [3])
    assert registry.ask("DELETE", f"/subjects/{name}")[1] == [3]
    assert registry.ask("DELETE", f"/subjects/{name}", permanent="true") == (200, [2, 3])
    assert code(registry.ask("DELETE", f"/subjects/{name}")) == 40401


def test_no_id_is_given_twice_though_its_schema_is_gone(registry: RegistryClient, name: str) -> None:
    gone = registry.registered(name, record(ID, name="Gone_" + name.replace("-", "_")))
    registry.ask("DELETE", f"/subjects/{name}")
    assert registry.ask("DELETE", f"/subjects/{name}", permanent="true")[0] == 200
    assert code(registry.ask("GET", f"/schemas/ids/{gone}")) == 40403
    assert registry.registered(name, record(ID, name="New_" + name.replace("-", "_"))) > gone


@pytest.mark.parametrize("odd", ["a/b", "ein Ünding", "per%cent", "?&=", ":.context:x", "..", "schéma/ids/1"])
def test_a_subject_may_have_any_characters(registry: RegistryClient, name: str, odd: str) -> None:
    subject = f"{name}{odd}"
    schema_id = registry.registered(subject, V1)
    escaped = quote(subject, safe="")
    assert registry.ask("GET", f"/subjects/{escaped}/versions/1")[1]["subject"] == subject
    assert subject in registry.ask("GET", f"/schemas/ids/{schema_id}/subjects")[1]
    assert registry.ask("DELETE", f"/subjects/{escaped}") == (200, [1])


def test_schemas_refer_to_others_which_then_stay(registry: RegistryClient, name: str) -> None:
    address = record({"name": "city", "type": "string"}, name="Address")
    registry.registered(f"{name}-address", address)
    person = record(ID, {"name": "home", "type": "Address"}, name="Person")
    assert code(registry.register(name, person)) == 42201
    reference = {"name": "Address", "subject": f"{name}-address", "version": 1}
    assert code(registry.register(name, person, references=[{**reference, "version": 5}])) == 42201
    schema_id = registry.registered(name, person, references=[reference])
    assert registry.ask("GET", f"/schemas/ids/{schema_id}")[1]["references"] == [reference]
    assert registry.ask("GET", f"/subjects/{name}-address/versions/1/referencedby") == (200, [schema_id])
    assert code(registry.ask("DELETE", f"/subjects/{name}-address")) == 42206
    assert registry.ask("DELETE", f"/subjects/{name}")[0] == 200
    assert registry.ask("DELETE", f"/subjects/{name}-address")[0] == 200


def test_normalizing_makes_one_schema_of_two_texts(registry: RegistryClient, name: str) -> None:
    one = '{"type":"object","properties":{"a":{"type":"string"}},"title":"T"}'
    other = '{"title":"T","type":"object","properties":{"a":{"type":"string"}}}'
    path = f"/subjects/{name}/versions"
    first = registry.ask("POST", path, {"schema": one, "schemaType": "JSON"}, normalize="true")[1]["id"]
    assert registry.ask("POST", path, {"schema": other, "schemaType": "JSON"}, normalize="true")[1]["id"] == first
    assert registry.registered(name, other, schemaType="JSON") != first


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schema": 5},
        {"schema": ""},
        {"schema": "{"},
        {"schema": "{}", "schemaType": "THRIFT"},
        {"schema": '{"type":"record","name":"A","fields":[{"name":"x","type":"nothing"}]}'},
        {"schema": "[" * 100_000},
        {"schema": '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000},
        {"schema": '{"$ref":"https://example.com/never-fetched.json"}', "schemaType": "JSON"},
        {"schema": '{"type":"nonsense"}', "schemaType": "JSON"},
        {"schema": "message {", "schemaType": "PROTOBUF"},
        {"schema": 'syntax = "proto3"; message M { Missing m = 1; }', "schemaType": "PROTOBUF"},
        {"schema": "message M {" * 5_000, "schemaType": "PROTOBUF"},
        {"schema": '"string"', "references": [{"name": 1}]},
    ],
)
def test_what_is_no_schema_is_refused(registry: RegistryClient, name: str, body: Any) -> None:
    assert code(registry.ask("POST", f"/subjects/{name}/versions", body)) == 42201


def test_what_is_no_request_is_refused(registry: RegistryClient, name: str) -> None:
    assert code(registry.ask("GET", f"/subjects/{name}/versions/0")) == 42202
    assert code(registry.ask("GET", f"/subjects/{name}/versions/newest")) == 42202
    assert code(registry.ask("GET", "/schemas/ids/123456789")) == 40403
    assert code(registry.ask("GET", "/schemas/ids/one")) == 404
    assert code(registry.ask("GET", f"/subjects/{name}/versions/1/no/such/place")) == 404
    assert code(registry.ask("PUT", "/subjects")) == 405
    path = f"/subjects/{name}/versions"
    for content, kind, expected in (("{", MEDIA_TYPE, 400), ("[]", MEDIA_TYPE, 400), ("{}", "text/plain", 415)):
        answer = registry.http.post(path, content=content, headers={"Content-Type": kind})
        assert code((answer.status_code, answer.json())) == expected
    answer = registry.http.post(path, content=b"x" * (9 * 1024 * 1024), headers={"Content-Type": MEDIA_TYPE})
    assert code((answer.status_code, answer.json())) == 413


@pytest.fixture
def other_gateway(headwater_session: Broker, gateway: GatewayThread) -> Iterator[GatewayThread]:
    with serving(headwater_session.bootstrap) as running:
        yield running


def test_two_gateways_give_each_id_to_one_schema(
    gateway: GatewayThread, other_gateway: GatewayThread, name: str
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def register_all(gateway: GatewayThread, side: str) -> dict[str, int]:
        with client_of(gateway) as http:
            registry = RegistryClient(http)
            own = {f"{side}{index}": record(ID, name=f"Of_{side}_{index}") for index in range(10)}
            shared = {f"shared{index}": record(ID, name=f"Shared_{index}") for index in range(10)}
            return {key: registry.registered(f"{name}-{key}", schema) for key, schema in (own | shared).items()}

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(register_all, (gateway, other_gateway), ("left", "right"))
    assert all(left[f"shared{index}"] == right[f"shared{index}"] for index in range(10))
    assert len(set(left.values()) | set(right.values())) == 30
    for running in (gateway, other_gateway):
        with client_of(running) as http:
            for key, schema_id in (left | right).items():
                told = http.get(f"/subjects/{name}-{key}/versions/latest").json()
                assert (told["version"], told["id"]) == (1, schema_id)


def test_a_gateway_that_starts_later_knows_everything(
    registry: RegistryClient, headwater_session: Broker, name: str
) -> None:
    schema_id = registry.registered(name, V1)
    registry.ask("PUT", f"/config/{name}", {"compatibility": "FULL"})
    with serving(headwater_session.bootstrap) as running, client_of(running) as http:
        later = RegistryClient(http)
        assert later.ask("GET", f"/schemas/ids/{schema_id}")[0] == 200
        assert later.ask("GET", f"/config/{name}")[1] == {"compatibilityLevel": "FULL"}
        assert later.registered(name, V1) == schema_id
