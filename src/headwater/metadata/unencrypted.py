"""Which hosts a metadata URL reaches without encryption."""

from typing import Final

_PLAIN: Final = frozenset({"etcd", "zookeeper"})


def unencrypted_hosts(url: str) -> tuple[str, ...]:
    """Names and addresses, without ports. Empty for a file, and with TLS. What a malformed URL names is not judged
    here."""
    scheme, _, rest = url.partition("://")
    if scheme not in _PLAIN:
        return ()
    hosts = rest.partition("/")[0].rpartition("@")[2].split(",")
    return tuple(_host(each) for each in hosts if each)


def _host(text: str) -> str:
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
