"""Draw docs/images/session.svg: a terminal session that really ran, as an animation.

    make session          (python scripts/make_session.py)

Each command runs in a project of its own; what it prints is cut to the terminal's width. Where
animations are off, the picture stands still and shows everything.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from msgspec import Struct

SVG = Path(__file__).parents[1] / "docs" / "images" / "session.svg"
COLUMNS, ROW_PX, CHAR_PX, MARGIN_PX = 96, 20, 8.43, 18
TYPING_S, READING_S, END_S = 0.025, 1.4, 6.0
SESSION = (
    ("# An agent edits a file: allowed, recorded, undoable.", ""),
    ("paddock call str_replace path=README.md old_str=teh new_str=the", "content"),
    ("# It wants a secret, and a git hook: no, and which rule says so.", ""),
    ("paddock call view path=.env", "content"),
    ("paddock call create_file path=.git/hooks/pre-commit content=x", "content"),
    ("# A command runs without a question: the kernel holds it to the same policy.", ""),
    (
        "paddock call run_shell command='cat .env; curl -sS https://example.org; echo ok > new'",
        "shell",
    ),
    ("# What did it do? Take it back. And prove the record.", ""),
    ("paddock history", "text"),
    ("paddock undo \"$(paddock history | tail -n 1 | awk '{print $2}')\"", "text"),
    ("paddock ledger verify", "verify"),
)


class Row(Struct, frozen=True):
    """One line of the terminal, and when it comes."""

    text: str
    kind: str
    at_s: float


def _shown(kind: str, printed: str) -> list[str]:
    """What of an answer is shown: the first lines that a reader has to see."""
    lines = printed.splitlines()
    wanted = {
        "content": r"^edited|^error|^hint",
        "shell": r"exit code|created|files changed|^cat:|^curl:",
        "verify": r"whole",
    }.get(kind, "")
    return [line for line in lines if re.search(wanted, line)]


def _run(project: Path, home: Path) -> Iterator[Row]:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"HOME": str(home), "PATH": programs, "LC_ALL": "C.UTF-8", "TERM": "dumb"}
    at_s = 0.3
    for command, kind in SESSION:
        if not kind:
            yield Row(command, "remark", at_s)
            at_s += 0.6
            continue
        yield Row(f"$ {command}", "typed", at_s)
        at_s += TYPING_S * len(command) + 0.3
        # At a terminal a call prints the text alone.
        line = ["script", "-qec", command, "/dev/null"]
        done = subprocess.run(
            line, cwd=project, env=variables, capture_output=True, text=True, check=False
        )
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", done.stdout).replace(str(home), "~")
        for text in _shown(kind, plain):
            cut = text if len(text) <= COLUMNS else f"{text[: COLUMNS - 1]}…"
            yield Row(cut, "no" if text.startswith("error") else "printed", at_s)
        at_s += READING_S


_STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #c9d1d9 }
.remark { fill: #8b949e } .typed { fill: #f0f6fc; font-weight: 600 } .no { fill: #ff9492 }
"""


def _draw(rows: list[Row]) -> str:
    whole_s = rows[-1].at_s + END_S
    width, height = COLUMNS * CHAR_PX + 2 * MARGIN_PX, len(rows) * ROW_PX + 2 * MARGIN_PX
    said = 'role="img" aria-label="A terminal session with Paddock"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" {said}>',
        f"<style>{_STYLE}@media (prefers-reduced-motion: no-preference) {{",
        *(_appearing(number, row, whole_s) for number, row in enumerate(rows)),
        f'}}</style>\n<rect width="{width:.0f}" height="{height}" rx="10" fill="#0d1117"/>',
    ]
    for number, row in enumerate(rows):
        y = MARGIN_PX + ROW_PX * (number + 0.75)
        where = f'x="{MARGIN_PX}" y="{y:.0f}" xml:space="preserve"'
        parts.append(f'<text id="r{number}" class="{row.kind}" {where}>{escape(row.text)}</text>')
    return "\n".join((*parts, "</svg>\n"))


def _appearing(number: int, row: Row, whole_s: float) -> str:
    at = 100 * row.at_s / whole_s
    steps = f"0%, {at:.2f}%, 100% {{ opacity: 0 }} {at + 0.01:.2f}%, 99.5% {{ opacity: 1 }}"
    return (
        f"@keyframes r{number} {{ {steps} }} "
        f"#r{number} {{ animation: r{number} {whole_s:.1f}s linear infinite }}"
    )


def main() -> int:
    """Run the session, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=SVG)
    into = parser.parse_args().into
    with tempfile.TemporaryDirectory() as directory:
        home, project = Path(directory) / "home", Path(directory) / "home" / "widgets"
        project.mkdir(parents=True)
        (project / "README.md").write_text("# Widgets\n\nWidgets for teh web.\n")
        (project / ".env").write_text("TOKEN=of-nobody\n")
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        rows = list(_run(project, home))
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(_draw(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
