"""A gateway that answers from memory, with a shop's plausible data: the console's tests need no cluster.

It has the shapes of the HTTP API and as much behaviour as the page can notice: topics can be made, changed and deleted,
records written and read by offset, time and key. Counters grow while one looks.
"""

import base64
import json
import math
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from headwater.gateway.console.routes import file_routes
from headwater.gateway.http.problems import Problem, answer_problem

HOSTILE = '<img src=x onerror="window.hacked=true"><script>window.hacked=true</script>'
AVRO_1 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"total","type":"double"}]}'
AVRO_2 = AVRO_1.replace("]}", ',{"name":"currency","type":"string","default":"EUR"}]}')
DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "headwater.schema.validation": "false",
}


class FakeGateway:
    def __init__(self, token: str | None = None, *, is_empty: bool = False) -> None:
        self.token = token
        self.started = time.time()
        self.topics: dict[str, dict[str, Any]] = {}
        self.redriven: list[dict[str, Any]] = []
        self.is_broken = False
        """Whether everything below /v1 answers 503."""
        self.lost_node_since_ms: int | None = None
        """Since when node 3 is gone, if it is."""
        self.at_most = 10_000
        """Records in one answer, whatever was asked for: the real one has a limit in bytes."""
        if not is_empty:
            self._fill()

    def app(self) -> Starlette:
        own: list[BaseRoute] = [
            Route("/v1/session", self.session, methods=["POST"]),
            Route("/console/traffic", self.traffic),
            Route("/v1/topics", self.list_topics, methods=["GET"]),
            Route("/v1/topics", self.create_topic, methods=["POST"]),
            Route("/v1/topics/{topic}", self.one_topic, methods=["GET", "PATCH", "DELETE"]),
            Route("/v1/topics/{topic}/segments", self.segments),
            Route("/v1/topics/{topic}/records", self.read, methods=["GET"]),
            Route("/v1/topics/{topic}/records", self.produce, methods=["POST"]),
            Route("/v1/cluster", self.cluster),
            Route("/v1/groups", self.list_groups),
            Route("/v1/groups/{group}", self.one_group),
            Route("/v1/subscriptions/{name}", self.subscription),
            Route("/v1/subscriptions/{name}/dead-letters", self.dead_letters),
            Route("/v1/subscriptions/{name}/redrive", self.redrive, methods=["POST"]),
            Route("/v1/pipelines", self.pipelines),
            Route("/subjects", self.subjects),
            Route("/subjects/{subject}/versions", self.versions),
            Route("/subjects/{subject}/versions/{version:int}", self.version),
            Route("/config", self.level),
            Route("/config/{subject}", self.level),
        ]
        return Starlette(routes=[*own, *file_routes()], exception_handlers={Problem: answer_problem})

    def write(self, topic: str, partition: int, key: str | None, value: Any, **more: Any) -> dict[str, Any]:
        lane = self.topics[topic]["lanes"][partition]
        now_ms = int(time.time() * 1000)
        record = {"partition": partition, "offset": len(lane), "timestamp": now_ms, "key": key, "value": value}
        record |= {"headers": [], "size": len(str(value)), **more}
        lane.append(record)
        return record

    # Handlers

    async def session(self, request: Request) -> Response:
        if (await request.json())["token"] != self.token:
            raise Problem(401, "Unauthorized", "That is not the gateway's token.")
        response = Response(status_code=204)
        response.set_cookie("fake_session", "yes", httponly=True, samesite="strict")
        return response

    async def traffic(self, request: Request) -> Response:
        self._admit(request)
        age_s = time.time() - self.started
        told = []
        for number, name in enumerate(self.topics):
            records = int(900 * (age_s + math.sin(age_s / 3 + number)) / (number + 1)) + 5000
            counters = {"produced_records": records, "produced_bytes": records * 220, "fetched_bytes": records * 410}
            told.append({"name": name, **counters})
        leases = [{"group": "shipping", "topic": "orders", "partition": index, "records": 4} for index in range(3)]
        return JSONResponse({"topics": told, "leases": leases, "left_out": 0, "is_known": True})

    async def list_topics(self, request: Request) -> Response:
        self._admit(request)
        told = [
            {
                "name": name,
                "partitions": len(topic["lanes"]),
                "replication_factor": topic["replicas"],
                "records": sum(map(len, topic["lanes"])),
                "size_bytes": sum(record["size"] for lane in topic["lanes"] for record in lane),
                "internal": name.startswith("__"),
            }
            for name, topic in self.topics.items()
            if not name.startswith("__") or request.query_params.get("internal") == "true"
        ]
        return JSONResponse({"topics": told})

    async def create_topic(self, request: Request) -> Response:
        self._admit(request)
        body = await request.json()
        if body["name"] in self.topics:
            raise Problem(409, "Conflict", f"A topic {body['name']} is there already.")
        self._topic(body["name"], body.get("partitions", 1), body.get("replication_factor", 1))
        return JSONResponse(self._described(body["name"]), 201)

    async def one_topic(self, request: Request) -> Response:
        self._admit(request)
        name = self._known(request)
        if request.method == "DELETE":
            del self.topics[name]
            return Response(status_code=204)
        if request.method == "PATCH":
            body = await request.json()
            for key, value in body.get("config", {}).items():
                if key == "retention.ms" and value is not None and not value.lstrip("-").isdigit():
                    raise Problem(400, "Bad request", f"retention.ms is a number of milliseconds, not {value}.")
                self.topics[name]["config"][key] = value
            lanes = self.topics[name]["lanes"]
            lanes += [[] for _ in range(body.get("partitions", 0) - len(lanes))]
        return JSONResponse(self._described(name))

    async def segments(self, request: Request) -> Response:
        self._admit(request)
        told = []
        for index, lane in enumerate(self.topics[self._known(request)]["lanes"]):
            half = len(lane) // 2
            for state, start, end in (("sealed", 0, half), ("open", half, len(lane))):
                told.append(
                    {"partition": index, "start_offset": start, "end_offset": end, "size_bytes": (end - start) * 90}
                    | {"state": state, "nodes": [1 + index % 3, 1 + (index + 1) % 3], "first_timestamp": None}
                    | {"last_timestamp": lane[end - 1]["timestamp"] if end else None}
                )
        return JSONResponse({"segments": told})

    async def read(self, request: Request) -> Response:
        self._admit(request)
        lanes = self.topics[self._known(request)]["lanes"]
        query = request.query_params
        chosen = [int(query["partition"])] if "partition" in query else list(range(len(lanes)))
        limit = min(int(query.get("limit", 100)), self.at_most)
        found: list[dict[str, Any]] = []
        following = {}
        for index in chosen:
            lane = lanes[index]
            begin = self._begin(lane, query.get("offset") or query.get("from", "beginning"))
            kept = [record for record in lane[begin:] if not record.get("compacted")]
            taken = [record for record in kept if query.get("key") in (None, record["key"])][:limit]
            found += taken
            following[str(index)] = taken[-1]["offset"] + 1 if len(taken) == limit else len(lane)
        found.sort(key=lambda record: record["timestamp"])
        for record in found[limit:]:
            place = str(record["partition"])
            following[place] = min(following[place], record["offset"])
        ends = {str(index): len(lanes[index]) for index in chosen}
        return JSONResponse({"records": found[:limit], "next": following, "ends": ends})

    async def produce(self, request: Request) -> Response:
        self._admit(request)
        name = self._known(request)
        body = await request.json()
        value = body.get("value")
        if "value_base64" in body:
            value = base64.b64decode(body["value_base64"]).decode()
        partition = body.get("partition", hash(body.get("key")) % len(self.topics[name]["lanes"]))
        record = self.write(name, partition, body.get("key"), value, headers=body.get("headers", []))
        return JSONResponse({"records": [{key: record[key] for key in ("partition", "offset", "timestamp")}]})

    async def cluster(self, request: Request) -> Response:
        self._admit(request)

        def led(node: int, is_internal: bool) -> int:
            topics = [name for name in self.topics if name.startswith("__") == is_internal]
            partitions = [partition for name in topics for partition in self._described(name)["partitions"]]
            return sum(partition["leader"] == node for partition in partitions)

        nodes: list[dict[str, Any]] = [
            {"node_id": number, "host": f"node-{number}.shop.example", "port": 9092, "rack": f"rack-{number % 2}"}
            | {"leads": led(number, False), "internal_leads": led(number, True), "replicas": 12}
            | {"size_bytes": (8 + number) * 10**9, "is_up": True, "down_since_ms": None}
            for number in (1, 2, 3)
        ]
        if self.lost_node_since_ms is not None:
            nodes[2] |= {
                "is_up": False,
                "down_since_ms": self.lost_node_since_ms,
                "leads": 0,
                "internal_leads": 0,
                "size_bytes": None,
            }
        told = {"cluster_id": "k3yQx0v2RzmHbS9tZ1aWcA", "controller": 2, "nodes": nodes}
        return JSONResponse({**told, "under_replicated": 1 if self.topics else 0, "offline": 0})

    async def list_groups(self, request: Request) -> Response:
        self._admit(request)
        told = [
            {"name": "billing", "kind": "consumer", "state": "Stable", "members": 2, "lag": 18},
            {"name": "search-index", "kind": "classic", "state": "Empty", "members": 0, "lag": 4210},
            {"name": "shipping", "kind": "share", "state": "Stable", "members": 3, "lag": 35},
        ]
        return JSONResponse({"groups": told if self.topics else []})

    async def one_group(self, request: Request) -> Response:
        self._admit(request)
        name = request.path_params["group"]
        kind = {"billing": "consumer", "search-index": "classic", "shipping": "share"}.get(name)
        if kind is None:
            raise Problem(404, "Not found", f"There is no group {name}.")
        now_ms = int(time.time() * 1000)
        members = [
            {"id": f"{name}-{number}-7b1c", "client_id": f"{name}-worker-{number}", "host": f"10.0.0.{number}"}
            | {"assignment": [{"topic": "orders", "partition": number - 1}]}
            for number in (1, 2)
        ]
        partitions = [
            {"topic": "orders", "partition": index, "committed": 40 - 6 * index, "end_offset": 46, "lag": 6 + 6 * index}
            for index in range(3)
        ]
        left = [
            {"member": f"{name}-worker-9", "reason": "session expired", "at": now_ms - 340_000},
            {
                "member": HOSTILE if kind == "classic" else f"{name}-worker-3",
                "reason": "left: the consumer was closed",
                "at": now_ms - 4_000_000,
            },
        ]
        told = {"name": name, "kind": kind, "state": "Stable", "lag": 36, "members": members}
        return JSONResponse({**told, "partitions": partitions, "departures": left})

    async def subscription(self, request: Request) -> Response:
        self._admit(request)
        config = {"share.delivery.count.limit": "5", "share.record.lock.duration.ms": "30000"}
        told = {"name": request.path_params["name"], "topic": "orders", "kind": "queue", "state": "Stable", "lag": 35}
        more = {"members": 3, "in_flight": 12, "dead_letter_topic": "orders.dead", "config": config, "push": None}
        return JSONResponse({**told, **more})

    async def dead_letters(self, request: Request) -> Response:
        self._admit(request)
        about = {"group": "shipping", "reason": "delivered 5 times", "delivery_count": 5}
        records: list[dict[str, Any]] = [
            {"partition": 0, "offset": offset, "timestamp": int(self.started * 1000) - offset, "key": f"order-{offset}"}
            | {"value": json.dumps({"order": offset, "total": 12.5}), "headers": [], "size": 60, "topic": "orders.dead"}
            for offset in range(3)
        ]
        letters = [{"record": record, "origin": f"orders/1/{record['offset'] + 7}", **about} for record in records]
        return JSONResponse({"topic": "orders.dead", "letters": [] if self.redriven else letters})

    async def redrive(self, request: Request) -> Response:
        self._admit(request)
        self.redriven.append(await request.json())
        return JSONResponse({"redriven": 3})

    async def pipelines(self, request: Request) -> Response:
        self._admit(request)
        now_ms = int(time.time() * 1000)
        query = {"query": "revenue", "batch": 812, "rows": 1_204_500, "rows_per_s": 1520.4, "processed_per_s": 9870.1}
        query |= {"batch_ms": 640, "lag": 310, "state_rows": 8800, "state_bytes": 3_400_000, "watermark": None}
        status = {"pipeline": "revenue-by-minute", "run": "r1", "state": "running", "host": "spark-1", "pid": 4711}
        status |= {"file": "revenue.toml", "started_ms": now_ms - 7_200_000, "updated_ms": now_ms - 2_000, "error": ""}
        failed = {**status, "pipeline": "archive", "state": "failed", "queries": [], "file": "archive.toml"}
        failed["error"] = "The bucket does not exist: s3://shop-archive"
        told = [failed, {**status, "queries": [{**query, "restarts": 1}]}]
        return JSONResponse({"pipelines": told if self.topics else []})

    async def subjects(self, request: Request) -> Response:
        self._admit(request)
        return JSONResponse(["orders-value", "clicks-value"] if self.topics else [])

    async def versions(self, request: Request) -> Response:
        self._admit(request)
        return JSONResponse([1, 2])

    async def version(self, request: Request) -> Response:
        self._admit(request)
        number = request.path_params["version"]
        told = {"subject": request.path_params["subject"], "version": number, "id": 10 + number}
        return JSONResponse({**told, "schema": AVRO_1 if number == 1 else AVRO_2})

    async def level(self, request: Request) -> Response:
        self._admit(request)
        return JSONResponse({"compatibilityLevel": "BACKWARD"})

    # Beneath

    def _admit(self, request: Request) -> None:
        if self.token is not None and request.cookies.get("fake_session") != "yes":
            raise Problem(401, "Unauthorized", "Send Authorization: Bearer with the gateway's token.")
        if self.is_broken:
            raise Problem(503, "Unavailable", "No broker answers at 127.0.0.1:9092. Start one with `headwater serve`.")

    def _known(self, request: Request) -> str:
        name: str = request.path_params["topic"]
        if name not in self.topics:
            raise Problem(404, "Unknown topic", f"There is no topic {name}.")
        return name

    def _begin(self, lane: list[dict[str, Any]], position: str) -> int:
        if position == "beginning":
            return 0
        if position == "end":
            return len(lane)
        if position.lstrip("-").isdigit():
            return max(0, len(lane) + int(position)) if position.startswith("-") else int(position)
        since_ms = time.mktime(time.strptime(position[:19], "%Y-%m-%dT%H:%M:%S")) * 1000 - time.timezone * 1000
        return next((record["offset"] for record in lane if record["timestamp"] >= since_ms), len(lane))

    def _topic(self, name: str, partitions: int, replicas: int) -> None:
        self.topics[name] = {"lanes": [[] for _ in range(partitions)], "replicas": replicas, "config": {}}

    def _described(self, name: str) -> dict[str, Any]:
        topic = self.topics[name]
        partitions = []
        for index, lane in enumerate(topic["lanes"]):
            replicas = [1 + (index + step) % 3 for step in range(topic["replicas"])]
            in_sync = replicas[:-1] if name == "orders" and index == 2 else replicas
            partitions.append(
                {"partition": index, "leader": replicas[0], "replicas": replicas, "in_sync": in_sync}
                | {"start_offset": 0, "end_offset": len(lane), "size_bytes": sum(record["size"] for record in lane)}
            )
        given = topic["config"]
        config = [
            {"name": key, "value": given.get(key) or value, "is_default": given.get(key) is None}
            | {"is_read_only": key == "compression.type", "is_sensitive": False, "source": "DEFAULT_CONFIG"}
            for key, value in DEFAULTS.items()
        ]
        internal = name.startswith("__")
        return {"name": name, "topic_id": "a" * 22, "internal": internal, "partitions": partitions, "config": config}

    def _fill(self) -> None:
        for name, partitions, replicas in (
            ("orders", 3, 3), ("clicks", 6, 2), ("payments", 2, 3), ("orders.dead", 1, 3), ("__consumer_offsets", 4, 3),
        ):  # fmt: skip
            self._topic(name, partitions, replicas)
        self.topics["orders"]["config"]["retention.ms"] = "86400000"
        start_ms = int(self.started * 1000)
        places = ["Lisbon", "Oslo", "Turin", "Graz", "Ghent"]
        for number in range(180):
            value = {
                "id": number,
                "total": round(9.5 + number * 1.37, 2),
                "city": places[number % 5],
                "items": number % 4,
            }
            record = self.write("orders", number % 3, f"customer-{number % 17}", json.dumps(value))
            record["timestamp"] = start_ms - (180 - number) * 1000
            record["headers"] = [{"name": "trace", "value": f"{number:08x}"}]
        schema = {"id": 12, "subject": "clicks-value", "type": "AVRO", "version": 2}
        for number in range(30):
            value = {"page": f"/product/{number}", "ms": 12 * number}
            self.write("clicks", number % 6, None, value, schema=schema)
        self.write("payments", 0, HOSTILE, HOSTILE, headers=[{"name": HOSTILE, "value": HOSTILE}])
        self.write("payments", 0, "gone", None)
        binary = self.write("payments", 1, "bytes", None)
        del binary["value"]
        binary["value_base64"] = base64.b64encode(bytes(range(48))).decode()
