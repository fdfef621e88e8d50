"""JSON Schemas and where their references lead: inside the same document, or to one that was registered.

Nothing is ever fetched. A `$ref` that leads nowhere makes the schema invalid.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

from headwater.schemas.json_schema.text import read_json
from headwater.schemas.limits import MAX_TYPES
from headwater.schemas.schema import InvalidSchema

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaLocation(NamedTuple):
    """A schema, and the document whose references it uses."""

    schema: Any
    document: "Document"


class Document:
    def __init__(self, root: Any, documents: "dict[str, Document]") -> None:
        self.root = root
        self._documents = documents
        """By the names under which others refer to them."""
        self.base = _id(root)
        self._anchors: dict[str, Any] = {}
        self._ids: dict[str, Any] = {}
        for inner in walk(root):
            for key in ("$anchor", "$dynamicAnchor"):
                if isinstance(inner.get(key), str):
                    self._anchors[inner[key]] = inner
            own = _id(inner)
            if own.startswith("#"):
                self._anchors[own[1:]] = inner
            elif own and inner is not root:
                self._ids[urljoin(self.base, own)] = self._ids[own] = inner

    def find(self, reference: str) -> SchemaLocation | None:
        url, _, fragment = reference.partition("#")
        location = self._document(url)
        if location is None:
            return None
        schema, document = location
        if not fragment:
            return location
        if not fragment.startswith("/"):
            found = document._anchors.get(fragment)
            return SchemaLocation(found, document) if found is not None else None
        for part in fragment[1:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(schema, list) and key.isascii() and key.isdigit() and int(key) < len(schema):
                schema = schema[int(key)]
            elif isinstance(schema, dict) and key in schema:
                schema = schema[key]
            else:
                return None
        return SchemaLocation(schema, document) if isinstance(schema, dict | bool) else None

    def _document(self, url: str) -> SchemaLocation | None:
        if not url or url == self.base:
            return SchemaLocation(self.root, self)
        for name in (url, urljoin(self.base, url)):
            if name in self._ids:
                return SchemaLocation(self._ids[name], self)
            if name in self._documents:
                found = self._documents[name]
                return SchemaLocation(found.root, found)
        return None


def read_documents(text: str, named: Mapping[str, str]) -> Document:
    """The schema, with the schemas that it refers to. Raises InvalidSchema."""
    documents: dict[str, Document] = {}
    for name, referred in named.items():
        document = Document(_root(referred), documents)
        documents[name] = document
        if document.base:
            documents.setdefault(document.base, document)
    document = Document(_root(text), documents)
    for inner in walk(document.root):
        for key in REFERENCES:
            reference = inner.get(key)
            if isinstance(reference, str) and document.find(reference) is None and key != "$dynamicRef":
                raise InvalidSchema(f"{key} {reference[:200]!r} leads nowhere: is a reference missing?")
    return document


def walk(root: Any) -> Iterator[dict[str, Any]]:
    """Every object inside, and the root."""
    waiting, seen = [root], 0
    while waiting:
        each = waiting.pop()
        seen += 1
        if seen > 10 * MAX_TYPES:
            raise InvalidSchema(f"It has more than {10 * MAX_TYPES} parts.")
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _root(text: str) -> Any:
    root = read_json(text)
    if not isinstance(root, dict | bool):
        raise InvalidSchema("A JSON Schema is an object, true or false.")
    return root


def _id(schema: Any) -> str:
    found = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return found if isinstance(found, str) else ""
