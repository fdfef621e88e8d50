"""JSON Schemas of drafts 4 to 2020-12: read, checked against the draft's own rules, written in one way."""

from collections.abc import Mapping
from typing import Final

from headwater.schemas.json_schema.documents import Document, read_documents
from headwater.schemas.json_schema.text import write_json
from headwater.schemas.schema import InvalidSchema

DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
DRAFTS: Final = frozenset(
    {
        "http://json-schema.org/draft-04/schema",
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)


def read_json_schema(text: str, named: Mapping[str, str]) -> Document:
    """Raises InvalidSchema."""
    document = read_documents(text, named)
    check(document)
    return document


def check(document: Document) -> None:
    """What the draft says of schemas; draft 7 where none is named, or one that is not known: it is never fetched."""
    import jsonschema_rs

    if not isinstance(document.root, dict):
        return
    declared = document.root.get("$schema", DRAFT_7)
    if not isinstance(declared, str):
        raise InvalidSchema("$schema is no text.")
    url = declared.strip().rstrip("#").replace("https://json-schema.org/draft-", "http://json-schema.org/draft-")
    try:
        jsonschema_rs.meta.validate({**document.root, "$schema": url if url in DRAFTS else DRAFT_7})
    except jsonschema_rs.ValidationError as error:
        path = "/" + "/".join(str(part) for part in error.instance_path)
        raise InvalidSchema(f"{path}: {error.message[:500]}.") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchema(f"{str(error)[:500]}.") from None


def canonical(document: Document) -> str:
    return write_json(document.root)


def normal(document: Document) -> str:
    return write_json(document.root, sort_keys=True)
