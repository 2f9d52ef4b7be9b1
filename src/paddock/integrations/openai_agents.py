"""Paddock in the OpenAI Agents SDK: a sandbox for `SandboxAgent`, a shell and an editor.

RunConfig(sandbox=SandboxRunConfig(client=PaddockSandboxClient(".")))
ShellTool(executor=shell_executor(".")), ApplyPatchTool(editor=patch_editor("."))
"""

import math
import uuid
from typing import Any, Final

import agents
from agents.sandbox import session
from agents.sandbox.manifest import Manifest
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from paddock.errors import ToolError
from paddock.integrations import Opened, Root
from paddock.integrations.openai_agents_session import (
    PaddockSandboxSession,
    PaddockSandboxSessionState,
)
from paddock.limits import content_bytes_max, edited_file_bytes_max
from paddock.values.calls import Json, ToolResult
from paddock.values.entries import digest_of

_DEFAULT_ROOT: Final = Manifest().root


class PaddockSandboxClient(Opened, session.BaseSandboxClient[None]):
    """Sessions on one workspace, which stays when they are deleted; `close` it at the end.

    A manifest's entries and a restored snapshot are written there by the same policy. Mounts,
    ports, grants of other paths and other users are refused by the SDK's own errors.
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
        state = PaddockSandboxSessionState(
            session_id=identity,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(identity)),
        )
        return self._opened(state)

    async def resume(self, state: session.SandboxSessionState) -> session.SandboxSession:
        if not isinstance(state, PaddockSandboxSessionState):
            raise TypeError("PaddockSandboxClient.resume expects a PaddockSandboxSessionState")
        state.assert_path_grants_rebound()
        return self._opened(state, is_resumed=True)

    def _opened(
        self, state: PaddockSandboxSessionState, *, is_resumed: bool = False
    ) -> session.SandboxSession:
        """Raises: ValueError, MountConfigError: the manifest wants what is not supported."""
        manifest = self._validate_manifest_for_create(state.manifest)
        unsupported = {
            "manifest users or groups": manifest.users or manifest.groups,
            "sandbox path grants": manifest.extra_path_grants,
            f"another root than {self.runtime.root}": not self.runtime.names(manifest.root)
            or manifest.root != self.runtime.root,
        }
        for what, is_wanted in unsupported.items():
            if is_wanted:
                raise ValueError(f"PaddockSandboxClient does not support {what}")
        inner = PaddockSandboxSession(state, self.runtime, is_resumed=is_resumed)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def delete(self, session: session.SandboxSession) -> session.SandboxSession:
        """End what the session left running; the workspace is the program's, and stays."""
        await session.pty_terminate_all()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> PaddockSandboxSessionState:
        return PaddockSandboxSessionState.model_validate(
            self._deserialize_session_state_payload(payload, PaddockSandboxSessionState)
        )


class ShellExecutor(Opened):
    """Runs the commands of `ShellTool`; `close` it at the end."""

    async def __call__(self, request: agents.ShellCommandRequest) -> agents.ShellResult:
        action = request.data.action
        timeout = None if action.timeout_ms is None else max(1, math.ceil(action.timeout_ms / 1000))
        output: list[agents.ShellCommandOutput] = []
        for command in action.commands:
            output.append(await self._run(command, timeout))
            if output[-1].outcome.type == "timeout":
                break
        return agents.ShellResult(output, max_output_length=action.max_output_length)

    async def _run(self, command: str, timeout: int | None) -> agents.ShellCommandOutput:
        try:
            done = await self.runtime.aexec(
                command, timeout=timeout, output_limit=content_bytes_max
            )
        except ToolError as error:
            refused = agents.ShellCallOutcome("exit", 126)
            return agents.ShellCommandOutput("", error.render(), refused, command)
        ending = "timeout" if done.timed_out else "exit"
        return agents.ShellCommandOutput(
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace") + done.notice,
            agents.ShellCallOutcome(ending, None if done.timed_out else done.exit_status),
            command,
        )


def shell_executor(root: Root, **open_arguments: Any) -> ShellExecutor:
    """Return the executor for a directory, as `paddock.open` has it, or for an open runtime."""
    return ShellExecutor(root, **open_arguments)


class PatchEditor(Opened):
    """Applies the operations of `ApplyPatchTool`, each to what it read; `close` it at the end."""

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
        except ValueError as error:  # the diff does not fit, or the file is no text
            return agents.ApplyPatchResult("failed", str(error))
        path, target = operation.path, operation.move_to
        if target is None or target == path:
            return await self._call("create_file", path=path, content=after, if_version=version)
        made = await self._call("create_file", path=target, content=after, if_version="absent")
        if made.status == "failed":
            return made
        return await self._call("delete_file", path=path, if_version=version)

    async def _call(self, tool: str, **given: Json) -> agents.ApplyPatchResult:
        result: ToolResult = await self.runtime.acall(tool, given)
        return agents.ApplyPatchResult(
            "completed" if result.refusal is None else "failed", result.content
        )


def patch_editor(root: Root, **open_arguments: Any) -> PatchEditor:
    """Return the editor for a directory, as `paddock.open` has it, or for an open runtime."""
    return PatchEditor(root, **open_arguments)
