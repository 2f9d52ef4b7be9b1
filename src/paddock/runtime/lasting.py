"""A session of commands, for programs: `with runtime.shell() as shell: shell.run("make")`."""

from typing import TYPE_CHECKING, Self

from msgspec import Struct

from paddock.errors import InvalidArgumentsError
from paddock.values.calls import Json, ToolResult

if TYPE_CHECKING:
    from paddock.runtime.runtime import OnText, Runtime


class LastingShell(Struct, frozen=True):
    """Each command begins where the last one ended; leaving ends what still runs."""

    runtime: "Runtime"
    name: str

    def run(self, command: str, *, on_output: "OnText | None" = None, **more: Json) -> ToolResult:
        """Run one line, as `Runtime.run_shell`. Raises: ToolError."""
        given = {**more, "command": command, "session": self.name}
        return self.runtime.call("run_shell", given, on_output=on_output).unwrap()

    def start(self, command: str, **more: Json) -> "LastingProcess":
        """Start a line in the background (`tty`, `columns`, `rows`). Raises: ToolError."""
        given = {**more, "command": command, "session": self.name, "background": True}
        result = self.runtime.call("run_shell", given).unwrap()
        return LastingProcess(self.runtime, str(result.details["process"]))

    def close(self) -> None:
        """End it; what its processes changed is brought in. Raises: ToolError."""
        try:
            self.runtime.call("shell_stop", {"session": self.name}).unwrap()
        except InvalidArgumentsError:
            # Nothing ever ran in it, or it was not used for an hour.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LastingProcess(Struct, frozen=True):
    """A command in the background. Each method raises ToolError."""

    runtime: "Runtime"
    id: str

    def read(self, *, wait_s: int = 0, offset: int | None = None) -> ToolResult:
        """Return what it has printed since this was last asked, or from a byte on."""
        more: dict[str, Json] = {} if offset is None else {"offset": offset}
        return self._call("shell_output", wait_s=wait_s, **more)

    def write(self, text: str) -> ToolResult:
        """Type into it."""
        return self._call("shell_input", text=text)

    def sync(self) -> ToolResult:
        """Bring in what it changed so far."""
        return self._call("shell_sync")

    def stop(self) -> ToolResult:
        """End it, and bring in what it changed."""
        return self._call("shell_stop")

    def _call(self, tool: str, **more: Json) -> ToolResult:
        return self.runtime.call(tool, {"process": self.id, **more}).unwrap()
