"""Values in the registry's wire format as JSON, for the console and for reads of records."""

from collections import OrderedDict
from typing import Any

from headwater.gateway.http.kafka_problems import FAILURES
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.registry.registrar import Registrar
from headwater.schemas.contexts import parse
from headwater.schemas.decoding import Decode, Undecodable, decoder, for_json
from headwater.schemas.refusal import SchemaRefused
from headwater.schemas.schema import Schema
from headwater.schemas.wire_format import NotFramed, schema_id

MAX_DECODERS = 256


class RegistryDecoder:
    def __init__(self, registrar: Registrar, threads: CallThreads) -> None:
        self._registrar = registrar
        self._threads = threads
        self._decoders: OrderedDict[tuple[str, int], tuple[Schema, Decode]] = OrderedDict()
        """By context and id."""

    async def decode(self, topic: str, value: bytes) -> tuple[Any, dict[str, Any]] | None:
        """The value as JSON and what is known of its schema; None if it is not in the wire format, or does not hold to
        its schema."""
        try:
            found = schema_id(value)
            context = await self._registrar.read(lambda registry: registry.context_with(found, f"{topic}-value"))
            schema, decode = await self._decoder(found, context)
            shown = for_json(decode(value))
        except (NotFramed, SchemaRefused, Undecodable, *FAILURES):
            return None
        description: dict[str, Any] = {"id": found, "type": schema.type.value}
        users = self._registrar.registry.users(found, context, with_deleted=True)
        for user in users:
            if parse(user.subject).name in (f"{topic}-value", f"{topic}-key") or len(users) == 1:
                description |= {"subject": user.subject, "version": user.version}
        return shown, description

    async def _decoder(self, found: int, context: str) -> tuple[Schema, Decode]:
        schema, key = self._registrar.registry.user(found, context).schema, (context, found)
        known = self._decoders.get(key)
        if known is None or known[0] != schema:
            resolved = self._registrar.registry.resolve(schema, context)
            parsed = await self._registrar.parsed(resolved)
            known = self._decoders[key] = (schema, await self._threads.run(decoder, parsed, resolved))
            if len(self._decoders) > MAX_DECODERS:
                self._decoders.popitem(last=False)
        self._decoders.move_to_end(key)
        return known
