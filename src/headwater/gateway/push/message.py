"""What a webhook is sent: the headers and the body of one request, for one record or several. No I/O, no clock.

    plain          the value as it is; everything else in headers
    several        application/json: {"records": [...]}, as a pull gives them
    CloudEvents    1.0, HTTP binding: binary (ce-* headers), structured, or structured batches

    Headwater-Id          <topic>/<partition>/<offset>, of several the first: the same when it is sent again
    Headwater-Attempt     1 when it is sent first
    Headwater-Signature   t=<seconds>,v1=<hex of HMAC-SHA256 over "<id>.<t>." and the body, with the secret>

What is in a record may come from anybody: text in headers is percent-encoded beyond printable ASCII, so that no value
ends its header.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from headwater.gateway.push.machine import attempts_made
from headwater.gateway.subscriptions.members.deliveries import Delivery, delivered_record
from headwater.gateway.subscriptions.push_settings import PushSettings

USER_AGENT = "Headwater"
OCTETS, JSON = "application/octet-stream", "application/json"
EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
EVENT_TYPE = "headwater.record"
MAX_HEADER_CHARS = 1_024
MAX_CARRIED_CHARS = 8_192
"""Of all headers of the record that are passed on: a receiver refuses requests with too much of them."""
CARRIED = "Headwater-Header-"
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_ATTRIBUTE = re.compile(r"ce_([a-z0-9]{1,20})", re.ASCII)
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}( *;[\x20-\x7e]{1,200})?", re.ASCII)
_JSON_TYPE = re.compile(r"application/json|[a-z]+/[a-z0-9.-]+\+json", re.IGNORECASE | re.ASCII)


class PushRequest(NamedTuple):
    headers: dict[str, str]
    body: bytes


def push_request(subscription: str, deliveries: Sequence[Delivery], settings: PushSettings, now_s: int) -> PushRequest:
    first = deliveries[0]
    headers = {
        "User-Agent": USER_AGENT,
        "Headwater-Subscription": _ascii(subscription),
        "Headwater-Id": _id(first),
        "Headwater-Attempt": str(max(map(attempts_made, deliveries)) + 1),
    }
    if settings.format == "cloudevents-structured":
        if settings.is_batched:
            headers["Content-Type"] = EVENTS
            body = b"[" + b",".join(_structured(each) for each in deliveries) + b"]"
        else:
            headers["Content-Type"] = EVENT
            body = _structured(first)
    elif settings.is_batched:
        headers["Content-Type"] = JSON
        body = msgspec.json.encode({"records": [delivered_record(each, None) for each in deliveries]})
    elif settings.format == "cloudevents-binary":
        headers |= {f"ce-{name}": _ascii(value) for name, value in _attributes(first).items()}
        headers["Content-Type"] = _media_type(first) or OCTETS
        body = first.value or b""
    else:
        headers |= _plain(first)
        body = first.value or b""
    if settings.secret:
        headers["Headwater-Signature"] = signature(settings.secret, headers["Headwater-Id"], now_s, body)
    return PushRequest(headers, body)


def signature(secret: str, message_id: str, now_s: int, body: bytes) -> str:
    signed = hmac.digest(secret.encode(), f"{message_id}.{now_s}.".encode() + body, hashlib.sha256)
    return f"t={now_s},v1={signed.hex()}"


def _plain(delivery: Delivery) -> dict[str, str]:
    headers = {
        "Headwater-Topic": delivery.topic,
        "Headwater-Partition": str(delivery.partition),
        "Headwater-Offset": str(delivery.offset),
        "Headwater-Timestamp": str(delivery.timestamp_ms),
        "Content-Type": _media_type(delivery) or OCTETS,
    }
    if delivery.key is not None:
        text = _text(delivery.key)
        if text is not None and len(text) <= MAX_HEADER_CHARS:
            headers["Headwater-Key"] = _ascii(text)
        elif len(delivery.key) <= MAX_HEADER_CHARS:
            headers["Headwater-Key-Base64"] = base64.b64encode(delivery.key).decode()
    if delivery.value is None:
        headers["Headwater-Tombstone"] = "true"
    left = MAX_CARRIED_CHARS
    for name, content in delivery.headers:
        value = _text(content or b"")
        if value is None or not _TOKEN.fullmatch(name) or len(value) > MAX_HEADER_CHARS:
            continue
        left -= len(name) + len(value)
        if left >= 0:
            headers[CARRIED + name] = _ascii(value)
    return headers


def _attributes(delivery: Delivery) -> dict[str, str]:
    """Of CloudEvents. A record that is one already (headers `ce_*`, the Kafka binding) keeps what it says."""
    at = datetime.fromtimestamp(min(max(delivery.timestamp_ms, 0), 253_402_300_799_000) / 1000, UTC)
    attributes = {
        "specversion": "1.0",
        "id": f"{delivery.partition}/{delivery.offset}",
        "source": f"/v1/topics/{delivery.topic}",
        "type": EVENT_TYPE,
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    key = _text(delivery.key) if delivery.key is not None else None
    if key:
        attributes["partitionkey"] = key[:MAX_HEADER_CHARS]
    own = {
        match[1]: value[:MAX_HEADER_CHARS]
        for name, content in delivery.headers[:100]
        if (match := _ATTRIBUTE.fullmatch(name)) and (value := _text(content or b""))
    }
    own.pop("datacontenttype", None)
    return attributes | own if own.get("specversion") == "1.0" else attributes


def _structured(delivery: Delivery) -> bytes:
    event: dict[str, Any] = dict(_attributes(delivery))
    media_type = _media_type(delivery)
    if delivery.value is not None:
        text = _text(delivery.value)
        is_json = _JSON_TYPE.match(media_type) is not None if media_type else delivery.value[:1] in (b"{", b"[")
        parsed = _json(delivery.value) if is_json else None
        if parsed is not None:
            event["datacontenttype"], event["data"] = media_type or JSON, parsed
        elif text is not None:
            event["datacontenttype"], event["data"] = media_type or "text/plain", text
        else:
            event["datacontenttype"] = media_type or OCTETS
            event["data_base64"] = base64.b64encode(delivery.value).decode()
    return msgspec.json.encode(event)


def _id(delivery: Delivery) -> str:
    return f"{delivery.topic}/{delivery.partition}/{delivery.offset}"


def _media_type(delivery: Delivery) -> str:
    """What the record says that its value is; empty if it does not."""
    for name, content in delivery.headers:
        if name.lower() in ("content-type", "content_type"):
            value = _text(content or b"") or ""
            return value if _MEDIA_TYPE.fullmatch(value) else ""
    return ""


def _json(value: bytes) -> msgspec.Raw | None:
    """The bytes as they are, if they are JSON."""
    try:
        value.decode()
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return msgspec.Raw(value)


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _ascii(text: str) -> str:
    return quote(text, safe=_SAFE)
