"""Registering and comparing: what takes time is done in a thread, between two looks at the state."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.gateway.registry.registrar import Registrar
from headwater.schemas import decisions, refusal
from headwater.schemas.contexts import context_of
from headwater.schemas.decisions import Registration
from headwater.schemas.events import Event
from headwater.schemas.incompatibility import Incompatibility
from headwater.schemas.levels import Level
from headwater.schemas.parsed import Parsed, incompatibilities
from headwater.schemas.registry import Version
from headwater.schemas.schema import Schema


@dataclass(frozen=True, slots=True)
class SubmittedSchema:
    """A schema as a client sends it."""

    schema: Schema
    schema_id: int | None = None
    version: int | None = None


class Registering:
    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    async def register(self, subject: str, candidate: SubmittedSchema, *, normalize: bool) -> Version:
        """Raises SchemaRefused, Problem, KafkaFailure."""
        decisions.check_subject(subject)
        if candidate.schema_id is None:
            found = await self.find(subject, candidate.schema, normalize=normalize)
            if found is not None and candidate.version in (None, -1, found.version):
                return found

        async def decide() -> tuple[Version, Sequence[Event]]:
            registry = self._registrar.registry
            parsed = await self._parsed(candidate.schema, subject)
            schema = parsed.schema(normalize=self._is_normal(subject, normalize))
            if registry.find(subject, schema) is None:
                decisions.check_may_register(registry, subject, candidate.schema_id)
                earlier = decisions.earlier(registry, subject)
                reasons = await self._reasons(parsed, earlier, registry.level(subject))
                if reasons:
                    raise refusal.incompatible(subject, explained(reasons))
            decided: Registration = decisions.register(
                registry, subject, schema, candidate.schema_id, candidate.version
            )
            return decided.version, decided.events

        return await self._registrar.change(decide)

    async def find(
        self, subject: str, schema: Schema, *, normalize: bool, with_deleted: bool = False
    ) -> Version | None:
        """The version of a subject that has the schema."""
        if schema.references:
            await self._registrar.read(lambda registry: registry.resolve(schema, context_of(subject)))
        parsed = await self._parsed(schema, subject)
        schema = parsed.schema(normalize=self._is_normal(subject, normalize))
        return self._registrar.registry.find(subject, schema, with_deleted=with_deleted)

    async def compare(self, subject: str, schema: Schema, earlier: Sequence[Version]) -> list[Incompatibility]:
        parsed = await self._parsed(schema, subject)
        return await self._reasons(parsed, earlier, self._registrar.registry.level(subject))

    async def _parsed(self, schema: Schema, subject: str) -> Parsed:
        return await self._registrar.parsed(self._registrar.registry.resolve(schema, context_of(subject)))

    async def _reasons(self, new: Parsed, earlier: Sequence[Version], level: Level) -> list[Incompatibility]:
        if level is Level.NONE:
            return []
        parsed = [await self._registrar.parsed_version(version) for version in earlier]
        return await self._registrar.compute(incompatibilities, new, parsed, level)

    def _is_normal(self, subject: str, normalize: bool) -> bool:
        config = self._registrar.registry.config(subject)
        return normalize or (config is not None and config.normalize)


def explained(reasons: Sequence[Incompatibility]) -> str:
    return "[" + "; ".join(str(reason) for reason in reasons) + "]"
