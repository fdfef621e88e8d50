"""What a metadata URL says, without opening anything: which hosts it reaches without encryption, and how it may be
shown."""

from typing import Final

_PLAIN: Final = frozenset({"etcd", "zookeeper"})


def unencrypted_hosts(url: str) -> tuple[str, ...]:
    """Names and addresses, without ports. Empty for a file, and with TLS. Whether the URL is well formed is not judged
    here."""
    scheme, _, rest = url.partition("://")
    if scheme not in _PLAIN:
        return ()
    hosts = rest.partition("/")[0].rpartition("@")[2].split(",")
    return tuple(_host(each) for each in hosts if each)


def without_login(url: str) -> str:
    """For messages: a login becomes three dots."""
    scheme, slashes, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}{slashes}{'...' if login else ''}{at}{place}" if slashes else url


def _host(text: str) -> str:
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
