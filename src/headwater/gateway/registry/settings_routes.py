"""How far schemas may change, and whether anything may: for all subjects, and for each."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.bodies import Budget
from headwater.gateway.registry import bodies as forms
from headwater.gateway.registry.bodies import answer
from headwater.gateway.registry.paths import Handler
from headwater.gateway.registry.registrar import Registrar
from headwater.schemas import decisions, refusal
from headwater.schemas.events import Config, Event
from headwater.schemas.levels import Mode
from headwater.schemas.registry import Registry


class SettingsRoutes:
    def __init__(self, registrar: Registrar, budget: Budget) -> None:
        self._registrar = registrar
        self._budget = budget

    def handlers(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "/config"): self.config,
            ("PUT", "/config"): self.set_config,
            ("DELETE", "/config"): self.delete_config,
            ("GET", "/config/{subject}"): self.config,
            ("PUT", "/config/{subject}"): self.set_config,
            ("DELETE", "/config/{subject}"): self.delete_config,
            ("GET", "/mode"): self.mode,
            ("PUT", "/mode"): self.set_mode,
            ("GET", "/mode/{subject}"): self.mode,
            ("PUT", "/mode/{subject}"): self.set_mode,
            ("DELETE", "/mode/{subject}"): self.delete_mode,
        }

    async def config(self, request: Request, values: Mapping[str, str]) -> Response:
        subject, inherited = _subject(values), forms.flag(request, "defaultToGlobal")

        def look(registry: Registry) -> Config:
            found = registry.config(subject, inherited=inherited)
            if found is None:
                assert subject is not None, "there is always a level for all"
                raise refusal.no_level(subject)
            return found

        return answer(forms.config_answer(await self._registrar.read(look), "compatibilityLevel"))

    async def set_config(self, request: Request, values: Mapping[str, str]) -> Response:
        subject = _subject(values)
        body = await forms.read_json(request, self._budget)

        async def decide() -> tuple[Config, Sequence[Event]]:
            config = forms.config(body, self._registrar.registry.config(subject))
            return config, decisions.set_config(subject, config)

        return answer(forms.config_answer(await self._registrar.change(decide), "compatibility"))

    async def delete_config(self, _: Request, values: Mapping[str, str]) -> Response:
        async def decide() -> tuple[Config, Sequence[Event]]:
            return decisions.delete_config(self._registrar.registry, _subject(values))

        return answer(forms.config_answer(await self._registrar.change(decide), "compatibilityLevel"))

    async def mode(self, request: Request, values: Mapping[str, str]) -> Response:
        subject, inherited = _subject(values), forms.flag(request, "defaultToGlobal")

        def look(registry: Registry) -> Mode:
            found = registry.mode(subject, inherited=inherited)
            if found is None:
                assert subject is not None, "there is always a mode for all"
                raise refusal.no_mode(subject)
            return found

        return answer({"mode": (await self._registrar.read(look)).value})

    async def set_mode(self, request: Request, values: Mapping[str, str]) -> Response:
        subject, force = _subject(values), forms.flag(request, "force")
        mode = forms.mode(await forms.read_json(request, self._budget))

        async def decide() -> tuple[Mode, Sequence[Event]]:
            return mode, decisions.set_mode(self._registrar.registry, subject, mode, force=force)

        return answer({"mode": (await self._registrar.change(decide)).value})

    async def delete_mode(self, _: Request, values: Mapping[str, str]) -> Response:
        async def decide() -> tuple[Mode, Sequence[Event]]:
            return decisions.delete_mode(self._registrar.registry, _subject(values))

        return answer({"mode": (await self._registrar.change(decide)).value})


def _subject(values: Mapping[str, str]) -> str | None:
    """A subject or a context. The default context's level and mode are those of all its subjects."""
    return values.get("subject") or None
