"""Use Paddock as a sandbox of Strands Agents: `Agent(sandbox=PaddockSandbox("."))`.

One policy and one ledger cover the code, commands and files of the framework's tools. Paths are
relative to the root, absolute in it, or below the private /tmp of the sandbox.
"""

import asyncio
import posixpath
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from strands.sandbox import ExecutionResult, FileInfo, Sandbox, StreamChunk
from strands.sandbox.constants import LANGUAGE_PATTERN
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError
from strands.types.tools import AgentTool
from strands.vended_tools.file_editor import (
    make_file_editor,  # pyright: ignore[reportUnknownVariableType] - what it returns is generic
)
from strands.vended_tools.file_editor.file_editor import DEFAULT_FILE_EDITOR_DESCRIPTION
from strands.vended_tools.shell import (
    make_shell,  # pyright: ignore[reportUnknownVariableType] - the same
)
from strands.vended_tools.shell.types import SANDBOX_SHELL_DESCRIPTION

from paddock import errors
from paddock.integrations import Opened, raising, text_of, whole_seconds

# Refusals as the errors of file calls: the framework handles no others.
_ERRORS: Final[dict[type, type[OSError | ValueError]]] = {
    errors.ApprovalError: PermissionError,
    errors.InvalidArgumentsError: ValueError,
    errors.PathNotADirectoryError: NotADirectoryError,
    errors.PathNotAFileError: IsADirectoryError,
    errors.PathNotFoundError: FileNotFoundError,
    errors.PermissionDeniedError: PermissionError,
    errors.ToolError: OSError,
}


class PaddockSandbox(Opened, Sandbox):
    """One agent's workspace; `close` it at the end.

    Refusals are raised as OSError, or as PermissionError if policy denies the call, with the rule
    in the text. Without a timeout a command runs as long as policy permits.
    """

    def execute_streaming(
        self, command: str, **options: Any
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        """Raises: SandboxTimeoutError, OSError."""
        return self._stream(command, b"", **options)

    def execute_code_streaming(
        self, code: str, language: str, **options: Any
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        """Raises: ValueError, SandboxTimeoutError, OSError."""
        if not LANGUAGE_PATTERN.fullmatch(language):
            raise ValueError(f"language parameter contains invalid characters: {language}")
        return self._stream([language], code.encode(), **options)

    async def _stream(
        self,
        command: str | Sequence[str],
        stdin: bytes,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **_: Any,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        loop, heard = asyncio.get_running_loop(), asyncio.Queue[StreamChunk | None]()

        def hear(stream: Any, text: str) -> None:
            loop.call_soon_threadsafe(heard.put_nowait, StreamChunk(text, stream))

        seconds = whole_seconds(timeout)
        running = asyncio.ensure_future(
            self.runtime.aexec(
                command, stdin=stdin, cwd=cwd or ".", env=env, timeout=seconds, on_output=hear
            )
        )
        running.add_done_callback(lambda _: heard.put_nowait(None))
        try:
            while (chunk := await heard.get()) is not None:
                yield chunk
            with raising(_error):
                done = await running
        finally:
            # A caller that stops listening ends the command, and waits until it has ended.
            running.cancel()
            await asyncio.wait([running])
        stdout, stderr = text_of(done.stdout), text_of(done.stderr) + done.notice
        if done.timed_out:
            raise SandboxTimeoutError(timeout or seconds, stdout, stderr)
        if done.notice:
            yield StreamChunk(done.notice, "stderr")
        yield ExecutionResult(done.exit_status, stdout, stderr)

    async def read_file(self, path: str, **kwargs: Any) -> bytes:
        """Raises: OSError, as FileNotFoundError."""
        with raising(_error):
            return await self.runtime.aread_bytes(path)

    async def write_file(self, path: str, content: bytes, **kwargs: Any) -> None:
        """Raises: OSError."""
        with raising(_error):
            await self.runtime.awrite_bytes(path, content)

    async def remove_file(self, path: str, **kwargs: Any) -> None:
        """Raises: OSError, as FileNotFoundError."""
        if self._is_elsewhere(path):
            await self._ran("rm", "--", path)
            return
        with raising(_error):
            (await self.runtime.acall("delete_file", {"path": path})).unwrap()

    async def list_files(self, path: str, **kwargs: Any) -> list[FileInfo]:
        """Raises: SandboxPathNotFoundError, OSError."""
        if self._is_elsewhere(path):
            names = sorted((await self._ran("ls", "-1Ap", "--", f"{path}/")).splitlines())
            return [FileInfo(name.rstrip("/"), name.endswith("/")) for name in names]
        with raising(_error):
            try:
                listed = await self.runtime.alist_entries(path)
            except (errors.PathNotFoundError, errors.PathNotADirectoryError) as error:
                raise SandboxPathNotFoundError(path) from error
        return [
            FileInfo(posixpath.basename(each.path), each.is_directory, each.size_bytes)
            for each in listed.entries
        ]

    def _is_elsewhere(self, path: str) -> bool:
        return path.startswith("/") and not self.runtime.names(path)

    async def _ran(self, *argv: str) -> str:
        """Run a file operation in the sandbox's /tmp; return its output. Raises: OSError."""
        with raising(_error):
            done = await self.runtime.aexec(argv)
        if done.exit_code:
            raise SandboxPathNotFoundError(argv[-1]) from OSError(text_of(done.stderr))
        return text_of(done.stdout)

    def get_tools(self) -> list[AgentTool]:
        """Return the framework's editor and shell for this sandbox, as its own sandboxes do."""
        where = f"Files are below {self.runtime.root}."
        return [
            make_file_editor(
                sandbox=self,
                name="sandbox_file_editor",
                description=f"{DEFAULT_FILE_EDITOR_DESCRIPTION} {where}",
            ),
            make_shell(
                sandbox=self,
                name="sandbox_shell",
                description=f"{SANDBOX_SHELL_DESCRIPTION} Working directory: {self.runtime.root}.",
            ),
        ]


def _error(refusal: errors.ToolError) -> OSError | ValueError:
    return next(_ERRORS[each] for each in type(refusal).__mro__ if each in _ERRORS)(
        refusal.render()
    )
