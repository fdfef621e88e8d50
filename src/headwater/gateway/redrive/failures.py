"""Why a redrive ends before its end. What Kafka clients raise passes through as it is."""


class RedriveFailed(Exception):
    """What happened, in a sentence; who asked knows what can be done about it."""


class BadFilter(RedriveFailed):
    """The expression is none."""


class BadTarget(RedriveFailed):
    """A topic that does not exist, or that the letters are in."""


class OriginUnknown(RedriveFailed):
    """A letter does not say where it came from, and no other topic was named."""


class ClusterSilent(RedriveFailed):
    """The cluster gave or took nothing for too long."""
