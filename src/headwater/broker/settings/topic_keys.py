"""Every configuration key of a topic, in one table: Kafka's names, defaults and broker synonyms, and
`headwater.durability`.

Keys that Kafka needs for the way it stores data, and Headwater does not, are taken and shown but change nothing; their
text says so, and tools that set them keep working.
"""

from typing import Final, TypeAlias

from headwater.model.config_key import (
    MAX_INT,
    MAX_LONG,
    ConfigKey,
    ConfigType,
    InvalidValue,
    always_false,
    flag,
    integer,
    one_of,
    ratio,
    replicas,
    some_of,
)

TopicValue: TypeAlias = bool | int | float | str | frozenset[str]

LARGEST_BATCH_BYTES = 60 * 1024 * 1024
"""A batch must fit into one file of the journal, with room to spare."""

DURABILITY: Final = "headwater.durability"
SCHEMA_VALIDATION: Final = "headwater.schema.validation"
KEY_SCHEMA_VALIDATION: Final = "headwater.key.schema.validation"
ALIASES: Final = {
    "durability": DURABILITY,
    "confluent.value.schema.validation": SCHEMA_VALIDATION,
    "confluent.key.schema.validation": KEY_SCHEMA_VALIDATION,
}
"""Names that are taken on input only."""

_MIN_SEGMENT_BYTES: Final = 1_024
_MAX_REPLICAS_CHARS: Final = 128 * 1024
"""Two such lists fit into one value of the metadata store."""
_UNUSED: Final = "Accepted for Kafka's tools; "

_LONG, _INT, _BOOLEAN, _STRING = ConfigType.LONG, ConfigType.INT, ConfigType.BOOLEAN, ConfigType.STRING
_ms = integer(0, MAX_LONG)
_ms_or_forever = integer(-1, MAX_LONG)


def _gzip_level(text: str) -> int:
    level = integer(-1, 9)(text)
    if level == 0:
        raise InvalidValue("whole numbers from 1 to 9, and -1, are allowed")
    return level


