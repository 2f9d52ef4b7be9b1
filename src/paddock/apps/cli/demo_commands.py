"""The part of the tour in which commands run: on a layer, held by the kernel, and taken back."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from paddock.agent.events import CallFinished, Event
from paddock.agent.sessions import Session
from paddock.assembly.past import open_past
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.sessions import SessionWish, open_session, sessions_of
from paddock.errors import ApprovalUnavailableError, ProtectedPathError, SandboxUnavailableError
from paddock.ledger.query import Filter
from paddock.ledger.verify import verify
from paddock.plane.layout import LedgerName
from paddock.runtime.approvals import YesApprover
from paddock.text.show import show_name
from paddock.values.calls import Json, ToolResult
from paddock.values.entries import TURN_RECORDED

_FILES_MAX: Final = 2_000
_BYTES_MAX: Final = 50_000_000
_POLICIES: Final = frozenset({"paddock.toml", "paddock.json"})
TOUR: Final = "paddock-demo"
"""What the tour's own names begin with."""


class Copied(Struct, frozen=True):
    source: Path
    files: int
    left: int

    def said(self) -> str:
        said = f"the tour works on a copy of {self.source} ({_files(self.files)})"
        return f"{said}; {_files(self.left)} left out" if self.left else said


def copy_project(source: Path, target: Path) -> Copied:
    """Copy the files of `source` that git knows (all, where there is no git) to `target`.

    At most 2,000 files and 50 MB; links and special files are left out, and the
    project's own policy, as the tour has one, and what has a name of the tour's. The
    copy gets an empty `.git`, so that it is a project of its own.
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
            left += 1  # Not readable by this user, or gone meanwhile.
            continue
        copied += 1
        bytes_copied += size
    (target / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    return Copied(source, copied, left)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _git_files(source: Path) -> list[str]:
    # Threat: the repository's own configuration may name a program that git would start.
    safe = ["git", "-c", "core.fsmonitor=false"]
    command = [*safe, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=source, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return sorted(name for name in names if name)


def _plain_files(source: Path) -> list[str]:
    found: list[str] = []
    for directory, below, names in os.walk(source):
        below[:] = sorted(name for name in below if name != ".git")
        here = Path(directory).relative_to(source)
        found += [str(here / name) for name in sorted(names) if name != ".git"]
        if len(found) > _FILES_MAX:
            break
    return found


class DemoScene(Struct, frozen=True):
    title: str
    did: str
    outcome: str
    detail: str

    def as_json(self) -> dict[str, Json]:
        return {
            "title": self.title,
            "did": self.did,
            "outcome": self.outcome,
            "detail": self.detail,
        }


_LIST: Final = f"{TOUR}-list.md"
_HOOK: Final = ".git/hooks/post-checkout"
_BEFORE: Final = "one\ntwo\n"
_AFTER: Final = "1\ntwo\n"


class CommandTour(Struct):
    project: Project
    outside: Path
    """A file that is no agent's."""
    surprises: list[str] = field(default_factory=list[str])

    def scenes(self) -> Iterator[DemoScene]:
        secret = self.outside.read_bytes()
        (self._root / _LIST).write_text(_BEFORE, encoding="utf-8")
        # Read, the second half would be refused at once; a program is held by the kernel alone.
        command = f"""sed -i s/one/1/ {_LIST}; python3 -c "open('{_HOOK}', 'w').write('boom')\""""
        changed = self._run({"command": command})
        code = "" if changed.refusal is None else changed.refusal.code
        yield DemoScene(
            "It runs a command; each change is judged like a tool's",
            f"run_shell {command}",
            "refused" if code else "allowed",
            changed.content,
        )
        if code == SandboxUnavailableError.code:
            return
        self._expect(not code, "the command did not run")
        self._expect((self._root / _LIST).read_text(encoding="utf-8") == _AFTER, "no edit")
        self._expect(not (self._root / _HOOK).exists(), "a command planted a git hook")
        yield self.escape(secret)
        if not _is_staged(changed):
            return
        yield self.dry_run()
        yield self.undone(changed.call_id)

    def escape(self, secret: bytes) -> DemoScene:
        outside = shlex.quote(str(self.outside))
        command = (
            f"cat {outside}; echo gotcha > {outside}; getent hosts example.com || echo no network"
        )
        result = self._run({"command": command})
        is_held = self.outside.read_bytes() == secret and secret.decode() not in result.content
        self._expect(is_held, "a command got out")
        return DemoScene(
            "A command tries to get out, and the kernel holds it",
            f"run_shell {command}",
            "held" if is_held else "got out",
            result.content,
        )

    def dry_run(self) -> DemoScene:
        command = f"sed -i s/two/2/ {_LIST}"
        result = self._run({"command": command, "dry_run": True})
        unchanged = (self._root / _LIST).read_text(encoding="utf-8") == _AFTER
        self._expect(unchanged and result.refusal is None, "a dry run changed something")
        return DemoScene(
            "Or it only shows what a command would change",
            f"run_shell {command}  (dry_run)",
            "allowed" if result.refusal is None else "refused",
            result.content,
        )

    def undone(self, call_id: str) -> DemoScene:
        with open_past(self.project) as past:
            result = past.undo(past.find(call_id)).result
        self._expect((self._root / _LIST).read_text(encoding="utf-8") == _BEFORE, "no undo")
        return DemoScene(
            "What the first command did is taken back",
            f"paddock undo {call_id}",
            "undone" if result.refusal is None else "refused",
            result.content,
        )

    @property
    def _root(self) -> Path:
        return self.project.root.path

    def _run(self, arguments: dict[str, Json]) -> ToolResult:
        with open_runtime(self.project, agent=None, approver=YesApprover("demo")) as runtime:
            return runtime.call("run_shell", arguments)

    def _expect(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.surprises.append(otherwise)


def _is_staged(result: ToolResult) -> bool:
    return "sandbox: stage" in result.content


_NOTE: Final = f"{TOUR}-session.md"
_ROWS_MAX: Final = 8


class DemoLine(Struct, frozen=True):
    """What is said, and the code that its last call ends with; "" where that is allowed."""

    title: str
    message: str
    code: str = ""


_LINES: Final = (
    DemoLine("Now a model works: the built-in one, without a key", "what files are there?"),
    DemoLine("It writes", f'write a file at {_NOTE} with the content "a model was here"'),
    DemoLine("It searches", f'search for "a model was here" in {_NOTE}'),
    DemoLine("It may not delete unasked", f"delete {_NOTE}", ApprovalUnavailableError.code),
    DemoLine(
        "It is asked for something that is protected",
        'write a file at .git/hooks/post-merge with the content "boom"',
        ProtectedPathError.code,
    ),
)


class SessionTour:
    def __init__(self, project: Project) -> None:
        self._project = project
        self._calls: list[CallFinished] = []
        self.surprises: list[str] = []

    def heard(self, event: Event) -> None:
        if isinstance(event, CallFinished):
            self._calls.append(event)

    def scenes(self) -> Iterator[DemoScene]:
        with open_session(self._project, SessionWish(model="builtin", listener=self)) as session:
            for line in _LINES:
                yield self._say(line, session)
        yield self._recorded(session.session_id)

    def _say(self, line: DemoLine, session: Session) -> DemoScene:
        self._calls.clear()
        result = session.handle_turn(line.message)
        calls = self._calls
        refusal = calls[-1].result.refusal if calls else None
        code = "" if refusal is None else refusal.code
        if not calls or code != line.code:
            self.surprises.append(f"{line.message!r} ended as {code or 'allowed'}")
        outcome = "refused" if code else "allowed"
        if code.startswith("approval."):
            outcome = "asked"
        rows = [f"  {show_name(call.tool)} {_what(call)}" for call in calls]
        return DemoScene(
            line.title, f"> {line.message}", outcome, "\n".join([*rows, _cut(result.response)])
        )

    def _recorded(self, session_id: str) -> DemoScene:
        wanted = Filter(TURN_RECORDED, session_id=session_id)
        turns = sessions_of(self._project).query(LedgerName.HO2M, wanted, None).entries
        report = verify(str(self._project.layout.ledger_paths()[LedgerName.HO2M]))
        if report.problems or len(turns) != len(_LINES):
            self.surprises.append("the session is not on record")
        rows = [
            f"turn {row.entry.metadata.get('turn')}  {row.entry.metadata.get('outcome')}  "
            f"{row.entry.metadata.get('user_message')}"
            for row in turns
        ]
        said = f"{report.entries} entries, chain whole"
        command = f"paddock session show {session_id}; paddock ledger verify --ledger ho2m"
        return DemoScene(
            "The whole session is on record", command, "verified", "\n".join([*rows, said])
        )


def _what(call: CallFinished) -> str:
    refusal = call.result.refusal
    arguments = json.dumps(dict(call.arguments))
    return f"{arguments} ran" if refusal is None else f"{arguments} did not run: {refusal.code}"


def _cut(text: str) -> str:
    rows = text.split("\n")
    missing = len(rows) - _ROWS_MAX
    return text if missing <= 0 else "\n".join([*rows[:_ROWS_MAX], f"[{missing} more lines]"])
