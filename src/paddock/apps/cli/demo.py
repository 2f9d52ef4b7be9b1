"""`paddock demo`: a tour on a copy of the current project. Calls and records are real."""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from paddock import errors
from paddock.agent.events import CallFinished, Event
from paddock.agent.sessions import Session
from paddock.apps.command import Command, Options, flag, opt
from paddock.apps.console import Console
from paddock.assembly.history import open_inbox
from paddock.assembly.project import Project
from paddock.assembly.project_open import init_project, open_project
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.sessions import SessionWish, open_session, sessions_of
from paddock.assembly.trust import review_trust, trust_policy
from paddock.assembly.undo import open_past
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.policy.questions.explain import explain
from paddock.policy.rules import parse_action
from paddock.runtime.approvals import Approver, NoApprover, YesApprover
from paddock.text.show import show_name
from paddock.values.calls import Json, ToolResult
from paddock.values.entries import TURN_RECORDED

TOUR: Final = "paddock-demo"
"""Prefix of the files that the tour creates."""
_ASK_RULE = """

[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:output:*"]
ask   = ["tool:file:delete **"]                # a person is asked before a file is deleted
otherwise = { "tool:shell:*" = "ask" }         # and before a command runs
"""
_NEXT = """
In your own project: paddock init, then paddock call view '{"path": "."}'
With Claude Code or Codex: paddock hook install. In your own agent: docs/guides/embed.md"""
_NOTE = f"{TOUR}-note.md"
_LINK = f"{TOUR}-shortcut"
_SESSION_NOTE = f"{TOUR}-session.md"
_MARGIN = "    "
_ROW_CHARS_MAX = 110
_ROWS_MAX = 20
"""Of one scene."""
_COLUMNS_MIN = 40
_ANSWER_ROWS_MAX = 8


class DemoScene(Struct, frozen=True):
    title: str
    did: str
    outcome: str
    detail: str


def _demo(options: Options, console: Console) -> int:
    play = _show_page if options.web else _play
    if options.keep is None:
        with tempfile.TemporaryDirectory(prefix="paddock-demo-") as directory:
            return play(Path(directory), options, console)
    directory = console.directory / options.keep
    if os.path.lexists(directory):
        raise errors.UsageError(f"{directory} exists already", hint="name a new directory")
    try:
        # The copied files may be private.
        directory.mkdir(parents=True, mode=0o700)
    except OSError as failure:
        raise errors.UsageError(f"cannot create {directory}: {failure.strerror}") from failure
    status = play(directory, options, console)
    if not options.json:
        console.say(f"kept in {directory}")
    return status


def _play(directory: Path, options: Options, console: Console) -> int:
    tour = Tour(_governed(directory, console, _ASK_RULE), directory)
    scenes: list[DemoScene] = []
    for scene in tour.scenes():
        scenes.append(scene)
        if not options.json:
            _show(scene, console)
    if options.json:
        console.write_json(to_builtins(scenes))
    else:
        surprises = ", ".join(tour.surprises)
        console.say(f"unexpected: {surprises}" if surprises else _NEXT)
    return 1 if tour.surprises else 0


def _governed(directory: Path, console: Console, rules: str) -> Project:
    """Copy the current project, with a separate Paddock home and these rules."""
    environment = read_environment(_variables(directory, console))
    console.warn(_copy_project(console.directory, directory / "project"))
    made = init_project(directory / "project", environment)
    made.policy_file.write_bytes(made.policy_file.read_bytes() + rules.encode())
    trust_policy(review_trust(made.root.path, environment), environment, by="demo")
    return open_project(made.root.path, environment)


def _variables(directory: Path, console: Console) -> dict[str, str]:
    own = {"PADDOCK_HOME": str(directory / "state"), "XDG_CONFIG_HOME": str(directory / "config")}
    kept = {name: console.variables[name] for name in ("PATH",) if name in console.variables}
    return {**kept, **own, "HOME": str(directory)}


def _show_page(directory: Path, options: Options, console: Console) -> int:
    from paddock.apps.cli.main import load_command
    from paddock.apps.command import parse

    project = _governed(directory, console, _ASK_RULE + _ASK_DIFF)
    agent = DemoAgent(project)
    here = replace(console, directory=project.root.path, variables=_variables(directory, console))
    command, arguments = load_command("web"), ["--no-browser"] * options.no_browser
    asked = parse(command, "web", [*arguments, *["--json"] * options.json], None, here)
    agent.thread.start()
    try:
        return command.run(cast("Options", asked), here)
    finally:
        agent.stopped.set()
        agent.thread.join()


