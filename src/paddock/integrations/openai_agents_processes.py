"""Commands of an OpenAI Agents SDK's session that go on running, with or without a terminal."""

import math
import time

from agents.sandbox.session import pty_types
from msgspec import Struct

from paddock.runtime.runtime import Runtime
from paddock.tools.outcome import last_words

_REFUSED = 126
"""As a shell says of a command that may not be run."""


class PtyProcess(Struct, frozen=True):
    number: int
    """The SDK's."""
    name: str
    """The runtime's."""
    tty: bool


class Processes:
    """Background processes of the runtime, in one session of it that begins with the first."""

    def __init__(self, runtime: Runtime, session: str) -> None:
        self.running: dict[int, PtyProcess] = {}
        self._runtime = runtime
        self._session = session
        self._has_begun = False

    async def start(
        self,
        line: str,
        tty: bool,
        wait_ms: int,
        tokens: int | None,
    ) -> pty_types.PtyExecUpdate:
        """Start a line, and wait for its output. A refusal is what it says as it ends."""
        self._has_begun = True
        given = {"command": line, "session": self._session, "background": True, "tty": tty}
        started = await self._runtime.acall("run_shell", given)
        if started.refusal is not None:
            return pty_types.PtyExecUpdate(None, started.content.encode(), _REFUSED, None)
        number = pty_types.allocate_pty_process_id(set(self.running))
        process = PtyProcess(number, str(started.details["process"]), tty)
        self.running[number] = process
        return await self._update(process, wait_ms, tokens)

    async def write(
        self, process: PtyProcess, chars: str, wait_ms: int, tokens: int | None
    ) -> pty_types.PtyExecUpdate:
        """Type into it, and wait for its output. Raises: RuntimeError without a terminal."""
        if chars and not process.tty:
            # The SDK's tool looks for these words.
            raise RuntimeError("stdin is not available for this process")
        if chars:
            await self._runtime.acall("shell_input", {"process": process.name, "text": chars})
        return await self._update(process, wait_ms, tokens)

    async def _update(
        self, process: PtyProcess, wait_ms: int, tokens: int | None
    ) -> pty_types.PtyExecUpdate:
        until, output, is_running = time.monotonic() + wait_ms / 1000, "", True
        while is_running and (left := until - time.monotonic()) > 0:
            asked = {"process": process.name, "wait_s": math.ceil(left)}
            said = (await self._runtime.acall("shell_output", asked)).details
            output, is_running = output + str(said.get("output", "")), said.get("running") is True
        exit_code = None
        if not is_running:
            self.running.pop(process.number, None)
            # What it changed is in the workspace when its end is told.
            ended = await self._runtime.acall("shell_stop", {"process": process.name})
            output += "".join(f"{line}\n" for line in last_words(ended.details))
            exit_code = ended.details.get("exit_code", _REFUSED)
        text, count = pty_types.truncate_text_by_tokens(output, tokens)
        live = process.number if is_running else None
        return pty_types.PtyExecUpdate(live, text.encode("utf-8", "replace"), exit_code, count)

    async def close(self) -> None:
        """End all of them, and bring in what they changed."""
        self.running.clear()
        if self._has_begun:
            self._has_begun = False
            await self._runtime.acall("shell_stop", {"session": self._session})
