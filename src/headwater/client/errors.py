"""What a request to a broker can fail with. HTTP, the command line and Spark have words of their own for it, and
translate at their edges."""

from headwater.model.errors import ErrorCode, error_name


class ClientError(Exception):
    """A request that did not succeed."""


class ConnectionLost(ClientError):
    """The connection broke or was not made, or what came over it is no response. The next try opens a new one."""


class NotLoggedIn(ClientError):
    """The broker refuses the login, does not offer its mechanism, or cannot prove that it knows the password. Another
    try would end as this one."""


class NotServed(ClientError):
    """The broker does not serve an API, or in no version that is spoken here."""


class NoSuchPartition(ClientError):
    """Metadata has no such topic, or the topic no such partition."""


class UnusableTlsFiles(ClientError, OSError):
    """The files of TLS cannot be read, or are no PEM."""


class BrokerRefused(ClientError):
    """A broker responded with an error code. `subject` says what it is about, `reason` is the broker's own text."""

    def __init__(self, code: int, reason: str | None, subject: str) -> None:
        self.code = code
        self.reason = reason
        self.subject = subject
        name = error_name(code)
        super().__init__(f"{subject}: {(reason or name).rstrip('.')} ({name})")

    @property
    def is_retriable(self) -> bool:
        return ErrorCode.is_retriable_number(self.code)


class CoordinatorUnknown(BrokerRefused):
    """The cluster does not say which broker coordinates a group or a transactional id, perhaps not yet."""


def check(code: int, reason: str | None, subject: str) -> None:
    """Raises BrokerRefused unless the code is 0."""
    if code:
        raise BrokerRefused(code, reason, subject)
