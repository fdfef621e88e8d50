"""A file with a token, as Kubernetes and agents of identity providers lay it down, and replace it before it expires."""

from dataclasses import dataclass
from pathlib import Path

from headwater.security.login_errors import LoginFailed
from headwater.security.oauthbearer import MAX_TOKEN_CHARS


class UnusableTokenFile(LoginFailed):
    """The file cannot be read, or has no token. The message has nothing of what is in it."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    path: str

    def __call__(self) -> str:
        """The token that is there now. Raises UnusableTokenFile."""
        try:
            with Path(self.path).open("rb") as file:
                content = file.read(2 * MAX_TOKEN_CHARS)
        except OSError as error:
            raise UnusableTokenFile(f"The token in {self.path} cannot be read: {error.strerror}.") from error
        token = content.strip()
        if not token or len(token) > MAX_TOKEN_CHARS or not token.isascii():
            raise UnusableTokenFile(f"{self.path} is not a file with a token of at most {MAX_TOKEN_CHARS} characters.")
        return token.decode()
