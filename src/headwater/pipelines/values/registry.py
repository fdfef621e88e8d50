"""Schemas from the registry over HTTP: on the driver when a query is planned, in Python workers when it runs.

What has an id never changes, so workers remember it; a few thousand are more than any topic has.
"""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from headwater.pipelines.errors import InvalidOption
from headwater.schemas.contexts import ANY, DEFAULT, parse
from headwater.schemas.schema import Reference, Resolved, Schema, SchemaType

TIMEOUT_S = 10.0
TRIES = 3
RETRY_S = 0.5
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_REFERENCES = 200
MAX_REMEMBERED = 4_096
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class RegistryUnavailable(Exception):
    """The registry did not answer: the query fails, and may be started again."""


class UnknownSchema(Exception):
    """The registry does not have it."""


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    url: str
    token: str | None = None

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise InvalidOption(f'The registry is at a URL such as "http://127.0.0.1:8080", not {self.url[:200]!r}.')


@lru_cache(MAX_REMEMBERED)
def by_id(address: RegistryAddress, schema_id: int) -> Resolved:
    """Raises UnknownSchema, RegistryUnavailable."""
    return _resolved(address, _ask(address, f"/schemas/ids/{schema_id}"))


def latest(address: RegistryAddress, subject: str) -> Resolved:
    """Raises UnknownSchema, RegistryUnavailable."""
    return _resolved(address, _ask(address, f"/subjects/{quote(subject, safe='')}/versions/latest"))


def in_context(address: RegistryAddress, subject: str) -> tuple[RegistryAddress, str]:
    """Where ids mean what they mean in the context of a subject, and the subject as it is called there."""
    meant = parse(subject)
    if meant.context in (DEFAULT, ANY):
        return address, subject
    root = address.url.partition("/contexts/")[0].rstrip("/")
    return replace(address, url=f"{root}/contexts/{quote(meant.context, safe='')}"), meant.name


def _resolved(address: RegistryAddress, answer: dict[str, Any]) -> Resolved:
    schema = _schema(answer)
    named: dict[str, str] = {}
    _collect(address, schema.references, named, 0)
    return Resolved(schema, named)


def _collect(address: RegistryAddress, references: tuple[Reference, ...], named: dict[str, str], depth: int) -> None:
    for each in references:
        if each.name in named:
            continue
        if len(named) + depth >= MAX_REFERENCES:
            raise UnknownSchema(f"it refers to more than {MAX_REFERENCES} others")
        path = f"/subjects/{quote(each.subject, safe='')}/versions/{each.version}?deleted=true"
        found = _schema(_ask(address, path))
        _collect(address, found.references, named, depth + 1)
        named[each.name] = found.text


def _schema(answer: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in answer.get("references") or ()
    )
    return Schema(SchemaType(answer.get("schemaType") or "AVRO"), str(answer["schema"]), references)


def _ask(address: RegistryAddress, path: str) -> dict[str, Any]:
    request = urllib.request.Request(address.url.rstrip("/") + path)
    if address.token is not None:
        request.add_header("Authorization", f"Bearer {address.token}")
    # Proxies that the environment names are not for a server on this machine.
    is_local = urlsplit(address.url).hostname in _LOOPBACK
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_local else []))
    problem = ""
    for attempt in range(TRIES):
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                body = answer.read(MAX_ANSWER_BYTES + 1)
            if len(body) > MAX_ANSWER_BYTES:
                raise RegistryUnavailable(f"{address.url} answers with more than {MAX_ANSWER_BYTES} bytes.")
            found = json.loads(body)
            if not isinstance(found, dict):
                raise RegistryUnavailable(f"{address.url}{path} is no schema registry.")
            return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise UnknownSchema(_message(error)) from None
            problem = f"{error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                break
        except (OSError, ValueError) as error:
            problem = str(error)
        time.sleep(RETRY_S * attempt)
    raise RegistryUnavailable(f"The schema registry {address.url} does not answer: {problem}.")


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return "the registry does not have it"
