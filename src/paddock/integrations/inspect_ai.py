"""Use Paddock as the sandbox `paddock` of Inspect evaluations.

    Task(dataset=…, solver=…, sandbox="paddock")
    Task(dataset=…, solver=…, sandbox=("paddock", "policy.toml"))

Each sample has a private directory with its files, under the policy file or the default policy,
which confines every command. The directory is removed afterwards. Its ledger stays, and the
sample's transcript names its path. `PaddockConfig(root=…)` uses a project with its policy instead.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final, Literal, Self, overload

from inspect_ai.log import transcript
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, model_validator

from paddock import errors, limits
from paddock.assembly.project_open import init_project, open_given
from paddock.assembly.runtimes import open_workspace
from paddock.errors import ToolError
from paddock.integrations import REFUSED, raising, text_of
from paddock.plane.create import POLICY_TEMPLATE
from paddock.plane.environment import process_environment
from paddock.runtime.program import Executed, await_thread
from paddock.runtime.runtime import Runtime

# Inspect's errors for refusals: the first match applies; any other is a RuntimeError.
_RAISED: Final[tuple[tuple[type[ToolError], type[Exception]], ...]] = (
    (errors.PathNotFoundError, FileNotFoundError),
    (errors.PathNotAFileError, IsADirectoryError),
    (errors.PathError, PermissionError),
    (errors.PermissionDeniedError, PermissionError),
    (errors.ApprovalError, PermissionError),
    (errors.SandboxUnavailableError, SandboxUnavailableError),
)


class PaddockConfig(BaseModel, frozen=True):
    """A task's sandbox configuration: a policy for the samples, or a project for all of them."""

    policy: str | None = None
    root: str | None = None
    agent: str | None = None

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if self.policy and self.root:
            raise ValueError("policy is for directories of samples; a root has its own policy")
        return self


class PaddockSandboxEnvironment(SandboxEnvironment):
    def __init__(self, runtime: Runtime, plane: str, own_directory: Path | None) -> None:
        super().__init__()
        self.runtime = runtime
        self.plane = plane  # the directory of the ledger
        self._own_directory = own_directory

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        given = _given(config)
        opened = await await_thread(lambda _: cls._opened(given))
        transcript().info({"plane": opened.plane}, source="paddock")
        return {"default": opened}

    @classmethod
    def _opened(cls, given: PaddockConfig) -> Self:
        if given.root is not None:
            runtime = open_workspace(given.root, agent=given.agent)
            return cls(
                runtime, str(open_given(given.root, process_environment()).layout.root), None
            )
        policy = POLICY_TEMPLATE if given.policy is None else Path(given.policy).read_bytes()
        own = Path(tempfile.mkdtemp(prefix="paddock-inspect-"))
        try:
            made = init_project(own, process_environment(), policy)
            runtime = open_workspace(own, agent=given.agent)
            return cls(runtime, str(made.plane.layout.root), own)
        except BaseException:
            _remove(own)
            raise

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for each in environments.values():
            environment = each.as_type(cls)
            await await_thread(lambda _, of=environment: of.close())

    def close(self) -> None:
        self.runtime.close()
        if self._own_directory is not None:
            _remove(self._own_directory)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return PaddockConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - the framework's name
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None:
            raise SandboxUserUnsupportedError(
                f"paddock cannot run a command as {user!r}: the sandbox keeps its own user"
            )
        given = input.encode() if isinstance(input, str) else input or b""
        with raising(_raised):
            done = await self.runtime.aexec(
                cmd,
                stdin=given,
                cwd=cwd or ".",
                env=env,
                timeout=timeout or limits.shell_timeout_s,
                output_limit=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
            )
        return _result(done, cmd)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        with raising(_raised):
            await self.runtime.awrite_bytes(file, content)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with raising(_unread):
            content = await self.runtime.aread_bytes(file, limit=most)
        return content.decode() if text else content


sandboxenv(name="paddock")(PaddockSandboxEnvironment)


def _given(config: SandboxEnvironmentConfigType | None) -> PaddockConfig:
    if config is None:
        return PaddockConfig()
    if isinstance(config, str):
        return PaddockConfig(policy=config)
    return PaddockConfig.model_validate(config.model_dump())


def _unread(error: ToolError) -> Exception:
    if isinstance(error, errors.TextTooLargeError):
        return OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
    return _raised(error)


def _raised(error: ToolError) -> Exception:
    kind = next((kind for refusal, kind in _RAISED if isinstance(error, refusal)), RuntimeError)
    return kind(f"{error.message}\nhint: {error.hint}" if error.hint else error.message)


def _result(done: Executed, cmd: list[str]) -> ExecResult[str]:
    stdout, stderr = map(text_of, (done.stdout, done.stderr))
    if done.timed_out:
        raise TimeoutError(f"{cmd[0]} exceeded its time limit and was stopped")
    if done.is_cut:
        said = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
        raise OutputLimitExceededError(said, stdout or stderr)
    if done.exit_code == REFUSED and "ermission denied" in stderr:
        raise PermissionError(stderr)
    if done.notice and stderr and not stderr.endswith("\n"):
        stderr += "\n"
    return ExecResult(done.exit_status == 0, done.exit_status, stdout, stderr + done.notice)


def _remove(directory: Path) -> None:
    """Remove a directory, even if a command cleared write bits, which bind the owner too."""
    for where, names, _ in os.walk(directory):
        for path in (Path(where, name) for name in names):
            # Threat: chmod through a symlink would change its target.
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(directory)
