"""One HTML page that holds a part of a ledger and verifies it in the reader's browser.

The page needs nothing from anywhere: its program, its style and its data stand in it,
and its Content-Security-Policy (a `meta` element, CSP level 3) lets nothing else run or
load. The program is in `page/`; what it verifies, and what it cannot, it says itself.

Threat: what a ledger holds, an agent chose. It stands in the page as text alone, with
the three characters that begin markup replaced, and the program puts it nowhere else.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from paddock.errors import HostError
from paddock.ledger.export import LeftOut, Row

_FOLDER: Final = Path(__file__).with_name("page")
_SCRIPTS: Final = ("sha2.js", "ed25519.js", "verify.js", "show.js")
_POLICY: Final = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class PageText:
    """What stands on a page besides the rows. `key` is that of line 0; `notes` as stored."""

    title: str
    about: str
    key: str
    notes: Sequence[str]


def make_page(text: PageText, rows: Iterable[Row]) -> bytes:
    """Return the page.

    Raises: HostError where a part of the program cannot be read.
    """
    style = _read("page.css")
    # One function around all of it: nothing of the page is a global that a name could shadow.
    script = f'"use strict";\n(() => {{\n{"".join(_read(name) for name in _SCRIPTS)}}})();\n'
    parts = {
        "POLICY": _POLICY.format(script=_digest(script), style=_digest(style)),
        "TITLE": _escaped(text.title),
        "ABOUT": _escaped(text.about),
        "KEY": _escaped(text.key),
        "NOTES": "\n".join(
            f'<pre class="note" hidden>\n{_escaped(note)}</pre>' for note in text.notes
        ),
        "LINES": "".join(f"{_row_text(row)}\n" for row in rows),
        "STYLE": style,
        "SCRIPT": script,
    }
    # Cut at the marks once: what a ledger holds may hold such a mark, and is not looked at.
    pieces = _read("page.html").split("@")
    filled = [parts[piece] if number % 2 else piece for number, piece in enumerate(pieces)]
    return "".join(filled).encode()


def _row_text(row: Row) -> str:
    if isinstance(row, LeftOut):
        return f"#{row.level} {row.root.hex()}"
    try:
        line = row.decode()
    except UnicodeDecodeError:
        line = ""
    # An HTML parser changes CR and NUL, and a row of ours begins with its mark.
    if line.startswith("{") and not any(char < " " for char in line):
        return _escaped(line)
    return f"={b64encode(row).decode()}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    try:
        return (_FOLDER / name).read_text(encoding="utf-8")
    except OSError as fault:
        raise HostError(f"a part of the page is missing: {fault.strerror}", where=name) from fault
