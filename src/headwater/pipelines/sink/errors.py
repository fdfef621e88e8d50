"""What can go wrong when rows become records, in words for the person who wrote the query."""

from headwater.pipelines.errors import SourceError


class InvalidRow(SourceError):
    """A row says something that no record can say."""


class RecordTooLarge(SourceError):
    """A record is larger than its topic takes."""


class BatchTooLarge(SourceError):
    """A task has more than can wait for a transaction."""


class ProducerFenced(SourceError):
    """Another producer began a transaction under the same transactional id, or this one took too long."""


class Superseded(SourceError):
    """A newer run of the query, or another query, writes under the same transactional id by now."""
