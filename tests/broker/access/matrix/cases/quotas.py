"""Requests for the limits of users, client ids and addresses."""

from headwater.wire.api_keys import ApiKey
from tests.broker.access.matrix.case import Case, Fields
from tests.broker.access.matrix.scene import Scene
from tests.support.messages import nested

ANY_NAME = 2


async def described(scene: Scene, version: int) -> Fields:
    """Of all users; one has a limit."""
    await scene.world.admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, **await altered(scene, 1))
    component = nested(entity_type="user", match_type=ANY_NAME, match=None)
    return {"components": [component], "strict": False}


async def altered(scene: Scene, version: int) -> Fields:
    entity = nested(entity_type="user", entity_name=f"{scene.prefix}-user-0")
    limit = nested(key="producer_byte_rate", value=1_000_000.0, remove=False)
    return {"entries": [nested(entity=[entity], ops=[limit])], "validate_only": False}


CASES = (
    Case(api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, title="", build=described),
    Case(api_key=ApiKey.ALTER_CLIENT_QUOTAS, title="", build=altered, spoils=True),
)
