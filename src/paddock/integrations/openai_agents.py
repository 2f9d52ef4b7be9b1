"""Use Paddock in the OpenAI Agents SDK: a sandbox for `SandboxAgent`, a shell and an editor.

RunConfig(sandbox=SandboxRunConfig(client=PaddockSandboxClient(".")))
ShellTool(executor=shell_executor(".")), ApplyPatchTool(editor=patch_editor("."))
"""

import io
import math
import shlex
import tarfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal

import agents
from agents.sandbox import errors, session
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import pty_types
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile

from paddock.errors import FileChangedError, PathNotFoundError, ToolError
from paddock.integrations import REFUSED, Opened, Root, raising, text_of, whole_seconds
from paddock.limits import content_bytes_max, edited_file_bytes_max
from paddock.runtime.runtime import Runtime
from paddock.tools.outcome import last_words
from paddock.tools.program import literal_line
from paddock.values.calls import Json
from paddock.values.entries import digest_of

_DEFAULT_ROOT: Final = Manifest().root
_PACK: Final = r"""
find . \( -type f -o -type d -o -type l \) -print0 | tar -c --null --no-recursion "$@" -T -
"""
_UNPACK: Final = "tar -x --no-same-owner --no-same-permissions --exclude=./.git"
# One set of changes. `.git` is kept, because a snapshot does not contain the repository.
_RESTORE: Final = rf"""
find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf -- {{}} + && {_UNPACK}
"""
_Asked = str | User | None


class PaddockSandboxSessionState(session.SandboxSessionState):
    type: Literal["paddock"] = "paddock"  # pyright: ignore[reportIncompatibleVariableOverride] - the SDK's way


class PaddockSandboxClient(Opened, session.BaseSandboxClient[None]):
    """Creates sessions on one workspace, which outlives them; `close` it at the end.

    A manifest's entries and a restored snapshot are written under the same policy. Mounts, ports,
    grants of other paths and other users are refused with the SDK's errors.
    """

    backend_id = "paddock"
    supports_default_options = True

    def __init__(
        self,
        root: Root,
        *,
        instrumentation: session.Instrumentation | None = None,
        dependencies: session.Dependencies | None = None,
        **open_arguments: Any,
    ) -> None:
        """`root` is a directory, for `paddock.open` with its arguments, or an open runtime."""
        super().__init__(root, **open_arguments)
        self._instrumentation = instrumentation or session.Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: None = None,
    ) -> session.SandboxSession:
        manifest = manifest or Manifest()
        if manifest.root == _DEFAULT_ROOT:
            manifest = manifest.model_copy(update={"root": self.runtime.root}, deep=True)
        identity = uuid.uuid4()
        kept = resolve_snapshot(snapshot, str(identity))
        state = PaddockSandboxSessionState(session_id=identity, manifest=manifest, snapshot=kept)
        return self._opened(state)

    async def resume(self, state: session.SandboxSessionState) -> session.SandboxSession:
        if not isinstance(state, PaddockSandboxSessionState):
            raise TypeError("PaddockSandboxClient.resume expects a PaddockSandboxSessionState")
        state.assert_path_grants_rebound()
        return self._opened(state, is_resumed=True)

    def _opened(
        self, state: PaddockSandboxSessionState, *, is_resumed: bool = False
    ) -> session.SandboxSession:
        """Raises: ValueError, MountConfigError: the manifest needs unsupported features."""
        manifest, root = self._validate_manifest_for_create(state.manifest), self.runtime.root
        unsupported = {
            "manifest users or groups": manifest.users or manifest.groups,
            "sandbox path grants": manifest.extra_path_grants,
            f"another root than {root}": manifest.root != root,
        }
        for what, is_wanted in unsupported.items():
            if is_wanted:
                raise ValueError(f"PaddockSandboxClient does not support {what}")
        inner = PaddockSandboxSession(state, self.runtime, is_resumed=is_resumed)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def delete(self, session: session.SandboxSession) -> session.SandboxSession:
        """Stop the session's commands; the workspace belongs to the program and is kept."""
        await session.pty_terminate_all()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> PaddockSandboxSessionState:
        return PaddockSandboxSessionState.model_validate(
            self._deserialize_session_state_payload(payload, PaddockSandboxSessionState)
        )


