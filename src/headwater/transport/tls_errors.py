"""What can be wrong with the TLS of a listener."""


class UnusableCertificate(Exception):
    """Files of a listener do not fit together, or cannot be read. The message says which, and what to do."""
