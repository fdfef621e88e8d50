"""Why members left their groups, as JSON beside the metrics: the Kafka protocol has no place for it.

    GET /groups               every group that lost a member since the start
    GET /groups?group=NAME    one group

    {"groups": [{"group": …, "departures": [{"at_ms": …, "member": …, "instance": …, "client": …, "host": …,
                                             "reason": …, "explanation": …}]}], "left_out": 0, "is_known": true}

Departures are the oldest first. A group remembers its last ones only; a page has at most MAX_SHOWN of all groups, and
says how many it left out. `is_known` is false if this broker does not coordinate the group that was asked for: then
another broker knows.
"""

import json
from collections.abc import Iterable
from typing import Any

from headwater.groups.departures import MemberDeparture

MAX_SHOWN = 5_000


def health_page(departures: Iterable[MemberDeparture], only: str | None, *, is_known: bool = True) -> bytes:
    groups: dict[str, list[dict[str, Any]]] = {}
    shown = left_out = 0
    for each in departures:
        if only is not None and each.group_id != only:
            continue
        if shown == MAX_SHOWN:
            left_out += 1
            continue
        shown += 1
        groups.setdefault(each.group_id, []).append(
            {
                "at_ms": each.at_ms,
                "member": each.member_id,
                "instance": each.instance_id,
                "client": each.client_id,
                "host": each.client_host,
                "reason": each.reason.value,
                "explanation": each.explanation,
            }
        )
    listed = [{"group": group_id, "departures": found} for group_id, found in groups.items()]
    return json.dumps({"groups": listed, "left_out": left_out, "is_known": is_known}).encode()
