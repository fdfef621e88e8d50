"""What a client must be allowed to do, beside altering settings, to have the cluster act for a group.

A subscription keeps the records of its topic and has a gateway send them to a webhook; dead letters are written by the
broker. All of this is done with rights that the client need not have. So what a setting asks for is allowed to those
who may do it themselves: to read the topic with the group, to write to the topic of the dead letters. Ending it needs
no more than to alter the settings. The default topic for dead letters is the group's own.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.settings.group_configs import DEAD_LETTER_TOPIC, CheckAlteration, GroupConfigs
from headwater.broker.settings.push_keys import PUSH_KEYS
from headwater.broker.settings.subscription_keys import SUBSCRIPTION_KEYS
from headwater.broker.settings.subscription_keys import TOPIC as SUBSCRIBED_TOPIC
from headwater.security.access_codes import Operation, ResourceType

_FOR_READERS: Final = frozenset((*SUBSCRIPTION_KEYS, *PUSH_KEYS))


def check_of_group(access: ClientAccess, configs: GroupConfigs, group_id: str) -> CheckAlteration | None:
    """None where clients are not restricted."""
    if not access.is_restricted:
        return None
    return partial(_check, access, group_id, configs.own_dead_letter_topic(group_id))


def _check(
    access: ClientAccess, group_id: str, own_letters: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Raises RequestError."""
    altered = {name: value for name, value in after.items() if value != before.get(name)}
    if any(altered.get(name) for name in _FOR_READERS):
        access.require(Operation.READ, ResourceType.GROUP, group_id)
        if topic := after.get(SUBSCRIBED_TOPIC):
            access.require(Operation.READ, ResourceType.TOPIC, topic)
    letters = altered.get(DEAD_LETTER_TOPIC)
    if letters and letters != own_letters:
        access.require(Operation.WRITE, ResourceType.TOPIC, letters)
