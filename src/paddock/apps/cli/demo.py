"""`paddock demo`: the tour, on a governed copy of the project at hand. Everything is real."""

import argparse
import os
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from paddock.apps.cli.console import Console
from paddock.apps.cli.demo_commands import TOUR, CommandTour, DemoScene, SessionTour, copy_project
from paddock.apps.cli.options import Options
from paddock.assembly.opening import init_project, open_project
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.trust import review_trust, trust_policy
from paddock.errors import (
    ApprovalUnavailableError,
    PathTraversalError,
    ProtectedPathError,
    UsageError,
)
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from paddock.plane.environment import Environment
from paddock.plane.layout import LedgerName
from paddock.policy.actions import parse_action
from paddock.policy.questions.explain import explain
from paddock.runtime.approvals import Approver, NoApprover, YesApprover
from paddock.text.show import show_name
from paddock.values.calls import Json, ToolResult

_ASK_RULE = """

[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:output:*"]
ask   = ["tool:file:delete **"]                # someone is asked before anything is deleted
otherwise = { "tool:shell:*" = "ask" }         # and before a command runs
"""
_NEXT = """
In a project of yours: paddock init, then paddock call view '{"path": "."}'
Beside Claude Code or Codex: paddock hook install. In your own agent: docs/guides/embed.md"""
_NOTE = f"{TOUR}-note.md"
_LINK = f"{TOUR}-shortcut"
_MARGIN = "    "
_ROW_CHARS_MAX = 110
_ROWS_MAX = 20
"""Of one act."""
_COLUMNS_MIN = 40


class Demo:
    summary = (
        "Take the tour on a fresh governed copy of the project at hand: an allowed call, a\n"
        "question, refusals, an explanation, commands that the kernel holds and that are taken\n"
        "back, a whole session of the built-in model, and a ledger that catches an edited byte."
    )
    examples = "  paddock demo\n  paddock demo --keep /tmp/paddock-demo"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--keep", metavar="DIR", help="make the copy in DIR and keep it")

    def run(self, options: Options, console: Console) -> int:
        if options.keep is None:
            with tempfile.TemporaryDirectory(prefix="paddock-demo-") as directory:
                return _play(Path(directory), options, console)
        directory = console.directory / options.keep
        if os.path.lexists(directory):
            raise UsageError(f"{directory} exists", hint="name a directory that is not there yet")
        try:
            # What is copied may be private.
            directory.mkdir(parents=True, mode=0o700)
        except OSError as failure:
            raise UsageError(f"{directory} cannot be made: {failure.strerror}") from failure
        status = _play(directory, options, console)
        if not options.json:
            console.say(f"kept in {directory}")
        return status


def _play(directory: Path, options: Options, console: Console) -> int:
    stage = _set_up(directory, console)
    tour = Tour(stage, directory)
    scenes: list[DemoScene] = []
    for scene in tour.scenes():
        scenes.append(scene)
        if not options.json:
            _show(scene, console)
    if options.json:
        console.write_json([scene.as_json() for scene in scenes])
    elif tour.surprises:
        console.say(f"unexpected: {', '.join(tour.surprises)}")
    else:
        console.say(_NEXT)
    return 1 if tour.surprises else 0


def _set_up(directory: Path, console: Console) -> Project:
    copied = copy_project(console.directory, directory / "project")
    environment = Environment(
        home=directory, paddock_home=directory / "state", config_home=directory / "config"
    )
    console.warn(copied.said())
    result = init_project(directory / "project", environment)
    result.policy_file.write_bytes(result.policy_file.read_bytes() + _ASK_RULE.encode())
    trust_policy(review_trust(result.root.path, environment), environment, by="demo")
    return open_project(result.root.path, environment)