_KEYS: Final[tuple[ConfigKey[TopicValue], ...]] = (
    ConfigKey(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "What happens to old segments: delete drops them by age and size, compact keeps the last record of each key. "
        "Nothing: they are kept for ever.",
        some_of("delete", "compact"),
        "log.cleanup.policy",
    ),
    ConfigKey(
        "retention.ms",
        _LONG,
        "604800000",
        "How long records are kept when the policy is delete. -1 keeps them forever.",
        _ms_or_forever,
        "log.retention.ms",
    ),
    ConfigKey(
        "retention.bytes",
        _LONG,
        "-1",
        "How large a partition may become before its oldest segments are dropped. -1 sets no limit.",
        _ms_or_forever,
        "log.retention.bytes",
    ),
    ConfigKey(
        "segment.bytes",
        _INT,
        "1073741824",
        "The size at which a segment is closed and the next one opened.",
        integer(_MIN_SEGMENT_BYTES, MAX_INT),
        "log.segment.bytes",
    ),
    ConfigKey(
        "segment.ms",
        _LONG,
        "604800000",
        "The age at which a segment is closed, even when it is small, so that retention and compaction can reach it.",
        integer(1, MAX_LONG),
        "log.roll.ms",
    ),
    ConfigKey(
        "segment.jitter.ms",
        _LONG,
        "0",
        "How much earlier, at random, a segment may be closed than its age demands.",
        _ms,
        "log.roll.jitter.ms",
    ),
    ConfigKey(
        "max.message.bytes",
        _INT,
        "1048588",
        "The largest record batch, after compression, that a producer may send.",
        integer(0, LARGEST_BATCH_BYTES),
        "message.max.bytes",
    ),
    ConfigKey(
        "min.insync.replicas",
        _INT,
        "1",
        "How many replicas must hold a record before it is acknowledged to a producer that asks for all.",
        integer(1, MAX_INT),
        "min.insync.replicas",
    ),
    ConfigKey(
        "compression.type",
        _STRING,
        "producer",
        "How batches are compressed in the log: producer keeps what was sent.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "compression.type",
    ),
    ConfigKey(
        "compression.gzip.level",
        _INT,
        "-1",
        "The level when compression.type is gzip: 1 to 9, or -1 for the codec's own choice.",
        _gzip_level,
        "compression.gzip.level",
    ),
    ConfigKey(
        "compression.lz4.level",
        _INT,
        "9",
        "The level when compression.type is lz4: 1 to 17.",
        integer(1, 17),
        "compression.lz4.level",
    ),
    ConfigKey(
        "compression.zstd.level",
        _INT,
        "3",
        "The level when compression.type is zstd: -131072 to 22.",
        integer(-131_072, 22),
        "compression.zstd.level",
    ),
    ConfigKey(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whether a record carries the time its producer gave it, or the time at which the broker appended it.",
        one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        _LONG,
        str(MAX_LONG),
        "How far a producer's timestamp may lie before the broker's clock. Not looked at with LogAppendTime.",
        _ms,
        "log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "How far a producer's timestamp may lie after the broker's clock. Not looked at with LogAppendTime.",
        _ms,
        "log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "delete.retention.ms",
        _LONG,
        "86400000",
        "How long a tombstone stays in a compacted topic, so that readers can see the deletion.",
        _ms,
        "log.cleaner.delete.retention.ms",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "The share of a compacted log that is not compacted yet, from which on compaction is worth its work.",
        ratio,
        "log.cleaner.min.cleanable.ratio",
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        _LONG,
        "0",
        "How long a record stays uncompacted at least.",
        _ms,
        "log.cleaner.min.compaction.lag.ms",
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        _LONG,
        str(MAX_LONG),
        "How long a record stays uncompacted at most, whatever the dirty ratio is.",
        integer(1, MAX_LONG),
        "log.cleaner.max.compaction.lag.ms",
    ),
    ConfigKey(
        "file.delete.delay.ms",
        _LONG,
        "60000",
        _UNUSED + "files are removed once metadata no longer names them.",
        _ms,
        "log.segment.delete.delay.ms",
    ),
    ConfigKey(
        "flush.messages",
        _LONG,
        str(MAX_LONG),
        _UNUSED + "headwater.durability decides when data is flushed.",
        integer(1, MAX_LONG),
        "log.flush.interval.messages",
    ),
    ConfigKey(
        "flush.ms",
        _LONG,
        str(MAX_LONG),
        _UNUSED + "headwater.durability decides when data is flushed.",
        _ms,
        "log.flush.interval.ms",
    ),
    ConfigKey(
        "index.interval.bytes",
        _INT,
        "4096",
        _UNUSED + "the store chooses how dense its indexes are.",
        integer(0, MAX_INT),
        "log.index.interval.bytes",
    ),
    ConfigKey(
        "segment.index.bytes",
        _INT,
        "10485760",
        _UNUSED + "an index is as large as its segment makes it.",
        integer(4, MAX_INT),
        "log.index.size.max.bytes",
    ),
    ConfigKey(
        "preallocate",
        _BOOLEAN,
        "false",
        _UNUSED + "the journal is always preallocated, segment files never are.",
        flag,
        "log.preallocate",
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        _UNUSED + "a replica that may miss acknowledged records never leads.",
        flag,
        "unclean.leader.election.enable",
    ),
    ConfigKey(
        "remote.storage.enable",
        _BOOLEAN,
        "false",
        "Whether old segments move to remote storage, which Headwater does not offer.",
        always_false,
    ),
    ConfigKey(
        "remote.log.copy.disable",
        _BOOLEAN,
        "false",
        _UNUSED + "without remote storage nothing is copied there.",
        flag,
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        "false",
        _UNUSED + "without remote storage nothing is kept there.",
        flag,
    ),
    ConfigKey(
        "local.retention.ms",
        _LONG,
        "-2",
        _UNUSED + "without remote storage all data is local.",
        integer(-2, MAX_LONG),
        "log.local.retention.ms",
    ),
    ConfigKey(
        "local.retention.bytes",
        _LONG,
        "-2",
        _UNUSED + "without remote storage all data is local.",
        integer(-2, MAX_LONG),
        "log.local.retention.bytes",
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas, as <partition>:<broker>, that a broker gives to others no faster than its "
        "leader.replication.throttled.rate; * is all of them.",
        replicas,
        max_chars=_MAX_REPLICAS_CHARS,
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas, as <partition>:<broker>, that a broker gets from others no faster than its "
        "follower.replication.throttled.rate; * is all of them.",
        replicas,
        max_chars=_MAX_REPLICAS_CHARS,
    ),
    ConfigKey(
        "errors.deadletterqueue.group.enable",
        _BOOLEAN,
        "false",
        "Whether share groups may write their dead letters here (KIP-1191).",
        flag,
    ),
    ConfigKey(
        DURABILITY,
        _STRING,
        "sync",
        "What an acknowledgement promises: sync survives a power cut, os survives the end of the process.",
        one_of("sync", "os"),
        DURABILITY,
    ),
    ConfigKey(
        "headwater.retention",
        _STRING,
        "time",
        "When records go: time, as retention.ms and retention.bytes say; consumed, also as soon as every subscription "
        "is through with them.",
        one_of("time", "consumed"),
        "headwater.retention",
    ),
    ConfigKey(
        "headwater.subscription.retention.limit.ms",
        _LONG,
        "2592000000",
        "How old a record may become that only a subscription's own retention keeps; -1 sets no limit.",
        _ms_or_forever,
        "headwater.subscription.retention.limit.ms",
    ),
    ConfigKey(
        SCHEMA_VALIDATION,
        _BOOLEAN,
        "false",
        "Whether a value must have the id of a schema that is registered for the topic: subject <topic>-value.",
        flag,
        SCHEMA_VALIDATION,
    ),
    ConfigKey(
        KEY_SCHEMA_VALIDATION,
        _BOOLEAN,
        "false",
        "Whether a key must have the id of a schema that is registered for the topic: subject <topic>-key.",
        flag,
        KEY_SCHEMA_VALIDATION,
    ),
)

TOPIC_KEYS: Final = {key.name: key for key in _KEYS}
BROKER_NAMES: Final = {key.broker_name: key.name for key in _KEYS if key.broker_name is not None}
"""From the broker's name of a default to the topic's key."""
