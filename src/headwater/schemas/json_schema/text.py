"""JSON from people who may be hostile: no deeper than allowed, no numbers that JSON does not have, one way to write."""

import json
from typing import Any

from headwater.schemas.limits import MAX_JSON_DEPTH
from headwater.schemas.schema import InvalidSchema


def read_json(text: str) -> Any:
    """Raises InvalidSchema."""
    try:
        found = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise InvalidSchema(f"It is nested deeper than {MAX_JSON_DEPTH} levels.") from None
    except ValueError as error:
        raise InvalidSchema(f"It is no JSON: {error}.") from None
    check_depth(found)
    return found


def check_depth(value: object, most: int = MAX_JSON_DEPTH) -> None:
    """Everything that walks over the value afterwards may recurse."""
    level: list[object] = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise InvalidSchema(f"It is nested deeper than {most} levels.")


def write_json(value: object, *, sort_keys: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
