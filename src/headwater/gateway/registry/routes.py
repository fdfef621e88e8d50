"""The registry's REST API as Confluent documents it, at the root of the gateway's paths."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater.gateway.http.bodies import Budget
from headwater.gateway.http.kafka_problems import FAILURES, problem_of
from headwater.gateway.http.openapi.operation import ROUTE
from headwater.gateway.registry import bodies as forms
from headwater.gateway.registry.bodies import answer
from headwater.gateway.registry.paths import Handler, PathTable
from headwater.gateway.registry.registering import Registering
from headwater.gateway.registry.registrar import Registrar
from headwater.gateway.registry.settings_routes import SettingsRoutes
from headwater.gateway.registry.subject_routes import SubjectRoutes
from headwater.schemas import decisions
from headwater.schemas.contexts import BadContext, context_of, parse, within
from headwater.schemas.events import Event
from headwater.schemas.refusal import SchemaRefused
from headwater.schemas.registry import Version
from headwater.schemas.schema import SchemaType

ROOTS = ("subjects", "schemas", "config", "mode", "compatibility", "contexts")
METHODS = ["GET", "POST", "PUT", "DELETE"]


def registry_routes(registrar: Registrar, budget: Budget) -> list[BaseRoute]:
    handlers: dict[tuple[str, str], Handler] = {
        **_SchemaRoutes(registrar).handlers(),
        **_ContextRoutes(registrar).handlers(),
        **SubjectRoutes(registrar, Registering(registrar), budget).handlers(),
        **SettingsRoutes(registrar, budget).handlers(),
    }
    table = PathTable(handlers)

    async def endpoint(request: Request) -> Response:
        try:
            found = table.find(request.scope)
        except BadContext as error:
            return forms.refuse(SchemaRefused(400, str(error)))
        if found is None:
            return forms.refuse(SchemaRefused(404, "HTTP 404 Not Found"))
        path, by_method, values = found
        request.scope[ROUTE] = path
        handler = by_method.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            return forms.refuse(SchemaRefused(405, "HTTP 405 Method Not Allowed"))
        try:
            return await handler(request, values)
        except SchemaRefused as refused:
            return forms.refuse(refused)
        except FAILURES as failure:
            problem = problem_of(failure)
            response = answer({"error_code": problem.status, "message": problem.detail}, problem.status)
            response.headers.update(problem.headers or {})
            return response

    paths = [path for root in ROOTS for path in (f"/{root}", f"/{root}/{{rest:path}}")]
    return [Route(path, endpoint, methods=METHODS, include_in_schema=False) for path in paths]


class _SchemaRoutes:
    """Schemas by their ids."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    def handlers(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "/schemas"): self.all,
            ("GET", "/schemas/types"): self.types,
            ("GET", "/schemas/ids/{id}"): self.by_id,
            ("GET", "/schemas/ids/{id}/schema"): self.text,
            ("GET", "/schemas/ids/{id}/subjects"): self.subjects,
            ("GET", "/schemas/ids/{id}/versions"): self.versions,
        }

    async def all(self, request: Request, values: Mapping[str, str]) -> Response:
        prefix = parse(within(values["context"], request.query_params.get("subjectPrefix", "")))
        versions = list(self._registrar.registry.all_versions(with_deleted=forms.flag(request, "deleted")))
        versions = [version for version in versions if prefix.matches(version.subject)]
        if forms.flag(request, "latestOnly"):
            versions = list({version.subject: version for version in versions}.values())
        return answer([forms.version_answer(version) for version in forms.page(request, versions)])

    async def types(self, _: Request, __: Mapping[str, str]) -> Response:
        return answer([SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value])

    async def by_id(self, request: Request, values: Mapping[str, str]) -> Response:
        version = await self._user(request, values)
        text = None
        if request.query_params.get("format") == "serialized":
            text = (await self._registrar.parsed_version(version)).serialized
        body = forms.schema_answer(version, text, qualified=forms.wants_qualified(request))
        if forms.flag(request, "fetchMaxId"):
            body["maxId"] = self._registrar.registry.last_id(context_of(version.subject))
        return answer(body)

    async def text(self, request: Request, values: Mapping[str, str]) -> Response:
        return Response((await self._user(request, values)).schema.text, media_type=forms.MEDIA_TYPE)

    async def subjects(self, request: Request, values: Mapping[str, str]) -> Response:
        return answer(
            forms.page(request, list(dict.fromkeys(each.subject for each in await self._users(request, values))))
        )

    async def versions(self, request: Request, values: Mapping[str, str]) -> Response:
        users = await self._users(request, values)
        return answer([{"subject": each.subject, "version": each.version} for each in forms.page(request, users)])

    async def _user(self, request: Request, values: Mapping[str, str]) -> Version:
        schema_id, subject = _asked(request, values)
        return await self._registrar.read(
            lambda registry: registry.user(schema_id, registry.context_with(schema_id, subject))
        )

    async def _users(self, request: Request, values: Mapping[str, str]) -> list[Version]:
        (schema_id, subject), deleted = _asked(request, values), forms.flag(request, "deleted")
        users = await self._registrar.read(
            lambda registry: registry.users(schema_id, registry.context_with(schema_id, subject), with_deleted=deleted)
        )
        name = parse(subject).name
        return [each for each in users if name in ("", parse(each.subject).name)]


class _ContextRoutes:
    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    def handlers(self) -> dict[tuple[str, str], Handler]:
        return {("GET", "/contexts"): self.all, ("DELETE", "/contexts/{name}"): self.delete}

    async def all(self, request: Request, _: Mapping[str, str]) -> Response:
        prefix = request.query_params.get("contextPrefix", "")
        found = [each for each in self._registrar.registry.contexts() if each.startswith(prefix)]
        return answer(forms.page(request, found))

    async def delete(self, _: Request, values: Mapping[str, str]) -> Response:
        async def decide() -> tuple[None, Sequence[Event]]:
            return None, decisions.delete_context(self._registrar.registry, values["name"])

        await self._registrar.change(decide)
        return Response(status_code=204)


def _asked(request: Request, values: Mapping[str, str]) -> tuple[int, str]:
    """An id, and the subject or context in which it is meant."""
    return forms.schema_number(values["id"]), within(values["context"], request.query_params.get("subject", ""))