_ASK_DIFF: Final = """
[shell]
approve = "diff"                               # a question about a command shows its changes
"""
_PAUSE_S: Final = 2.0
_WORK: Final[tuple[tuple[str, dict[str, Json]], ...]] = (
    ("ls", {"path": "."}),
    ("create_file", {"path": f"{TOUR}-plan.md", "content": "# Plan\n\n1. look\n2. change\n"}),
    ("grep", {"pattern": "import", "path": "."}),
    ("str_replace", {"path": f"{TOUR}-plan.md", "old_str": "2. change", "new_str": "2. ask"}),
    ("run_shell", {"command": f"sed -i 's/1. look/1. look twice/' {TOUR}-plan.md"}),
    ("create_file", {"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"}),
    ("view", {"path": f"{TOUR}-plan.md"}),
    ("delete_file", {"path": f"{TOUR}-plan.md"}),
)


class DemoAgent:
    """Repeats the same calls; waits whenever a call needs an answer."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._work, name="paddock-demo")

    def _work(self) -> None:
        with open_session(self._project, SessionWish(model="builtin")) as session:
            session.handle_turn(_LINES[0].did)
        while not self.stopped.is_set():
            for tool, arguments in _WORK:
                if self.stopped.wait(_PAUSE_S):
                    return
                kept = self._call(tool, arguments).as_json().get("approval")
                while kept and self._state(kept) == "waiting" and not self.stopped.wait(_PAUSE_S):
                    pass
                # No state: the user had the call run at once.
                if kept and self._state(kept) and not self.stopped.is_set():
                    self._call(tool, arguments)

    def _state(self, kept: Json) -> str:
        found = open_inbox(self._project).list_all()
        return next((each.state for each in found if each.id == kept), "")

    def _call(self, tool: str, arguments: dict[str, Json]) -> ToolResult:
        # Opened each time: the user may have changed the policy meanwhile.
        project = open_project(self._project.root.path, self._project.environment)
        with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
            return runtime.call(tool, arguments)


def _show(scene: DemoScene, console: Console) -> None:
    colour = {"allowed": "32", "refused": "31", "asked": "33"}.get(scene.outcome, "36")
    console.say("")
    console.print(console.paint(scene.title, "1") + "\n")
    # A message to a model has its own prompt.
    prompt = "" if scene.did.startswith("> ") else "$ "
    width = _ROW_CHARS_MAX
    with suppress(OSError, ValueError):
        columns = os.get_terminal_size(console.stdout.fileno()).columns
        width = min(max(columns, _COLUMNS_MIN) - len(_MARGIN), width)
    for line in _wrapped(f"{prompt}{scene.did}", width, _MARGIN):
        console.say(f"  {line}")
    console.print(f"  {console.paint(scene.outcome, colour)}\n")
    rows: list[str] = []
    for row in scene.detail.split("\n"):
        rows += _wrapped(row, width, " " * min(len(row) - len(row.lstrip(" ")), width // 2)) or [""]
    for line in rows[:_ROWS_MAX]:
        console.say(f"{_MARGIN}{line}")
    if len(rows) > _ROWS_MAX:
        console.say(f"{_MARGIN}[{len(rows) - _ROWS_MAX} more lines; --json shows them]")


def _wrapped(row: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(row, width, subsequent_indent=indent, break_on_hyphens=False)


class DemoAct(Struct, frozen=True):
    title: str
    did: str
    """The tool and the arguments, as shown to the reader; or a message to the model."""
    arguments: dict[str, Json] = {}
    code: str = ""
    is_approved: bool = False


_ACTS: Final = (
    DemoAct(
        "It creates a file", f"create_file {_NOTE}", {"path": _NOTE, "content": "one\ntwo\nthree\n"}
    ),
    DemoAct(
        "It changes one word",
        f"str_replace {_NOTE}",
        {"path": _NOTE, "old_str": "two", "new_str": "2"},
    ),
    DemoAct(
        "Its policy asks before a delete, and no approver is there",
        f"delete_file {_NOTE}",
        {"path": _NOTE},
        errors.ApprovalUnavailableError.code,
    ),
    DemoAct("The approver says yes", f"delete_file {_NOTE}", {"path": _NOTE}, is_approved=True),
    DemoAct(
        "It tries to plant a git hook",
        "create_file .git/hooks/pre-commit",
        {"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"},
        errors.ProtectedPathError.code,
    ),
    DemoAct(
        "It tries to rewrite its own policy",
        "create_file paddock.toml",
        {"path": "paddock.toml", "content": '[profiles.standard]\nallow = ["tool:*"]\n'},
        errors.ProtectedPathError.code,
    ),
    DemoAct(
        "It tries to leave its workspace",
        "view docs/../../secret.txt",
        {"path": "docs/../../secret.txt"},
        errors.PathTraversalError.code,
    ),
)
_BY_LINK: Final = DemoAct(
    "A symlink leads out of the workspace; the kernel refuses to follow it",
    f"create_file {_LINK}/diary.txt",
    {"path": f"{_LINK}/diary.txt", "content": "gotcha\n"},
    errors.PathTraversalError.code,
)
_LINES: Final = (
    DemoAct("A model works: the built-in one, without an API key", "what files are there?"),
    DemoAct("It writes", f'write a file at {_SESSION_NOTE} with the content "a model was here"'),
    DemoAct("It searches", f'search for "a model was here" in {_SESSION_NOTE}'),
    DemoAct(
        "It may not delete without approval",
        f"delete {_SESSION_NOTE}",
        code=errors.ApprovalUnavailableError.code,
    ),
    DemoAct(
        "It is asked to write a protected file",
        'write a file at .git/hooks/post-merge with the content "boom"',
        code=errors.ProtectedPathError.code,
    ),
)
_LIST: Final = f"{TOUR}-list.md"
_HOOK: Final = ".git/hooks/post-checkout"
_BEFORE: Final = "one\ntwo\n"
_AFTER: Final = "1\ntwo\n"


class Tour:
    def __init__(self, project: Project, directory: Path) -> None:
        self._project = project
        self._root = project.root.path
        self._directory = directory
        self._outside = directory / "outside" / "diary.txt"
        """A file outside the workspace of every agent."""
        self._calls: list[CallFinished] = []
        self.surprises: list[str] = []

    def scenes(self) -> Iterator[DemoScene]:
        name = self._some_text_file()
        look = {"path": name, "limit": 3}
        yield self._act(DemoAct("An agent reads a file", f"view {name}", look))
        yield from map(self._act, _ACTS)
        yield self._link()
        yield self._explained()
        yield from self._commands()
        with open_session(self._project, SessionWish(model="builtin", listener=self)) as session:
            for line in _LINES:
                yield self._say(line, session)
        yield self._session_recorded(session.session_id)
        yield self._recorded()
        yield self._tampered()

    def _act(self, act: DemoAct) -> DemoScene:
        tool = act.did.partition(" ")[0]
        approver = YesApprover("demo") if act.is_approved else NoApprover()
        result = self._call(tool, act.arguments, approver)
        code = _code(result)
        ended = f"{act.did} ended as {code or 'allowed'}, not as {act.code or 'allowed'}"
        self._expect(code == act.code, ended)
        return DemoScene(act.title, act.did, _outcome(code), result.content)

    def _link(self) -> DemoScene:
        self._outside.parent.mkdir()
        self._outside.write_text("not for agents\n", encoding="utf-8")
        (self._root / _LINK).symlink_to(self._outside.parent)
        scene = self._act(_BY_LINK)
        unchanged = self._outside.read_text(encoding="utf-8") == "not for agents\n"
        self._expect(unchanged, "the file outside was changed")
        return scene

    def _explained(self) -> DemoScene:
        text = "tool:file:create .git/hooks/pre-commit"
        chain = self._project.agents.chain(self._project.default_agent)
        explanation = explain(self._project.policy, chain, parse_action(text)).render()
        did = f"paddock policy explain '{text}'"
        return DemoScene("Why was the git hook refused?", did, "explained", explanation)

    # Commands: in an overlay, held by the kernel, and undone.

    def _commands(self) -> Iterator[DemoScene]:
        secret = self._outside.read_bytes()
        (self._root / _LIST).write_text(_BEFORE, encoding="utf-8")
        # Paddock would refuse a plain write at once; inside a program only the kernel stops it.
        command = f"""sed -i s/one/1/ {_LIST}; python3 -c "open('{_HOOK}', 'w').write('boom')\""""
        changed = self._run({"command": command})
        code = _code(changed)
        title = "It runs a command; each change it makes is judged like a tool call"
        outcome = "refused" if code else "allowed"
        yield DemoScene(title, f"run_shell {command}", outcome, changed.content)
        if code == errors.SandboxUnavailableError.code:
            return
        self._expect(not code, "the command did not run")
        self._expect(self._has_list(_AFTER), "no edit")
        self._expect(not (self._root / _HOOK).exists(), "a command planted a git hook")

        outside = shlex.quote(str(self._outside))
        online = "getent hosts example.com || echo no network"
        command = f"cat {outside}; echo gotcha > {outside}; {online}"
        result = self._run({"command": command})
        is_held = self._outside.read_bytes() == secret and secret.decode() not in result.content
        self._expect(is_held, "a command got out")
        title = "A command tries to leave the sandbox, and the kernel stops it"
        outcome = "held" if is_held else "got out"
        yield DemoScene(title, f"run_shell {command}", outcome, result.content)
        if "sandbox: stage" in changed.content:
            yield from self._dry_run_and_undo(changed.call_id)

    def _dry_run_and_undo(self, call_id: str) -> Iterator[DemoScene]:
        command = f"sed -i s/two/2/ {_LIST}"
        result = self._run({"command": command, "dry_run": True})
        is_allowed = result.refusal is None
        self._expect(self._has_list(_AFTER) and is_allowed, "a dry run changed something")
        title = "A dry run only shows what a command would change"
        outcome = "allowed" if is_allowed else "refused"
        yield DemoScene(title, f"run_shell {command}  (dry_run)", outcome, result.content)
        with open_past(self._project) as past:
            result = past.undo(past.find(call_id)).result
        self._expect(self._has_list(_BEFORE), "no undo")
        title = "The changes of the first command are undone"
        outcome = "undone" if result.refusal is None else "refused"
        yield DemoScene(title, f"paddock undo {call_id}", outcome, result.content)

    # A session of the built-in model

    def heard(self, event: Event) -> None:
        if isinstance(event, CallFinished):
            self._calls.append(event)

    def _say(self, line: DemoAct, session: Session) -> DemoScene:
        self._calls.clear()
        result = session.handle_turn(line.did)
        calls = self._calls
        code = _code(calls[-1].result) if calls else ""
        ended = f"{line.did!r} ended as {code or 'allowed'}"
        self._expect(bool(calls) and code == line.code, ended)
        rows = [
            f"  {show_name(call.tool)} {json.dumps(dict(call.arguments))} "
            + (f"did not run: {refused}" if (refused := _code(call.result)) else "ran")
            for call in calls
        ]
        said = result.response.split("\n")
        missing = len(said) - _ANSWER_ROWS_MAX
        said = [*said[:_ANSWER_ROWS_MAX], *([f"[{missing} more lines]"] if missing > 0 else [])]
        return DemoScene(line.title, f"> {line.did}", _outcome(code), "\n".join([*rows, *said]))

    def _session_recorded(self, session_id: str) -> DemoScene:
        wanted = Filter(TURN_RECORDED, session_id=session_id)
        turns = sessions_of(self._project).query(LedgerName.HO2M, wanted, None).entries
        report = verify(str(self._project.layout.ledger_paths()[LedgerName.HO2M]))
        is_whole = not report.problems and len(turns) == len(_LINES)
        self._expect(is_whole, "the session is not recorded")
        rows = [
            f"turn {row.entry.metadata.get('turn')}  {row.entry.metadata.get('outcome')}  "
            f"{row.entry.metadata.get('user_message')}"
            for row in turns
        ]
        detail = "\n".join([*rows, f"{report.entries} entries, chain whole"])
        command = f"paddock session show {session_id}; paddock ledger verify --ledger ho2m"
        return DemoScene("The whole session is recorded", command, "verified", detail)

    # The ledger

    def _recorded(self) -> DemoScene:
        path = str(self._project.layout.ledger_paths()[LedgerName.HO1M])
        rows = [
            f"{row.seq:>3}  {row.entry.event_type:<12} "
            f"{show_name(row.entry.decision):<6} "
            f"{show_name(str(row.entry.metadata.get('tool', '')))} {show_name(row.entry.reason)}"
            for row in query(path, Filter(), last=6).entries
        ]
        report = verify(path)
        self._expect(not report.problems, "the ledger does not verify")
        head = "" if report.head is None else f", head {report.head.hash[:16]}"
        return DemoScene(
            "All calls are recorded",
            "paddock ledger query --ledger ho1m --last 6; paddock ledger verify",
            "verified",
            "\n".join([*rows, f"{report.entries} entries, chain whole{head}"]),
        )

    def _tampered(self) -> DemoScene:
        copy = self._directory / "tampered.jsonl"
        shutil.copyfile(self._project.layout.ledger_paths()[LedgerName.HO1M], copy)
        content = bytearray(copy.read_bytes())
        at = content.index(b'"decision":"deny"') + len(b'"decision":"')
        content[at : at + 4] = b"deni"
        copy.write_bytes(bytes(content))
        report = verify(str(copy))
        self._expect(bool(report.problems), "the changed byte was not detected")
        return DemoScene(
            "An attacker edits one byte in a copy of the ledger",
            "sed 's/deny/deni/' …; paddock ledger verify",
            "caught",
            "\n".join(f"line {p.line}: {p.kind}: {p.detail}" for p in report.problems),
        )

    def _has_list(self, text: str) -> bool:
        return (self._root / _LIST).read_text(encoding="utf-8") == text

    def _run(self, arguments: dict[str, Json]) -> ToolResult:
        return self._call("run_shell", arguments, YesApprover("demo"))

    def _call(self, tool: str, arguments: dict[str, Json], approver: Approver) -> ToolResult:
        with open_runtime(self._project, agent=None, approver=approver) as runtime:
            return runtime.call(tool, arguments)

    def _expect(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.surprises.append(otherwise)

    def _some_text_file(self) -> str:
        for name in ("README.md", "README.rst", "README", "pyproject.toml"):
            with suppress(OSError, UnicodeDecodeError):
                if "\0" not in (self._root / name).read_text(encoding="utf-8"):
                    return name
        return "."


def _code(result: ToolResult) -> str:
    return "" if result.refusal is None else result.refusal.code


def _outcome(code: str) -> str:
    if code.startswith("approval."):
        return "asked"
    return "refused" if code else "allowed"


_FILES_MAX: Final = 2_000
_BYTES_MAX: Final = 50_000_000
_POLICIES: Final = frozenset({"paddock.toml", "paddock.json"})


def _copy_project(source: Path, target: Path) -> str:
    """Copy the files of `source` that git lists (without git: all); return a summary.

    At most 2,000 files and 50 MB, without symlinks, special files, the project's own
    policy (the tour has one) and files named like the tour's. The copy gets an empty
    `.git`, which makes it a separate project.
    """
    names = _git_files(source) or _plain_files(source)
    copied = bytes_copied = 0
    left = 0
    for name in names:
        file = source / name
        try:
            if name in _POLICIES or not file.is_file() or file.is_symlink():
                continue
            size = file.stat().st_size
            is_too_much = copied >= _FILES_MAX or bytes_copied + size > _BYTES_MAX
            if is_too_much or name.startswith(TOUR):
                left += 1
                continue
            destination = target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, destination)
        except OSError:
            left += 1  # Not readable by this user, or removed meanwhile.
            continue
        copied += 1
        bytes_copied += size
    (target / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    said = f"the tour works on a copy of {source} ({_files(copied)})"
    return f"{said}; {_files(left)} left out" if left else said


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _git_files(source: Path) -> list[str]:
    # Threat: the repository's configuration may name a program that git would start.
    safe = ["git", "-c", "core.fsmonitor=false"]
    command = [*safe, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=source, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return sorted(filter(None, done.stdout.decode("utf-8", "surrogateescape").split("\0")))


def _plain_files(source: Path) -> list[str]:
    found: list[str] = []
    for directory, below, names in os.walk(source):
        below[:] = sorted(name for name in below if name != ".git")
        here = Path(directory).relative_to(source)
        found += [str(here / name) for name in sorted(names) if name != ".git"]
        if len(found) > _FILES_MAX:
            break
    return found


COMMAND = Command(
    "Take a tour on a temporary copy of the current project: allowed and refused calls, an\n"
    "approval, an explanation, commands in the sandbox and their undo, a session of the\n"
    "built-in model, and a ledger that detects an edited byte. Your project is not changed.",
    "  paddock demo\n  paddock demo --keep /tmp/paddock-demo\n  paddock demo --web",
    opt("--keep", "DIR", "create the copy in DIR and keep it"),
    flag("--web", "open the console on the copy instead, with a running agent"),
    flag("--no-browser", "with --web: only print the address"),
    do=_demo,
)
