"""A record as text: a format string for people's eyes and scripts, or one JSON object a line.

    %k key  %v value  %t topic  %p partition  %o offset  %T timestamp in ms  %h headers  %% percent  \\n \\t \\\\
"""

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headwater.cli.output import CommandFailed

if TYPE_CHECKING:
    from confluent_kafka import Message

Render: TypeAlias = "Callable[[Message], bytes]"

DEFAULT_FORMAT = "%v"
ESCAPES = {r"\n": b"\n", r"\t": b"\t", "\\\\": b"\\", "%%": b"%"}
FIELDS: "dict[str, Render]" = {
    "%k": lambda message: message.key() or b"",
    "%v": lambda message: message.value() or b"",
    "%t": lambda message: (message.topic() or "").encode(),
    "%p": lambda message: b"%d" % message.partition(),
    "%o": lambda message: b"%d" % message.offset(),
    "%T": lambda message: b"%d" % message.timestamp()[1],
    "%h": lambda message: b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers() or ()),
}


def compile_format(text: str) -> Render:
    """A function that renders a record, with a line end. Raises CommandFailed for an unknown field."""
    parts: list[bytes | Render] = []
    for token in re.findall(r"%.?|\\.?|[^%\\]+", text, re.DOTALL):
        if token in FIELDS:
            parts.append(FIELDS[token])
        elif token in ESCAPES:
            parts.append(ESCAPES[token])
        elif token.startswith("%"):
            raise CommandFailed(
                f"--format has no field {token!r}.", f"It knows {', '.join(FIELDS)} and %%.", exit_code=2
            )
        else:
            parts.append(token.encode())
    if parts == [FIELDS["%v"]]:
        return lambda message: (message.value() or b"") + b"\n"
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts) + b"\n"


def as_json(message: "Message") -> bytes:
    """Bytes that are not UTF-8 stand under `key_base64` and `value_base64`, so that nothing is lost."""
    fields: dict[str, object] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        **_text("key", message.key()),
        **_text("value", message.value()),
    }
    if headers := message.headers():
        fields["headers"] = [{"name": name, **_text("value", value)} for name, value in headers]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
