"""Why a client of ours could not log in. The messages are for its user."""


class LoginFailed(Exception):
    """A login that did not come to its end."""


class LoginRefused(LoginFailed):
    """The server says no."""


class MechanismNotOffered(LoginFailed):
    """The server does not offer the mechanism that is configured; no other is tried."""


class UntrustedServer(LoginFailed):
    """The server broke the protocol, asks for too much or too little, or cannot prove that it knows the password."""
