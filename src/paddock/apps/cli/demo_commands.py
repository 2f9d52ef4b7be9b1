"""The part of the tour in which commands run: on a layer, held by the kernel, and taken back."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paddock.apps.cli.demo_copy import TOUR
from paddock.apps.cli.demo_scene import Scene
from paddock.assembly.past import open_past
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.errors import SandboxUnavailableError
from paddock.runtime.approvals import YesApprover
from paddock.values.calls import Json, ToolResult

_LIST: Final = f"{TOUR}-list.md"
_HOOK: Final = ".git/hooks/post-checkout"
_BEFORE: Final = "one\ntwo\n"
_AFTER: Final = "1\ntwo\n"


@dataclass(slots=True)
class CommandTour:
    """Runs commands, each after somebody's yes; where this host confines none, says so."""

    project: Project
    outside: Path
    """A file that is no agent's."""
    surprises: list[str] = field(default_factory=list[str])

    def scenes(self) -> Iterator[Scene]:
        """One for each command, and one for the undo."""
        secret = self.outside.read_bytes()
        (self._root / _LIST).write_text(_BEFORE, encoding="utf-8")
        # Read, the second half would be refused at once; a program is held by the kernel alone.
        command = f"""sed -i s/one/1/ {_LIST}; python3 -c "open('{_HOOK}', 'w').write('boom')\""""
        changed = self._run({"command": command})
        code = "" if changed.refusal is None else changed.refusal.code
        yield Scene(
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

    def escape(self, secret: bytes) -> Scene:
        """A file outside, the network: neither is there for a command."""
        outside = shlex.quote(str(self.outside))
        command = (
            f"cat {outside}; echo gotcha > {outside}; getent hosts example.com || echo no network"
        )
        result = self._run({"command": command})
        is_held = self.outside.read_bytes() == secret and secret.decode() not in result.content
        self._expect(is_held, "a command got out")
        return Scene(
            "A command tries to get out, and the kernel holds it",
            f"run_shell {command}",
            "held" if is_held else "got out",
            result.content,
        )

    def dry_run(self) -> Scene:
        """What a command would change, as a diff."""
        command = f"sed -i s/two/2/ {_LIST}"
        result = self._run({"command": command, "dry_run": True})
        unchanged = (self._root / _LIST).read_text(encoding="utf-8") == _AFTER
        self._expect(unchanged and result.refusal is None, "a dry run changed something")
        return Scene(
            "Or it only shows what a command would change",
            f"run_shell {command}  (dry_run)",
            "allowed" if result.refusal is None else "refused",
            result.content,
        )

    def undone(self, call_id: str) -> Scene:
        """The first command's change is taken back."""
        with open_past(self.project) as past:
            result = past.undo(past.find(call_id)).result
        self._expect((self._root / _LIST).read_text(encoding="utf-8") == _BEFORE, "no undo")
        return Scene(
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
    """Whether it worked on a layer: only then is there a dry run, and an undo."""
    return "sandbox: stage" in result.content
