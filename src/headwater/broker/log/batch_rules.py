"""What a topic asks of a batch before it is appended: size, checksum, codec, timestamps, keys."""

from headwater.broker.settings.topic_config import TopicConfig
from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import (
    BatchHeader,
    Codec,
    CorruptBatch,
    InvalidBatch,
    OldMessageFormat,
    UnknownCodec,
    parse_header,
    validate,
)
from headwater.records.build import assemble
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import keyless_records, payload

MAX_RECORD_ERRORS = 1_000
FIRST_ZSTD_PRODUCE_VERSION = 7
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class InvalidRecords(RequestError):
    """Some records of the batch are at fault (KIP-467): which, and why."""

    def __init__(self, records: list[tuple[int, str]], message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.records = records


def admit(
    batch: memoryview, config: TopicConfig, now_ms: int, produce_version: int
) -> tuple[memoryview | bytearray, BatchHeader]:
    """The batch as it will be stored, and its header. Raises RequestError with Kafka's code."""
    if len(batch) > config.max_message_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {len(batch)} bytes; this topic takes {config.max_message_bytes} (max.message.bytes).",
        )
    header = _validated(batch)
    if header.compression == Codec.ZSTD and produce_version < FIRST_ZSTD_PRODUCE_VERSION:
        raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later.")
    if not config.uses_log_append_time:
        _check_timestamps(header, config, now_ms)
    if config.is_compacted:
        _check_keys(batch, header)
    wanted = _CODECS.get(config.compression_type)
    if wanted is None or wanted == header.compression:
        return batch, header
    return _recompressed(batch, header, wanted, config)


def _validated(batch: memoryview) -> BatchHeader:
    try:
        return validate(batch)
    except OldMessageFormat as error:
        raise RequestError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{error}.") from error
    except CorruptBatch as error:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, f"{error}.") from error
    except UnknownCodec as error:
        raise RequestError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{error}.") from error
    except InvalidBatch as error:
        raise RequestError(ErrorCode.INVALID_RECORD, f"{error}.") from error


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    if header.uses_log_append_time:
        raise RequestError(ErrorCode.INVALID_TIMESTAMP, "Only the broker stamps the time of the append.")
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {header.max_timestamp} is too far in the future (message.timestamp.after.max.ms).",
        )
    is_dated = header.base_timestamp >= 0
    if is_dated and now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {header.base_timestamp} is too old (message.timestamp.before.max.ms).",
        )


def _check_keys(batch: memoryview, header: BatchHeader) -> None:
    try:
        keyless = keyless_records(batch, header)
    except CorruptBatch as error:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, f"{error}.") from error
    except DecompressedTooLarge as error:
        raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, f"{error}.") from error
    if keyless:
        reason = "Compacted topic cannot accept message without key."
        shown = [(index, reason) for index in keyless[:MAX_RECORD_ERRORS]]
        raise InvalidRecords(shown, "One or more records have been rejected: a compacted topic needs keys.")


def _recompressed(
    batch: memoryview, header: BatchHeader, codec: Codec, config: TopicConfig
) -> tuple[bytearray, BatchHeader]:
    try:
        records = payload(batch, header)
    except CorruptBatch as error:
        raise RequestError(ErrorCode.CORRUPT_MESSAGE, f"{error}.") from error
    except DecompressedTooLarge as error:
        raise RequestError(ErrorCode.MESSAGE_TOO_LARGE, f"{error}.") from error
    attributes = header.attributes - header.compression + codec
    rebuilt = assemble(records, header._replace(attributes=attributes), config.compression_level)
    if len(rebuilt) > config.max_message_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {len(rebuilt)} bytes as {codec.name.lower()}; this topic takes {config.max_message_bytes}.",
        )
    return rebuilt, parse_header(rebuilt)
