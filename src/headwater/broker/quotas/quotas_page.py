"""What clients use of their quotas at this node, as JSON beside the metrics: the Kafka protocol has no place for it.

    GET /quotas

    {"usage": [{"quota": "producer_byte_rate", "user": …, "client_id": …, "ip": …, "limit": …, "rate": …,
                "waits_ms": …, "violations": …, "throttled_ms": …}]}

A name is null where whatever has it is counted together. `rate` is per second, or a percentage, over the last ten
seconds; `waits_ms` is how long clients are throttled from now on. Of each quota a bounded number is shown, those that
were used last.
"""

import json

from headwater.broker.quotas.client_meters import ClientMeters


def quotas_page(meters: ClientMeters) -> bytes:
    now_ms = meters.now_ms()
    usage = [
        {
            "quota": each.key.value,
            "user": each.metered.user,
            "client_id": each.metered.client_id,
            "ip": each.metered.ip,
            "limit": each.limit,
            "rate": each.meter.per_second(now_ms),
            "waits_ms": each.meter.waits_ms(now_ms),
            "violations": each.meter.violations,
            "throttled_ms": each.meter.throttled_ms,
        }
        for each in meters.usages()
    ]
    return json.dumps({"usage": usage}).encode()
