"""A client of the schema registry that shows what was answered, and schemas to register."""

import json
from typing import Any
from urllib.parse import quote

import httpx
from confluent_kafka.serialization import MessageField, SerializationContext

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def record(*fields: dict[str, Any], name: str = "User") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "long"}
EMAIL = {"name": "email", "type": "string", "default": ""}
AGE = {"name": "age", "type": "int"}
V1, V2, INCOMPATIBLE = record(ID), record(ID, EMAIL), record(ID, AGE)


class RegistryClient:
    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        headers = {"Content-Type": MEDIA_TYPE} if body is not None else {}
        content = None if body is None else json.dumps(body)
        answer = self.http.request(method, path, content=content, headers=headers, params=query or None)
        assert answer.headers["content-type"] == MEDIA_TYPE, answer.text
        return answer.status_code, answer.json()

    def register(self, subject: str, schema: str, **more: Any) -> tuple[int, Any]:
        return self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, **more})

    def registered(self, subject: str, schema: str, **more: Any) -> int:
        status, told = self.register(subject, schema, **more)
        assert status == 200, told
        return int(told["id"])


def code(answer: tuple[int, Any]) -> int:
    status, told = answer
    assert str(told["error_code"]).startswith(str(status)) and told["message"]
    return int(told["error_code"])


ORDER = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}"""


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)
