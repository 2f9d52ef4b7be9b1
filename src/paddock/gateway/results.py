"""A server's answer as a result: visible text, no longer than may be, without a credential's value.

Threat: a result is text of somebody else's that a model reads: it may hold what no person sees, be
endless, or bring back what the server was never to know.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from paddock.gateway.definitions import show_text, show_values
from paddock.text.show import show_name
from paddock.tools.spec import ToolOutput

RESULT_BYTES_MAX: Final = 100_000
Keep = Callable[[bytes], str]
"""Keep bytes in the history; return their digest. Raises: StorageFullError, HostError."""
Pairs = Sequence[tuple[str, str]]
"""Values of credentials, and what stands for each."""


def output_of(answer: dict[str, Any], pairs: Pairs, keep: Keep) -> ToolOutput:
    """Return what a call came to. `answer` is the result as the protocol has it."""
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
        content = f"[the server says that this failed]\n{content}"
    return ToolOutput(content, {"mcp": {**shown, "content": blocks}})


def _replaced(text: str, pairs: Pairs) -> str:
    for value, placeholder in pairs:
        text = text.replace(value, placeholder)
    return text


def _cut(blocks: Iterable[Any]) -> list[Any]:
    """Keep what fits, from the first on; of a text, its beginning."""
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
