"""Subjects: their versions, registering and deleting, and what would be compatible."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.bodies import Budget
from headwater.gateway.registry import bodies as forms
from headwater.gateway.registry.bodies import answer
from headwater.gateway.registry.paths import Handler
from headwater.gateway.registry.registering import Registering
from headwater.gateway.registry.registrar import Registrar
from headwater.schemas import decisions, refusal
from headwater.schemas.contexts import ANY, DEFAULT, parse, within
from headwater.schemas.events import Event
from headwater.schemas.registry import Registry, Version


class SubjectRoutes:
    def __init__(self, registrar: Registrar, registering: Registering, budget: Budget) -> None:
        self._registrar = registrar
        self._registering = registering
        self._budget = budget

    def handlers(self) -> dict[tuple[str, str], Handler]:
        version = "/subjects/{subject}/versions/{version}"
        return {
            ("GET", "/subjects"): self.all,
            ("POST", "/subjects/{subject}"): self.look_up,
            ("DELETE", "/subjects/{subject}"): self.delete,
            ("GET", "/subjects/{subject}/versions"): self.versions,
            ("POST", "/subjects/{subject}/versions"): self.register,
            ("GET", version): self.version,
            ("DELETE", version): self.delete_version,
            ("GET", version + "/schema"): self.text,
            ("GET", version + "/referencedby"): self.referrers,
            ("POST", "/compatibility/subjects/{subject}/versions"): self.compare_with_all,
            ("POST", "/compatibility/subjects/{subject}/versions/{version}"): self.compare_with_one,
        }

    async def all(self, request: Request, values: Mapping[str, str]) -> Response:
        everywhere = f":{ANY}:" if values["context"] == DEFAULT else ""
        prefix = parse(within(values["context"], request.query_params.get("subjectPrefix", everywhere)))
        registry = self._registrar.registry
        only = forms.flag(request, "deletedOnly")
        found = registry.subjects(with_deleted=only or forms.flag(request, "deleted"))
        live = set(registry.subjects()) if only else set()
        subjects = [subject for subject in found if prefix.matches(subject) and subject not in live]
        return answer(forms.page(request, subjects))

    async def versions(self, request: Request, values: Mapping[str, str]) -> Response:
        deleted, only = forms.flag(request, "deleted"), forms.flag(request, "deletedOnly")

        def look(registry: Registry) -> list[Version]:
            found = registry.versions(values["subject"], with_deleted=deleted or only)
            if not found:
                raise refusal.subject_not_found(values["subject"])
            return found

        found = await self._registrar.read(look)
        return answer(forms.page(request, [version.version for version in found if version.is_deleted or not only]))

    async def register(self, request: Request, values: Mapping[str, str]) -> Response:
        body = await forms.read_json(request, self._budget)
        normalize = forms.flag(request, "normalize")
        version = await self._registering.register(values["subject"], forms.candidate(body), normalize=normalize)
        return answer({"id": version.schema_id})

    async def look_up(self, request: Request, values: Mapping[str, str]) -> Response:
        subject = values["subject"]
        schema = forms.candidate(await forms.read_json(request, self._budget)).schema
        deleted = forms.flag(request, "deleted")
        for is_last in (False, True):
            meant = self._registrar.registry.meant(subject, with_deleted=deleted)
            found = await self._registering.find(
                meant, schema, normalize=forms.flag(request, "normalize"), with_deleted=deleted
            )
            if found is not None:
                return answer(forms.version_answer(found))
            if not is_last:
                await self._registrar.catch_up()
        if not self._registrar.registry.versions(meant, with_deleted=deleted):
            raise refusal.subject_not_found(subject)
        raise refusal.schema_not_found()

    async def version(self, request: Request, values: Mapping[str, str]) -> Response:
        found = await self._version(request, values)
        text = None
        if request.query_params.get("format") == "serialized":
            text = (await self._registrar.parsed_version(found)).serialized
        return answer(forms.version_answer(found, text, qualified=forms.wants_qualified(request)))

    async def text(self, request: Request, values: Mapping[str, str]) -> Response:
        return Response((await self._version(request, values)).schema.text, media_type=forms.MEDIA_TYPE)

    async def referrers(self, request: Request, values: Mapping[str, str]) -> Response:
        found = await self._version(request, values)
        deleted = forms.flag(request, "deleted")
        users = self._registrar.registry.referrers(found.subject, found.version, with_deleted=deleted)
        return answer(forms.page(request, sorted({user.schema_id for user in users})))

    async def delete(self, request: Request, values: Mapping[str, str]) -> Response:
        permanent = forms.flag(request, "permanent")

        async def decide() -> tuple[list[int], Sequence[Event]]:
            return decisions.delete_subject(self._registrar.registry, values["subject"], permanent=permanent)

        return answer(await self._registrar.change(decide))

    async def delete_version(self, request: Request, values: Mapping[str, str]) -> Response:
        permanent, number = forms.flag(request, "permanent"), forms.version_number(values["version"])

        async def decide() -> tuple[int, Sequence[Event]]:
            return decisions.delete_version(self._registrar.registry, values["subject"], number, permanent=permanent)

        return answer(await self._registrar.change(decide))

    async def compare_with_one(self, request: Request, values: Mapping[str, str]) -> Response:
        found = await self._version(request, values)
        return await self._compare(request, found.subject, [found])

    async def compare_with_all(self, request: Request, values: Mapping[str, str]) -> Response:
        await self._registrar.catch_up()
        return await self._compare(request, values["subject"], self._registrar.registry.versions(values["subject"]))

    async def _compare(self, request: Request, subject: str, earlier: Sequence[Version]) -> Response:
        schema = forms.candidate(await forms.read_json(request, self._budget)).schema
        reasons = await self._registering.compare(subject, schema, earlier)
        body: dict[str, object] = {"is_compatible": not reasons}
        if forms.flag(request, "verbose"):
            body["messages"] = [str(reason) for reason in reasons]
        return answer(body)

    async def _version(self, request: Request, values: Mapping[str, str]) -> Version:
        number, deleted = forms.version_number(values["version"]), forms.flag(request, "deleted")
        return await self._registrar.read(
            lambda registry: registry.version(
                registry.meant(values["subject"], with_deleted=deleted), number, with_deleted=deleted
            )
        )
