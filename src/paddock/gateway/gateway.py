"""Route tool calls to third-party MCP servers: one event loop, a connection for each server.

A server is started when a call first needs it. Each has a separate process and connection, so a
server that dies, hangs or floods does not affect the others.
"""

import asyncio
import concurrent.futures
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

import mcp_types as types
from pydantic import TypeAdapter

from paddock.errors import SandboxUnavailableError, UnknownToolError
from paddock.gateway.confine import ServerSandbox, describe_refused
from paddock.gateway.connection import CallOrigin, LiveServer, ServerConnection
from paddock.gateway.definitions import Definition, Pinned, reviewed, show_text, show_values
from paddock.gateway.tools import AskedPlan
from paddock.providers.client import LoopThread
from paddock.text.show import quote, show_name
from paddock.tools.effects import changes_of, within_entry
from paddock.tools.spec import Ports, RefusedPath, StoppedCallError, ToolOutput
from paddock.values.calls import LeftEffect

ASKER: Final[ContextVar[CallOrigin | None]] = ContextVar("paddock_mcp_asker", default=None)
"""The caller of the current context, for requests that a server sends back."""

RESULT_BYTES_MAX: Final = 100_000
Keep = Callable[[bytes], str]
"""Keep bytes in the history; return their digest. Raises: StorageFullError, HostError."""
Pairs = Sequence[tuple[str, str]]
"""Values of credentials and their placeholders."""


_WANTED: Final = dict[str, tuple[Any, Any, TypeAdapter[Any]]](
    call=(
        types.CallToolRequest,
        types.CallToolRequestParams,
        TypeAdapter(types.CallToolResult | types.InputRequiredResult),
    ),
    read=(
        types.ReadResourceRequest,
        types.ReadResourceRequestParams,
        TypeAdapter(types.ReadResourceResult | types.InputRequiredResult),
    ),
    prompt=(
        types.GetPromptRequest,
        types.GetPromptRequestParams,
        TypeAdapter(types.GetPromptResult | types.InputRequiredResult),
    ),
)
_KINDS: Final = {"call": "tool", "prompt": "prompt"}
"""The kinds of definitions that must match their review."""


