"""The addresses that bindings and connections name, in one spelling, so that comparing texts compares addresses.

`::1` and `0:0:0:0:0:0:0:1` are one host, and so are `::ffff:10.0.0.7` and `10.0.0.7`. A zone (`fe80::1%eth0`) is a part
of the address. A text that is no address stays as it is, and equals the address of no connection: there are no names of
hosts and no networks here, as in Kafka.
"""

import ipaddress
from typing import NewType

Host = NewType("Host", str)
"""In the one spelling. A connection makes it once, not for each check."""


def host_of(text: str) -> Host:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return Host(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return Host(str(address.ipv4_mapped))
    return Host(str(address))


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
