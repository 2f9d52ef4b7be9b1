"""The endpoints, their arguments and errors; listening on the loopback addresses only."""

import errno
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio.to_thread
from msgspec import Struct, ValidationError, convert, defstruct
from msgspec.structs import asdict, replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import paddock.ledger
from paddock import limits
from paddock.apps.console import keep_defect
from paddock.apps.listener import listen
from paddock.apps.web import changes, inbox, policy, record
from paddock.apps.web.access import Codes, OriginGate, require_bearer
from paddock.apps.web.stream import Hub
from paddock.apps.web.view import HttpRefusal, ServedPlane, json_response, refused
from paddock.errors import HostError, PaddockError
from paddock.text.json import BrokenJsonError, Strict, read_json
from paddock.values.calls import Json

Work = Callable[..., dict[str, Json] | Response]
"""Takes the plane, and the request's parameters by name (a `_` is added to Python's words)."""


class Endpoint(NamedTuple):
    method: str
    work: Work
    acts: bool = False

    def asked(self) -> type[Struct]:
        _, *given = signature(self.work).parameters.values()
        members: list[Any] = [
            (each.name, each.annotation, *([] if each.default is each.empty else [each.default]))
            for each in given
        ]
        names = {name: name.rstrip("_") for name, *_ in members}
        return defstruct("Asked", members, rename=names, forbid_unknown_fields=True)


ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "/api/now": Endpoint("GET", record.show_now),
    "/api/timeline": Endpoint("GET", record.search),
    "/api/entry": Endpoint("GET", record.show_entry),
    "/api/proof": Endpoint("GET", record.prove),
    "/api/inbox": Endpoint("GET", inbox.show),
    "/api/inbox/grant": Endpoint("POST", inbox.grant, acts=True),
    "/api/inbox/refuse": Endpoint("POST", inbox.refuse, acts=True),
    "/api/inbox/always": Endpoint("POST", inbox.allow_always, acts=True),
    "/api/files": Endpoint("GET", changes.list_files),
    "/api/diff": Endpoint("GET", changes.show_diff),
    "/api/undo": Endpoint("POST", changes.undo, acts=True),
    "/api/sessions": Endpoint("GET", changes.list_recorded),
    "/api/session": Endpoint("GET", changes.show_session),
    "/api/session/resume": Endpoint("POST", changes.resume, acts=True),
    "/api/policy": Endpoint("GET", policy.show),
    "/api/policy/lint": Endpoint("POST", policy.lint_text),
    "/api/policy/rules": Endpoint("POST", policy.list_rules),
    "/api/policy/explain": Endpoint("POST", policy.explain_action),
    "/api/policy/test": Endpoint("POST", policy.test_text),
    "/api/policy/diff": Endpoint("POST", policy.diff_text),
    "/api/policy/replay": Endpoint("POST", policy.replay_text),
    "/api/policy/save": Endpoint("POST", policy.save, acts=True),
    "/api/ledgers": Endpoint("GET", record.list_ledgers),
    "/api/ledgers/verify": Endpoint("POST", record.verify),
    "/api/ledgers/checkpoint": Endpoint("POST", record.checkpoint, acts=True),
    "/api/ledgers/export": Endpoint("GET", record.export),
}
PAGES: Final = ("", "now", "inbox", "timeline", "files", "policy", "sessions", "ledgers")

_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_STATIC: Final = Path(__file__).with_name("static")
_LEDGER_PAGE: Final = Path(paddock.ledger.__file__).with_name("page")


class _Code(Strict, frozen=True):
    code: str


