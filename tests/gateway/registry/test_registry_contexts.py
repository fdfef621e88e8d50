"""Contexts over REST, and as confluent-kafka's clients use them: by subjects that name one, and by a path."""

from urllib.parse import quote

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

from headwater.gateway.server import GatewayThread
from headwater.pipelines.values.registry import RegistryAddress, by_id, in_context, latest
from tests.gateway.registry.registry_client import INCOMPATIBLE, ORDER, V1, V2, RegistryClient, code, value_of


@pytest.fixture
def registry(http: httpx.Client) -> RegistryClient:
    return RegistryClient(http)


def test_subjects_of_contexts_are_apart(registry: RegistryClient, name: str) -> None:
    a, b = f".{name}-a", f".{name}-b"
    assert registry.registered(f":{a}:s", V1) == registry.registered(f":{b}:s", V2) == 1
    assert registry.registered(f":{a}:s", V2) == registry.registered(f":{a}:t", V2) == 2
    assert registry.registered(f":.:{name}", V1) == registry.registered(name, V1)
    assert registry.ask("GET", "/contexts", contextPrefix=f".{name}")[1] == [a, b]
    assert registry.ask("GET", "/subjects", subjectPrefix=f":{a}:")[1] == [f":{a}:s", f":{a}:t"]
    assert registry.ask("GET", "/subjects", subjectPrefix=f":*:{name}")[1] == [name]
    assert {f":{a}:s", f":{b}:s", name} <= set(registry.ask("GET", "/subjects")[1])
    assert f":{a}:s" not in registry.ask("GET", "/subjects", subjectPrefix="")[1]
    assert [each["id"] for each in registry.ask("GET", "/schemas", subjectPrefix=f":{a}:")[1]] == [1, 2, 2]
    told = registry.ask("GET", f"/subjects/{quote(f':{b}:s', safe='')}/versions/1")[1]
    assert (told["subject"], told["id"]) == (f":{b}:s", 1)
    assert registry.ask("GET", "/schemas/ids/1", subject=f":{b}:s")[1] == {"schema": told["schema"]}
    assert registry.ask("GET", "/schemas/ids/2/subjects", subject=f":{a}:")[1] == [f":{a}:s", f":{a}:t"]
    assert code(registry.ask("GET", "/schemas/ids/2", subject=f":{b}:")) == 40403
    assert code(registry.ask("DELETE", f"/contexts/{a}")) == 42211


def test_a_path_may_begin_with_a_context(registry: RegistryClient, name: str) -> None:
    for given in (name, f".{name}", f":.{name}:"):
        root = f"/contexts/{given}"
        assert registry.ask("POST", f"{root}/subjects/s/versions", {"schema": V1}) == (200, {"id": 1})
    subject = f":.{name}:s"
    assert registry.ask("GET", f"{root}/subjects")[1] == [subject]
    assert registry.ask("GET", f"{root}/subjects/s/versions")[1] == [1]
    assert registry.ask("GET", f"{root}/schemas/ids/1", subject="s", fetchMaxId="true")[1]["maxId"] == 1
    assert registry.ask("GET", f"{root}/schemas/ids/1/versions")[1] == [{"subject": subject, "version": 1}]
    assert [each["subject"] for each in registry.ask("GET", f"{root}/schemas")[1]] == [subject]
    assert f".{name}" in registry.ask("GET", f"{root}/contexts")[1]
    assert registry.ask("POST", f"{root}/subjects/s", {"schema": V1})[1]["subject"] == subject
    found = registry.ask("POST", f"{root}/compatibility/subjects/s/versions/latest", {"schema": INCOMPATIBLE})
    assert found[1] == {"is_compatible": False}
    assert code(registry.ask("GET", "/contexts/a:b/subjects")) == 400
    assert code(registry.ask("GET", "/contexts/.nothing/subjects/s/versions")) == 40401