def _show(scene: DemoScene, console: Console) -> None:
    colour = {"allowed": "32", "refused": "31", "asked": "33"}.get(scene.outcome, "36")
    console.say("")
    console.print(console.paint(scene.title, "1") + "\n")
    # What is said to a model has a prompt of its own.
    prompt = "" if scene.did.startswith("> ") else "$ "
    width = min(_columns(console) - len(_MARGIN), _ROW_CHARS_MAX)
    for line in textwrap.wrap(
        f"{prompt}{scene.did}", width, subsequent_indent=_MARGIN, break_on_hyphens=False
    ):
        console.say(f"  {line}")
    console.print(f"  {console.paint(scene.outcome, colour)}\n")
    rows = [line for row in scene.detail.split("\n") for line in _wrapped(row, width)]
    for line in rows[:_ROWS_MAX]:
        console.say(f"{_MARGIN}{line}")
    if len(rows) > _ROWS_MAX:
        console.say(f"{_MARGIN}[{len(rows) - _ROWS_MAX} more lines; --json shows them]")


def _wrapped(row: str, width: int) -> list[str]:
    indent = " " * min(len(row) - len(row.lstrip(" ")), width // 2)
    wrapped = textwrap.wrap(row, width, subsequent_indent=indent, break_on_hyphens=False)
    return wrapped or [""]


def _columns(console: Console) -> int:
    try:
        return max(os.get_terminal_size(console.stdout.fileno()).columns, _COLUMNS_MIN)
    except (OSError, ValueError):
        return _ROW_CHARS_MAX + len(_MARGIN)


class Tour:
    def __init__(self, project: Project, directory: Path) -> None:
        self._project = project
        self._directory = directory
        self.surprises: list[str] = []

    def scenes(self) -> Iterator[DemoScene]:
        for act in self._acts():
            yield act()
        commands = CommandTour(self._project, self._outside)
        yield from commands.scenes()
        self.surprises += commands.surprises
        session = SessionTour(self._project)
        yield from session.scenes()
        self.surprises += session.surprises
        yield self.recorded()
        yield self.tampered()

    def _acts(self) -> list[Callable[[], DemoScene]]:
        return [
            self.look,
            self.write,
            self.edit,
            self.ask_nobody,
            self.ask_someone,
            self.protected,
            self.own_policy,
            self.dots,
            self.link,
            self.explained,
        ]

    def look(self) -> DemoScene:
        name = self._some_text_file()
        result = self._call("view", {"path": name, "limit": 3})
        return self._scene("An agent looks at a file", f"view {name}", result, "allowed")

    def write(self) -> DemoScene:
        arguments = {"path": _NOTE, "content": "one\ntwo\nthree\n"}
        result = self._call("create_file", arguments)
        return self._scene("It writes one", f"create_file {_NOTE}", result, "allowed")

    def edit(self) -> DemoScene:
        arguments = {"path": _NOTE, "old_str": "two", "new_str": "2"}
        result = self._call("str_replace", arguments)
        return self._scene("It changes one word", f"str_replace {_NOTE}", result, "allowed")

    def ask_nobody(self) -> DemoScene:
        result = self._call("delete_file", {"path": _NOTE})
        return self._scene(
            "Its policy asks about deleting, and nobody is there to ask",
            f"delete_file {_NOTE}",
            result,
            ApprovalUnavailableError.code,
        )

    def ask_someone(self) -> DemoScene:
        result = self._call("delete_file", {"path": _NOTE}, YesApprover("demo"))
        return self._scene("Somebody says yes", f"delete_file {_NOTE}", result, "allowed")

    def protected(self) -> DemoScene:
        arguments = {"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"}
        result = self._call("create_file", arguments)
        return self._scene(
            "It tries to plant a git hook",
            "create_file .git/hooks/pre-commit",
            result,
            ProtectedPathError.code,
        )

    def own_policy(self) -> DemoScene:
        arguments = {"path": "paddock.toml", "content": '[profiles.standard]\nallow = ["tool:*"]\n'}
        result = self._call("create_file", arguments)
        return self._scene(
            "It tries to rewrite its own policy",
            "create_file paddock.toml",
            result,
            ProtectedPathError.code,
        )

    def dots(self) -> DemoScene:
        result = self._call("view", {"path": "docs/../../secret.txt"})
        return self._scene(
            "It tries to climb out", "view docs/../../secret.txt", result, PathTraversalError.code
        )

    def link(self) -> DemoScene:
        self._outside.parent.mkdir()
        self._outside.write_text("not for agents\n", encoding="utf-8")
        (self._project.root.path / _LINK).symlink_to(self._outside.parent)
        result = self._call("create_file", {"path": f"{_LINK}/diary.txt", "content": "gotcha\n"})
        if self._outside.read_text(encoding="utf-8") != "not for agents\n":
            self.surprises.append("the file outside was changed")
        return self._scene(
            "A link leads out of the workspace, and the kernel will not pass it",
            f"create_file {_LINK}/diary.txt",
            result,
            PathTraversalError.code,
        )

    def explained(self) -> DemoScene:
        text = "tool:file:create .git/hooks/pre-commit"
        chain = self._project.agents.chain(self._project.default_agent)
        explanation = explain(self._project.policy, chain, parse_action(text))
        return DemoScene(
            "Why was that?", f"paddock policy explain '{text}'", "explained", explanation.render()
        )

    def recorded(self) -> DemoScene:
        path = str(self._project.layout.ledger_paths()[LedgerName.HO1M])
        rows = [
            f"{row.seq:>3}  {row.entry.event_type:<12} "
            f"{show_name(row.entry.decision):<6} "
            f"{show_name(str(row.entry.metadata.get('tool', '')))} {show_name(row.entry.reason)}"
            for row in query(path, Filter(), last=6).entries
        ]
        report = verify(path)
        if report.problems:
            self.surprises.append("the ledger does not verify")
        head = "" if report.head is None else f", head {report.head.hash[:16]}"
        said = f"{report.entries} entries, chain whole{head}"
        return DemoScene(
            "All of it is on record",
            "paddock ledger query --ledger ho1m --last 6; paddock ledger verify",
            "verified",
            "\n".join([*rows, said]),
        )

    def tampered(self) -> DemoScene:
        path = self._project.layout.ledger_paths()[LedgerName.HO1M]
        copy = self._directory / "tampered.jsonl"
        shutil.copyfile(path, copy)
        content = bytearray(copy.read_bytes())
        at = content.index(b'"decision":"deny"') + len(b'"decision":"')
        content[at : at + 4] = b"deni"
        copy.write_bytes(bytes(content))
        report = verify(str(copy))
        if not report.problems:
            self.surprises.append("the changed byte was not found")
        said = "\n".join(f"line {p.line}: {p.kind}: {p.detail}" for p in report.problems)
        return DemoScene(
            "Somebody edits one byte of a copy of it",
            "sed 's/deny/deni/' …; paddock ledger verify",
            "caught",
            said,
        )

    @property
    def _outside(self) -> Path:
        return self._directory / "outside" / "diary.txt"

    def _call(
        self, tool: str, arguments: dict[str, Json], approver: Approver | None = None
    ) -> ToolResult:
        with open_runtime(self._project, agent=None, approver=approver or NoApprover()) as runtime:
            return runtime.call(tool, arguments)

    def _scene(self, title: str, did: str, result: ToolResult, expected: str) -> DemoScene:
        ended = "allowed" if result.refusal is None else result.refusal.code
        if ended != expected:
            self.surprises.append(f"{did} ended as {ended}, not as {expected}")
        outcome = "refused" if result.refusal is not None else "allowed"
        if ended.startswith("approval."):
            outcome = "asked"
        return DemoScene(title, did, outcome, result.content)

    def _some_text_file(self) -> str:
        root = self._project.root.path
        for name in ("README.md", "README.rst", "README", "pyproject.toml"):
            if _is_text(root / name):
                return name
        return "."


def _is_text(path: Path) -> bool:
    try:
        return "\0" not in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


COMMAND = Demo()
