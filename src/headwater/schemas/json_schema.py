"""JSON Schemas of drafts 4 to 2020-12: read, checked against the draft's own rules, written in one way."""

from collections.abc import Mapping

from headwater.schemas.json_documents import Document, read_documents
from headwater.schemas.json_text import write_json
from headwater.schemas.schema import InvalidSchema


def read_json_schema(text: str, named: Mapping[str, str]) -> Document:
    """Raises InvalidSchema."""
    document = read_documents(text, named)
    check(document)
    return document


def check(document: Document) -> None:
    """What the draft says of schemas; draft 7 where none is named."""
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    declared = document.root.get("$schema") if isinstance(document.root, dict) else None
    if declared is not None and not isinstance(declared, str):
        raise InvalidSchema("$schema is no text.")
    chosen = validator_for(document.root, default=Draft7Validator)
    try:
        chosen.check_schema(document.root)
    except SchemaError as error:
        path = "/" + "/".join(str(part) for part in error.absolute_path)
        raise InvalidSchema(f"{path}: {error.message[:500]}.") from None
    except RecursionError:
        raise InvalidSchema("It is nested too deeply.") from None


def canonical(document: Document) -> str:
    return write_json(document.root)


def normal(document: Document) -> str:
    return write_json(document.root, sort_keys=True)