def make_app(plane: ServedPlane, codes: Codes, origin: str, hub: Hub) -> OriginGate:
    """Return the app. If `plane` is read-only, no token allows an act."""
    bearer = partial(require_bearer, plane, codes)

    async def exchange(request: Request) -> Response:
        given = _converted(await _body(request), _Code, strict=True)
        token = codes.exchange(given.code, reads_only=plane.reads_only)
        return json_response({"token": token, "read_only": plane.reads_only})

    async def stream(request: Request) -> Response:
        await anyio.to_thread.run_sync(bearer, request.headers)
        if hub.is_full:
            said = f"{limits.web_streams_max} streams are open, which is the most"
            raise HttpRefusal(503, "web.streams", said, "close a window")
        return StreamingResponse(hub.events(), media_type="text/event-stream")

    async def answer(endpoint: Endpoint, kind: type[Struct], request: Request) -> Response:
        is_only = await anyio.to_thread.run_sync(bearer, request.headers)
        if endpoint.acts and is_only:
            raise HttpRefusal(403, "web.read_only", "this token may only read")
        is_post = endpoint.method == "POST"
        given = await _body(request) if is_post else _query(request)
        asked = asdict(_converted(given, kind, strict=is_post))
        work = partial(endpoint.work, replace(plane, reads_only=is_only), **asked)
        found = await anyio.to_thread.run_sync(work)
        return found if isinstance(found, Response) else json_response(found)

    routes = [Route("/api/exchange", exchange, methods=["POST"]), Route("/api/stream", stream)]
    for path, each in ENDPOINTS.items():
        routes.append(Route(path, partial(answer, each, each.asked()), methods=[each.method]))
    routes += [Route(f"/{page}", partial(_file, _STATIC / "index.html")) for page in PAGES]
    # Threat: path traversal. No path is built from a request; each file has its own route.
    files = {f"/static/{path.name}": path for path in _STATIC.iterdir()}
    files |= {f"/static/page/{path.name}": path for path in _LEDGER_PAGE.glob("*.js")}
    routes += [Route(name, partial(_file, path)) for name, path in files.items()]
    app = Starlette(
        routes=routes,
        exception_handlers={
            **dict.fromkeys((HttpRefusal, PaddockError, HTTPException), _refused),
            Exception: partial(_defect, plane.site.environment.paddock_home),
        },
        lifespan=partial(_followed, hub),
    )
    return OriginGate(app, origin)


@asynccontextmanager
async def _followed(hub: Hub, app: Starlette) -> AsyncGenerator[None]:
    hub.start()
    yield
    hub.stop()


async def _file(path: Path, request: Request) -> Response:
    content = await anyio.to_thread.run_sync(path.read_bytes)
    return Response(content, media_type=_TYPES.get(path.suffix, "image/svg+xml"))


def _query(request: Request) -> dict[str, Json]:
    pairs = request.query_params.multi_items()
    if len(pairs) != len(dict(pairs)):
        raise HttpRefusal(400, "args.invalid", "a parameter is repeated")
    return {name: value for name, value in pairs if value}


async def _body(request: Request) -> Json:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HttpRefusal(415, "args.invalid", "the body must be application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limits.web_body_bytes_max:
            said = f"the body has more than {limits.web_body_bytes_max} bytes"
            raise HttpRefusal(413, "args.invalid", said)
    try:
        return read_json(body.decode())
    except (UnicodeDecodeError, BrokenJsonError) as error:
        raise HttpRefusal(400, "args.invalid", f"the body is not valid JSON: {error}") from None


def _converted(given: Json, kind: Any, *, strict: bool) -> Any:
    try:
        return convert(given, kind, strict=strict)
    except ValidationError as error:
        raise HttpRefusal(400, "args.invalid", str(error)) from None


def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        error = HttpRefusal(error.status_code, "web.unknown", error.detail.lower())
    if isinstance(error, PaddockError | HttpRefusal):
        return refused(error)
    raise error


def _defect(home: Path, request: Request, error: Exception) -> Response:
    # Starlette raises it again after the response, where nothing logs it: print it here.
    identity = secrets.token_hex(6)
    kept = keep_defect(home, error, identity)
    sys.stderr.write(f"paddock web: a defect of Paddock, id {identity} {kept}\n")
    said = f"a defect of Paddock, {type(error).__name__} (id {identity})"
    hint = "please report it with the file that paddock web has printed"
    return refused(HttpRefusal(500, "internal", said, hint))


_TRIES: Final = 20


def listen_here(port: int) -> list[socket.socket]:
    """Listen on a port of both loopback addresses. Raises: UsageError, HostError.

    Threat: browsers try `::1` first for a name below localhost. Another program that listens
    there on this port, such as an agent's server, would get the page's requests.
    """
    tries = 1 if port else _TRIES
    while True:
        tries -= 1
        first = listen("127.0.0.1", port)
        try:
            return [first, listen("::1", first.getsockname()[1])]
        except HostError as error:
            why = error.__cause__
            if isinstance(why, OSError) and why.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                return [first]  # this host has no IPv6
            first.close()
            if not tries:
                raise


def name_here() -> str:
    """Return a name for this server alone, if it resolves to this machine; else the address.

    The browser's storage for this origin is then not shared with servers on other ports.
    """
    name = f"paddock-{secrets.token_hex(4)}.localhost"
    try:
        found = {each[4][0] for each in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return "127.0.0.1"
    return name if found <= {"127.0.0.1", "::1"} else "127.0.0.1"