class PaddockSandboxSession(session.BaseSandboxSession):
    """A session on the client's workspace. Its background commands end with it.

    A refused command fails with the rule on stderr; a refused file operation raises the SDK's error
    for that operation. Snapshots do not contain secrets.
    """

    def __init__(
        self, state: PaddockSandboxSessionState, runtime: Runtime, *, is_resumed: bool
    ) -> None:
        self.state = state
        self._set_start_state_preserved(is_resumed)
        self._runtime = runtime
        self._is_running = False
        self._processes: dict[int, tuple[str, bool]] = {}  # name, and whether it has a terminal
        self._shell = f"openai-agents-{state.session_id.hex}"  # the runtime's shell session
        self._has_shell = False

    async def _after_start(self) -> None:
        self._is_running = True

    async def _after_shutdown(self) -> None:
        self._is_running = False

    async def running(self) -> bool:
        return self._is_running and not self._runtime.is_closed

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: _Asked
    ) -> list[str]:
        _require_no_user(user)
        return super()._prepare_exec_command(*command, shell=shell, user=None)

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        """Raises: ExecTimeoutError."""
        env = await self.state.manifest.environment.resolve()
        done, is_late = await _executed(
            self._runtime, _line(command), env=env, timeout=whole_seconds(timeout)
        )
        if is_late:
            raise errors.ExecTimeoutError(command=command, timeout_s=timeout)
        return done

    def _target(self, path: Path | str, user: _Asked) -> Path:
        _require_no_user(user)
        return self.normalize_path(path, for_write=True)

    async def _change(self, path: Path, argv: Sequence[str], stdin: bytes = b"") -> None:
        """Change files by a command. Raises: WorkspaceArchiveWriteError, if any was refused."""
        with _writing(path):
            done = await self._runtime.aexec(argv, stdin=stdin, timeout=whole_seconds(None))
        if done.exit_status or done.notice:
            message = text_of(done.stderr) + done.notice
            raise errors.WorkspaceArchiveWriteError(path=path, message=message)

    async def read(self, path: Path, *, user: _Asked = None) -> io.IOBase:
        _require_no_user(user)
        with _reading(path):
            try:
                return io.BytesIO(await self._runtime.aread_bytes(str(self.normalize_path(path))))
            except PathNotFoundError as error:
                raise errors.WorkspaceReadNotFoundError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: _Asked = None) -> None:
        target = self._target(path, user)
        content = coerce_write_payload(path=path, data=data).stream.read()
        with _writing(target):
            await self._runtime.awrite_bytes(str(target), content)

    async def _write_new_file(self, path: Path, data: io.IOBase, *, user: _Asked = None) -> None:
        target = self._target(path, user)
        with _writing(target):
            try:
                await self._runtime.awrite_bytes(str(target), data.read(), is_new=True)
            except FileChangedError as error:
                raise FileExistsError(str(path)) from error

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: _Asked = None) -> None:
        target = self._target(path, user)
        found = await self._runtime.acall("ls", {"path": str(target), "limit": 1})
        if found.refusal is not None:
            options = ["-p"] if parents else []
            await self._change(target, ["mkdir", *options, "--", str(target)])

    async def rm(self, path: Path | str, *, recursive: bool = False, user: _Asked = None) -> None:
        target = self._target(path, user)
        if recursive:
            await self._change(target, ["rm", "-rf", "--", str(target)])
            return
        with _writing(target):
            try:
                (await self._runtime.acall("delete_file", {"path": str(target)})).unwrap()
            except PathNotFoundError as error:
                missing = ExecResult(stdout=b"", stderr=error.render().encode(), exit_code=1)
                raise errors.ExecNonZeroError(missing, command=("rm", str(target))) from error

    async def _can_skip_snapshot_restore_on_resume(self, *, is_running: bool) -> bool:
        # The workspace exists between sessions: an unchanged one needs no restore.
        return await super()._can_skip_snapshot_restore_on_resume(is_running=True)

    async def persist_workspace(self) -> io.IOBase:
        root, skipped = Path(self.state.manifest.root), self._persist_workspace_skip_relpaths()
        argv = ["sh", "-c", _PACK, "sh", *(f"--exclude=./{each}" for each in sorted(skipped))]
        with _reading(root):
            done = await self._runtime.aexec(argv, timeout=whole_seconds(None))
        if done.exit_code or done.is_cut:
            raise _unread(root, text_of(done.stderr) or "it is too large")
        return io.BytesIO(done.stdout)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        await self._unpack(_UNPACK, data)

    async def _restore_snapshot_into_workspace_on_resume(self) -> None:
        with await self.state.snapshot.restore(dependencies=self.dependencies) as archive:
            await self._unpack(_RESTORE, archive)

    async def _unpack(self, script: str, data: io.IOBase) -> None:
        """Raises: WorkspaceArchiveWriteError: an entry is outside the workspace, or refused."""
        root, content = Path(self.state.manifest.root), data.read()
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                validate_tarfile(archive, allow_external_symlink_targets=False)
        except (UnsafeTarMemberError, tarfile.TarError) as error:
            raise errors.WorkspaceArchiveWriteError(path=root, cause=error) from error
        await self._change(root, ["sh", "-c", script], content)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: _Asked = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> pty_types.PtyExecUpdate:
        """Start a command line, and wait for its output. A refusal is its output and its end."""
        line = _line(self._prepare_exec_command(*command, shell=shell, user=user))
        env = await self.state.manifest.environment.resolve()
        # In the line itself, because [shell] env limits the variables that a call may set.
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        given = {"command": exports + line, "session": self._shell, "background": True, "tty": tty}
        started = await self._runtime.acall("run_shell", given)
        if started.refusal is not None:
            return pty_types.PtyExecUpdate(None, started.content.encode(), REFUSED, None)
        self._has_shell = True
        number = pty_types.allocate_pty_process_id(set(self._processes))
        self._processes[number] = str(started.details["process"]), tty
        wait_ms = pty_types.clamp_pty_yield_time_ms(int(1000 * (yield_time_s or 10)))
        return await self._printed(number, wait_ms, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> pty_types.PtyExecUpdate:
        """Type into a process, and wait for its output. Raises: RuntimeError: no terminal."""
        name, tty = self._resolve_pty_session_entry(
            pty_processes=self._processes, session_id=session_id
        )
        if chars and not tty:
            # The SDK's tool looks for these words.
            raise RuntimeError("stdin is not available for this process")
        if chars:
            await self._runtime.acall("shell_input", {"process": name, "text": chars})
        wait_ms = pty_types.resolve_pty_write_yield_time_ms(
            yield_time_ms=int(1000 * (yield_time_s or 0.25)), input_empty=not chars
        )
        return await self._printed(session_id, wait_ms, max_output_tokens)

    async def _printed(
        self, number: int, wait_ms: int, tokens: int | None
    ) -> pty_types.PtyExecUpdate:
        name, _ = self._processes[number]
        until, output, is_running = time.monotonic() + wait_ms / 1000, "", True
        while is_running and (left := until - time.monotonic()) > 0:
            asked = {"process": name, "wait_s": math.ceil(left)}
            said = (await self._runtime.acall("shell_output", asked)).details
            output, is_running = output + str(said.get("output", "")), said.get("running") is True
        exit_code = None
        if not is_running:
            self._processes.pop(number, None)
            # Its changes must be in the workspace before its end is reported.
            ended = await self._runtime.acall("shell_stop", {"process": name})
            output += "".join(f"{line}\n" for line in last_words(ended.details))
            exit_code = ended.details.get("exit_code", REFUSED)
        text, count = pty_types.truncate_text_by_tokens(output, tokens)
        live = number if is_running else None
        return pty_types.PtyExecUpdate(live, text.encode("utf-8", "replace"), exit_code, count)

    async def pty_terminate_all(self) -> None:
        """Stop all processes, and apply their changes."""
        self._processes.clear()
        has_shell, self._has_shell = self._has_shell, False
        if has_shell:
            await self._runtime.acall("shell_stop", {"session": self._shell})


def _require_no_user(user: _Asked) -> None:
    if user is not None:
        raise ValueError("PaddockSandboxSession does not support other users")


async def _executed(runtime: Runtime, command: str, **bounds: Any) -> tuple[ExecResult, bool]:
    """Run a command; return its result, and True after a timeout. A refusal is a failure."""
    try:
        done = await runtime.aexec(command, **bounds)
    except ToolError as error:
        refused = error.render().encode()
        return ExecResult(stdout=b"", stderr=refused, exit_code=REFUSED), False
    stderr = done.stderr + done.notice.encode()
    ended = ExecResult(stdout=done.stdout, stderr=stderr, exit_code=done.exit_status)
    return ended, done.timed_out


def _line(command: Sequence[str | Path]) -> str:
    """Return the line of a `sh -c`, which policy can read; else the quoted words."""
    words = tuple(map(str, command))
    is_line = len(words) == 3 and words[:2] in (("sh", "-c"), ("sh", "-lc"))
    return words[2] if is_line else literal_line(words)


def _writing(path: Path) -> AbstractContextManager[None]:
    return raising(
        lambda error: errors.WorkspaceArchiveWriteError(
            path=path, message=error.render(), cause=error
        )
    )


def _reading(path: Path) -> AbstractContextManager[None]:
    return raising(lambda error: _unread(path, error.render()))


def _unread(path: Path, reason: str) -> errors.WorkspaceArchiveReadError:
    return errors.WorkspaceArchiveReadError(path=path, context={"reason": reason})


class ShellExecutor(Opened):
    """Runs the commands of `ShellTool`; `close` it at the end."""

    async def __call__(self, request: agents.ShellCommandRequest) -> agents.ShellResult:
        action = request.data.action
        bounds: dict[str, Any] = {"output_limit": content_bytes_max}
        if action.timeout_ms is not None:
            bounds["timeout"] = whole_seconds(action.timeout_ms / 1000)
        output: list[agents.ShellCommandOutput] = []
        for command in action.commands:
            done, is_late = await _executed(self.runtime, command, **bounds)
            code = None if is_late else done.exit_code
            outcome = agents.ShellCallOutcome("timeout" if is_late else "exit", code)
            stdout, stderr = text_of(done.stdout), text_of(done.stderr)
            output.append(agents.ShellCommandOutput(stdout, stderr, outcome, command))
            if is_late:
                break
        return agents.ShellResult(output, max_output_length=action.max_output_length)


class PatchEditor(Opened):
    """Applies operations of `ApplyPatchTool` to the content it read; `close` it at the end."""

    async def create_file(self, operation: agents.ApplyPatchOperation) -> agents.ApplyPatchResult:
        return await self._apply(operation, b"", "absent")

    async def update_file(self, operation: agents.ApplyPatchOperation) -> agents.ApplyPatchResult:
        try:
            before = await self.runtime.aread_bytes(operation.path, limit=edited_file_bytes_max)
        except ToolError as error:
            return agents.ApplyPatchResult("failed", error.render())
        return await self._apply(operation, before, digest_of(before))

    async def delete_file(self, operation: agents.ApplyPatchOperation) -> agents.ApplyPatchResult:
        return await self._call("delete_file", path=operation.path)

    async def _apply(
        self, operation: agents.ApplyPatchOperation, before: bytes, version: str
    ) -> agents.ApplyPatchResult:
        mode = "create" if version == "absent" else "default"
        try:
            after = agents.apply_diff(before.decode(), operation.diff or "", mode)
        except ValueError as error:  # the diff does not apply, or the file is not text
            return agents.ApplyPatchResult("failed", str(error))
        path, target = operation.path, operation.move_to
        if target is None or target == path:
            return await self._call("create_file", path=path, content=after, if_version=version)
        made = await self._call("create_file", path=target, content=after, if_version="absent")
        if made.status == "failed":
            return made
        return await self._call("delete_file", path=path, if_version=version)

    async def _call(self, tool: str, **given: Json) -> agents.ApplyPatchResult:
        result = await self.runtime.acall(tool, given)
        status = "completed" if result.refusal is None else "failed"
        return agents.ApplyPatchResult(status, result.content)


# Named like the functions in the framework's documentation.
shell_executor = ShellExecutor
patch_editor = PatchEditor
