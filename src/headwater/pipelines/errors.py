"""What can go wrong between Spark and a topic, in words for the person who wrote the query.

Spark shows the message at the end of a Python traceback. Each message therefore stands alone: what happened, and what
to do about it.
"""


class SourceError(Exception):
    """A query cannot go on."""


class InvalidOption(SourceError):
    """An option of the query is unknown, missing, or has a value that it cannot have."""


class InvalidColumns(SourceError):
    """The schema asks for columns that a topic does not have."""


class BrokerUnreachable(SourceError):
    """No broker answers, or what answers does not speak the Kafka protocol."""


class RequestRefused(SourceError):
    """A broker answered with an error that trying again does not cure."""


class RetriableError(RequestRefused):
    """A broker answered with an error that passes."""


class UnknownTopic(SourceError):
    """A topic or partition that the query names does not exist."""


class DataLost(SourceError):
    """Records that the query should have read are no longer there."""


class UnreadableRecords(SourceError):
    """A batch that a broker sent is damaged, or unpacks to more than the limit."""
