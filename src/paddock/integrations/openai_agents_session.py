"""A session of the OpenAI Agents SDK's sandboxes: its file operations, commands and snapshots."""

import io
import math
import shlex
import tarfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from agents.sandbox import errors, session
from agents.sandbox.session import pty_types
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile

from paddock.errors import FileChangedError, PathNotFoundError, ToolError
from paddock.integrations.openai_agents_processes import Processes
from paddock.limits import shell_timeout_raised_s
from paddock.runtime.runtime import Runtime
from paddock.tools.program import literal_line

_Asked = str | User | None
_PACK: Final = r"""
find . \( -type f -o -type d -o -type l \) -print0 | tar -c --null --no-recursion "$@" -T -
"""
_UNPACK: Final = "tar -x --no-same-owner --no-same-permissions --exclude=./.git"
_RESTORE: Final = rf"""
find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf -- {{}} + && {_UNPACK}
"""
"""One set of changes. A repository is more than its files, and no snapshot replaces it."""


class PaddockSandboxSessionState(session.SandboxSessionState):
    type: Literal["paddock"] = "paddock"  # pyright: ignore[reportIncompatibleVariableOverride] - the SDK's way


class PaddockSandboxSession(session.BaseSandboxSession):
    """A session on the client's workspace; its commands in the background end with it.

    What policy refuses to a command is that command's failure, with the rule in its errors; to a
    file operation it is the SDK's error of that operation. No snapshot holds a secret.
    """

    def __init__(
        self, state: PaddockSandboxSessionState, runtime: Runtime, *, is_resumed: bool
    ) -> None:
        self.state = state
        self._set_start_state_preserved(is_resumed)
        self._runtime = runtime
        self._is_running = False
        self._processes = Processes(runtime, f"openai-agents-{state.session_id.hex}")

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
        self,
        *command: str | Path,
        timeout: float | None = None,
    ) -> ExecResult:
        """Raises: ExecTimeoutError."""
        env = await self.state.manifest.environment.resolve()
        try:
            done = await self._runtime.aexec(_line(command), env=env, timeout=_seconds(timeout))
        except ToolError as error:
            return ExecResult(stdout=b"", stderr=error.render().encode(), exit_code=126)
        if done.timed_out:
            raise errors.ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(
            stdout=done.stdout,
            stderr=done.stderr + done.notice.encode(),
            exit_code=done.exit_status,
        )

    async def _change(self, path: Path, argv: Sequence[str], stdin: bytes = b"") -> None:
        """Change files by a command. Raises: WorkspaceArchiveWriteError, if any was refused."""
        with _writing(path):
            done = await self._runtime.aexec(argv, stdin=stdin, timeout=_seconds(None))
        if done.exit_status or done.notice:
            said = done.stderr.decode("utf-8", "replace") + done.notice
            raise errors.WorkspaceArchiveWriteError(path=path, message=said)

    async def read(self, path: Path, *, user: _Asked = None) -> io.IOBase:
        _require_no_user(user)
        try:
            return io.BytesIO(await self._runtime.aread_bytes(str(self.normalize_path(path))))
        except PathNotFoundError as error:
            raise errors.WorkspaceReadNotFoundError(path=path, cause=error) from error
        except ToolError as error:
            raise _unread(path, error.render(), error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: _Asked = None) -> None:
        _require_no_user(user)
        content = coerce_write_payload(path=path, data=data).stream.read()
        target = self.normalize_path(path, for_write=True)
        with _writing(target):
            await self._runtime.awrite_bytes(str(target), content)

    async def _write_new_file(self, path: Path, data: io.IOBase, *, user: _Asked = None) -> None:
        _require_no_user(user)
        target = self.normalize_path(path, for_write=True)
        with _writing(target):
            try:
                await self._runtime.awrite_bytes(str(target), data.read(), is_new=True)
            except FileChangedError as error:
                raise FileExistsError(str(path)) from error

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: _Asked = None) -> None:
        _require_no_user(user)
        target = self.normalize_path(path, for_write=True)
        found = await self._runtime.acall("ls", {"path": str(target), "limit": 1})
        if found.refusal is not None:
            options = ["-p"] if parents else []
            await self._change(target, ["mkdir", *options, "--", str(target)])

    async def rm(self, path: Path | str, *, recursive: bool = False, user: _Asked = None) -> None:
        _require_no_user(user)
        target = self.normalize_path(path, for_write=True)
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
        # The workspace is there also while no session runs: what is as it was is left alone.
        return await super()._can_skip_snapshot_restore_on_resume(is_running=True)

    async def persist_workspace(self) -> io.IOBase:
        root, skipped = Path(self.state.manifest.root), self._persist_workspace_skip_relpaths()
        argv = ["sh", "-c", _PACK, "sh", *(f"--exclude=./{each}" for each in sorted(skipped))]
        try:
            done = await self._runtime.aexec(argv, timeout=_seconds(None))
        except ToolError as error:
            raise _unread(root, error.render(), error) from error
        if done.exit_code or done.is_cut:
            raise _unread(root, done.stderr.decode("utf-8", "replace") or "it is too large")
        return io.BytesIO(done.stdout)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        await self._unpack(_UNPACK, data)

    async def _restore_snapshot_into_workspace_on_resume(self) -> None:
        with await self.state.snapshot.restore(dependencies=self.dependencies) as archive:
            await self._unpack(_RESTORE, archive)

    async def _unpack(self, script: str, data: io.IOBase) -> None:
        """Raises: WorkspaceArchiveWriteError: it leads out, or some of it was refused."""
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
        line = _line(self._prepare_exec_command(*command, shell=shell, user=user))
        env = await self.state.manifest.environment.resolve()
        wait_ms = pty_types.clamp_pty_yield_time_ms(int(1000 * (yield_time_s or 10)))
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        return await self._processes.start(exports + line, tty, wait_ms, max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> pty_types.PtyExecUpdate:
        process = self._resolve_pty_session_entry(
            pty_processes=self._processes.running, session_id=session_id
        )
        wait_ms = pty_types.resolve_pty_write_yield_time_ms(
            yield_time_ms=int(1000 * (yield_time_s or 0.25)), input_empty=not chars
        )
        return await self._processes.write(process, chars, wait_ms, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        await self._processes.close()


def _require_no_user(user: _Asked) -> None:
    if user is not None:
        raise ValueError("PaddockSandboxSession does not support other users")


def _seconds(timeout: float | None) -> int:
    """Without one it is as long as policy lets a command run."""
    return shell_timeout_raised_s if timeout is None else max(1, math.ceil(timeout))


def _line(command: Sequence[str | Path]) -> str:
    """Return what a shell is given as the line that it is, for policy to read; else the words."""
    words = tuple(map(str, command))
    is_line = len(words) == 3 and words[:2] in (("sh", "-c"), ("sh", "-lc"))
    return words[2] if is_line else literal_line(words)


@contextmanager
def _writing(path: Path) -> Generator[None]:
    try:
        yield
    except ToolError as error:
        said = error.render()
        raise errors.WorkspaceArchiveWriteError(path=path, message=said, cause=error) from error


def _unread(
    path: Path, reason: str, error: ToolError | None = None
) -> errors.WorkspaceArchiveReadError:
    return errors.WorkspaceArchiveReadError(path=path, context={"reason": reason}, cause=error)