def _as_blocks(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return a resource's contents, or a prompt's messages, in the form of a tool's result."""
    if operation == "read":
        return {"content": [{"type": "resource", "resource": each} for each in answer["contents"]]}
    if operation == "prompt":
        return {
            "content": [{**each["content"], "role": each["role"]} for each in answer["messages"]]
        }
    return answer


class McpGateway:
    def __init__(
        self,
        sandboxes: Mapping[str, ServerSandbox],
        pins: Mapping[str, Pinned],
        keep: Keep,
    ) -> None:
        self._sandboxes = sandboxes
        self._servers = {name: each.server for name, each in sandboxes.items()}
        self._pins, self._keep = pins, keep
        self._loop = LoopThread("paddock-mcp", _closed)
        self._connections = {name: ServerConnection(each) for name, each in sandboxes.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return reviewed(self._servers.values(), self._pins)

    # --- calls, each in a separate thread ---------------------------------------------------

    def ask(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        """Raises: SandboxUnavailableError, UnknownToolError: nothing was done; ToolFailedError."""
        (request_type, params, result), origin = _WANTED[plan.operation], ASKER.get()
        given: dict[str, Any] = {"uri": plan.name}
        if plan.operation != "read":
            given = {"name": plan.name, "arguments": dict(plan.arguments)}

        def request(more: dict[str, Any]) -> types.Request[Any, Any]:
            return request_type(params=params(**given, **more))

        async def ask() -> Any:
            connection = self._connections[plan.server]
            live = await connection.live()
            self._require_reviewed(plan.server, live, _KINDS.get(plan.operation, ""), plan.name)
            # Not before: it may only have been started now.
            with self._sandboxes[plan.server].counting() as refused:
                return await connection.ask(live, request, result, origin), refused

        future = self._loop.submit(ask())
        forget = ports.cancel.on_cancel(future.cancel)
        try:
            found, refused = future.result()
        except concurrent.futures.CancelledError:
            raise StoppedCallError(LeftEffect.UNKNOWN) from None
        finally:
            forget()
        answer = found.model_dump(by_alias=True, mode="json", exclude_none=True)
        if isinstance(found, types.InputRequiredResult):
            said = f"[the MCP server {plan.server} asks for more input before it continues]"
            return self._with_changes(plan.server, ToolOutput(said, {"input_required": answer}))
        secrets = self._sandboxes[plan.server].secrets()
        output = output_of(_as_blocks(plan.operation, answer), secrets, self._keep)
        if refused:
            content = f"{output.content}\n[{describe_refused(refused)}]"
            output = output._replace(content=content)
        return self._with_changes(plan.server, output)

    def _require_reviewed(
        self, name: str, live: LiveServer, kind: str = "", what: str = ""
    ) -> None:
        """Threat: the server's definitions have changed since their review."""
        pinned = self._pins.get(name)
        if pinned is None or pinned.version != live.version:
            before = "nothing" if pinned is None else quote(pinned.version)
            raise _unreviewed(name, f"it is now {quote(live.version)}, but {before} was reviewed")
        now = live.definitions.get(f"{kind} {what}")
        if kind and now is None:
            raise _unreviewed(name, f"it no longer has the {kind} {quote(what)}")
        if kind and now != pinned.find(kind, what):
            raise _unreviewed(name, f"its definition of {quote(what)} has changed")

    def _with_changes(self, name: str, output: ToolOutput) -> ToolOutput:
        outcome = self._sandboxes[name].bring_in()
        if outcome is None:
            return output
        self.changed([each.path.relative for each in outcome.changed], by=name)
        listed, stored = within_entry(tuple(changes_of(outcome.changed)), self._keep)
        refused = tuple(RefusedPath(each.path, each.code, each.rule) for each in outcome.refused)
        content = output.content
        if outcome.conflict:
            content += f"\n[its changes were discarded: {outcome.conflict}]"
        if refused:
            names = ", ".join(quote(each.path) for each in refused[:20])
            content += f"\n[changes refused by policy: {len(refused)}: {names}]"
        return output._replace(
            content=content,
            changes=listed,
            stored=stored,
            bytes_written=outcome.bytes_written,
            refused=refused,
        )

    def changed(self, paths: Iterable[str], by: str = "") -> None:
        """Show other changes of the workspace to the servers that have files."""
        for name, each in self._sandboxes.items():
            if name != by:
                each.changed(paths)

    # --- for a person ---------------------------------------------------------------------

    def look(self, name: str) -> tuple[str, tuple[Definition, ...]]:
        """Start it, and return its version and definitions. Raises: SandboxUnavailableError."""
        live = self._loop.submit(self._connections[name].live()).result()
        return live.version, tuple(live.definitions.values())

    def prompts(self) -> list[tuple[str, Definition]]:
        """Return the reviewed prompts, each with its server."""
        return [(name, each) for name in self.names for each in self._pins[name].of("prompt")]

    def listed(self, name: str, request: Any, result: Any, member: str) -> list[dict[str, Any]]:
        """Return a server's resources, or their templates; empty if it has none."""

        async def pages() -> list[dict[str, Any]]:
            connection = self._connections[name]
            live = await connection.live()
            self._require_reviewed(name, live)
            has_any = live.client.server_capabilities.resources is not None
            return await connection.pages(live, request, result, member) if has_any else []

        return self._loop.submit(pages()).result()

    def close(self) -> None:
        """End every server. A later call is refused."""
        self._loop.close(self._close_all)

    async def _close_all(self) -> None:
        await asyncio.gather(
            *(each.close() for each in self._connections.values()), return_exceptions=True
        )


def _closed() -> SandboxUnavailableError:
    return SandboxUnavailableError(
        "the MCP servers of this runtime have been closed", hint="open the workspace again"
    )


def _unreviewed(name: str, why: str) -> UnknownToolError:
    return UnknownToolError(
        f"the MCP server {quote(name)} is not as it was reviewed: {why}",
        hint=f"ask a person to review it: paddock mcp review {name}",
    )


def output_of(answer: dict[str, Any], pairs: Pairs, keep: Keep) -> ToolOutput:
    """Return a result in the protocol's form: visible, truncated, without credentials' values.

    Threat: it is untrusted text that a model reads. It may contain invisible characters, be
    endless, or reveal a credential's value.
    """
    shown: Any = show_values(answer, lambda text: show_text(_replaced(text, pairs)))
    whole = json.dumps(shown, ensure_ascii=False).encode("utf-8", "surrogatepass")
    shown.pop("_meta", None)
    blocks: list[Any] = [*shown.pop("content", [])]
    notice = ""
    if len(whole) > RESULT_BYTES_MAX:
        digest = keep(whole)
        blocks, shown = _cut(blocks), {"isError": shown.get("isError", False)}
        notice = (
            f"[TRUNCATED at {RESULT_BYTES_MAX} bytes: the result has {len(whole)}, kept in the "
            f"history as {digest}; a person prints it with paddock ledger content]"
        )
        blocks.append({"type": "text", "text": notice})
    content = "\n".join(map(_text_of, blocks))
    if not content and "structuredContent" in shown:
        content = json.dumps(shown["structuredContent"], ensure_ascii=False)
    if shown.get("isError"):
        content = f"[the server reports an error]\n{content}"
    return ToolOutput(content, {"mcp": {**shown, "content": blocks}})


def _replaced(text: str, pairs: Pairs) -> str:
    for value, placeholder in pairs:
        text = text.replace(value, placeholder)
    return text


def _cut(blocks: Iterable[Any]) -> list[Any]:
    """Keep the first blocks that fit; of a text block, its beginning."""
    kept: list[Any] = []
    room = RESULT_BYTES_MAX
    for block in blocks:
        size = len(json.dumps(block).encode())
        if size > room:
            if block.get("type") == "text":
                text = str(block.get("text")).encode()[:room].decode("utf-8", "ignore")
                kept.append({"type": "text", "text": text})
            break
        kept.append(block)
        room -= size
    return kept


def _text_of(block: dict[str, Any]) -> str:
    kind = str(block.get("type"))
    if kind == "text":
        return str(block.get("text", ""))
    of: dict[str, Any] = block.get("resource", block)
    if "text" in of:
        return f"[{show_name(str(of.get('uri')))}]\n{of['text']}"
    what = of.get("uri") or of.get("mimeType") or ""
    size = len(str(of.get("data") or of.get("blob") or ""))
    more = f", {size} characters of base64" if size else ""
    return f"[{show_name(kind)} {show_name(str(what))}{more}]"
