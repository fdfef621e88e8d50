"""What a validated topic asks of its records: a schema id that the registry knows, of the topic's own subject.

Subjects are named after the topic: `orders-value` for the values of `orders`, `orders-key` for its keys. A null is
taken without an id: it says that something is gone.
"""

from headwater.broker.log.batch_rules import MAX_RECORD_ERRORS, InvalidRecords
from headwater.broker.settings.topic_config import TopicConfig
from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import BatchHeader, CorruptBatch
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import layouts, payload
from headwater.schemas.registry import Registry
from headwater.schemas.wire_format import PREFIX_BYTES, NotFramed, schema_id

_KEY, _VALUE = 5, 7
"""Where a record's layout says the key and the value begin; the end follows."""


def check_schemas(
    batch: memoryview | bytearray, header: BatchHeader, topic: str, config: TopicConfig, registry: Registry
) -> None:
    """Raises InvalidRecords with the index and the reason of each, RequestError for a batch that cannot be read."""
    checks = []
    if config.key_schema_validation:
        checks.append((_KEY, "key", f"{topic}-key"))
    if config.schema_validation:
        checks.append((_VALUE, "value", f"{topic}-value"))
    try:
        data = payload(batch, header)
        faults: list[tuple[int, str]] = []
        reasons: dict[tuple[int, bytes], str | None] = {}
        for index, layout in enumerate(layouts(data, header)):
            for part, word, subject in checks:
                start, end = layout[part], layout[part + 1]
                if start < 0:
                    continue
                prefix = (part, data[start : min(end, start + PREFIX_BYTES)])
                if prefix not in reasons:
                    if len(reasons) >= MAX_RECORD_ERRORS:
                        reasons.clear()
                    reasons[prefix] = _fault(prefix[1], word, subject, registry)
                reason = reasons[prefix]
                if reason is not None:
                    faults.append((index, reason))
                    break
            if len(faults) >= MAX_RECORD_ERRORS:
                break
    except CorruptBatch as error:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, f"{error}.") from error
    except DecompressedTooLarge as error:
        raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, f"{error}.") from error
    if faults:
        index, reason = faults[0]
        raise InvalidRecords(faults, f"One or more records have been rejected: record {index}: {reason}")


def _fault(prefix: bytes, word: str, subject: str, registry: Registry) -> str | None:
    try:
        found = schema_id(prefix)
    except NotFramed as error:
        return f"The {word} has no schema: {error}."
    if registry.has(found, subject):
        return None
    if registry.knows(found):
        return f"Schema {found} of the {word} is not of subject {subject}."
    return f"Schema {found} of the {word} is unknown."