def test_a_context_has_a_level_and_a_mode_of_its_own(registry: RegistryClient, name: str) -> None:
    root, subject = f"/contexts/.{name}", f":.{name}:s"
    assert registry.ask("PUT", f"{root}/config", {"compatibility": "NONE"})[0] == 200
    assert registry.ask("GET", f"/config/:.{name}:")[1] == {"compatibilityLevel": "NONE"}
    assert registry.ask("GET", f"{root}/config/s", defaultToGlobal="true")[1] == {"compatibilityLevel": "NONE"}
    assert code(registry.ask("GET", f"{root}/config/s")) == 40408
    registry.registered(subject, V1)
    registry.registered(subject, INCOMPATIBLE)
    assert registry.ask("GET", "/config")[1] == {"compatibilityLevel": "BACKWARD"}
    assert registry.ask("PUT", f"{root}/mode", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert code(registry.register(subject, V2)) == 42205
    registry.registered(name, V1)
    assert registry.ask("DELETE", f"/mode/:.{name}:") == (200, {"mode": "READONLY"})
    assert registry.ask("DELETE", f"{root}/config")[1] == {"compatibilityLevel": "NONE"}
    assert code(registry.ask("DELETE", f"/contexts/.{name}")) == 42211
    for permanent in ("false", "true"):
        assert registry.ask("DELETE", f"{root}/subjects/s", permanent=permanent) == (200, [1, 2])
    assert registry.http.delete(f"/contexts/.{name}").status_code == 204
    assert f".{name}" not in registry.ask("GET", "/contexts")[1]
    assert code(registry.ask("DELETE", f"/contexts/.{name}")) == 40401


def test_a_subject_without_a_context_is_found_in_another(registry: RegistryClient, name: str) -> None:
    registry.registered(f":.{name}:{name}", V1)
    assert registry.ask("GET", f"/subjects/{name}/versions/latest")[1]["subject"] == f":.{name}:{name}"
    assert registry.ask("POST", f"/subjects/{name}", {"schema": V1})[1]["subject"] == f":.{name}:{name}"
    assert registry.ask("GET", "/schemas/ids/1", subject=name)[0] == 200
    assert code(registry.ask("GET", f"/subjects/{name}/versions")) == 40401
    assert code(registry.ask("DELETE", f"/subjects/{name}")) == 40401
    assert code(registry.register(":*:s", V1)) == code(registry.register(f":.{name}:", V1)) == 42208


def test_a_pipeline_reads_ids_in_the_context_of_its_subject(
    registry: RegistryClient, gateway: GatewayThread, name: str
) -> None:
    registry.registered(name, V1)
    given = registry.registered(f":.{name}:s", V2)
    address = RegistryAddress(f"http://{gateway.host}:{gateway.port}")
    for written in (address, RegistryAddress(f"{address.url}/contexts/.other")):
        found, subject = in_context(written, f":.{name}:s")
        assert latest(found, subject) == by_id(found, given)
        assert "email" in by_id(found, given).schema.text
    assert in_context(address, name) == (address, name)


def test_avro_of_a_context_goes_there_and_back(gateway: GatewayThread, http: httpx.Client, topic: str) -> None:
    address = f"http://{gateway.host}:{gateway.port}"
    city = '{"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}'
    person = '{"type": "record", "name": "Person", "fields": [{"name": "home", "type": "City"}]}'
    with (
        SchemaRegistryClient({"url": f"{address}/contexts/.{topic}"}) as inside,
        SchemaRegistryClient({"url": address}) as plain,
    ):
        # By the path, with a reference that is found in the same context.
        inside.register_schema(f"{topic}-city", Schema(city, "AVRO"))
        schema = Schema(person, "AVRO", [SchemaReference("City", f"{topic}-city", 1)])
        written = AvroSerializer(inside, schema)({"home": {"name": "Bonn"}}, value_of(topic))
        assert AvroDeserializer(inside)(written, value_of(topic)) == {"home": {"name": "Bonn"}}
        assert inside.get_latest_version(f"{topic}-value").subject == f":.{topic}:{topic}-value"
        # By the subject, as a strategy for its name gives it.
        strategy = {"subject.name.strategy": lambda context, _: f":.{topic}-b:{context.topic}-value"}
        ordered = AvroSerializer(plain, ORDER, conf=strategy)({"id": 7, "note": None}, value_of(topic))
        assert AvroDeserializer(plain, conf=strategy)(ordered, value_of(topic)) == {"id": 7, "note": None}
        assert int.from_bytes(ordered[1:5], "big") == 1, "ids begin anew in each context"
        assert plain.get_subjects() != inside.get_subjects() == [f":.{topic}:{topic}-city", f":.{topic}:{topic}-value"]
    http.post(f"/v1/topics/{topic}/records?partition=0", content=written)
    (record,) = http.get(f"/v1/topics/{topic}/records", params={"partition": 0, "decode": "schema"}).json()["records"]
    assert record["value"] == {"home": {"name": "Bonn"}}
    assert record["schema"]["subject"] == f":.{topic}:{topic}-value"
