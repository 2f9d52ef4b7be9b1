"""A command that a client runs, wrapped so that it runs in Paddock's sandbox.

The client gets a changed input: its shell starts `paddock sandbox exec`, which gets the
command as one argument, confines it by the policy and gives back what it said.
"""

import json
import shlex
from collections.abc import Sequence

from paddock.apps.hook.lean.asked import Asked
from paddock.values.calls import Json


def wrapped_input(asked: Asked, program: Sequence[str], root: str, agent: str, base: str) -> str:
    """JSON text of the changed input; empty where the command stays as it is.

    A background command stays: the client keeps it by its own means. `program` starts
    Paddock's command line.
    """
    command = asked.input.get("command")
    if asked.input.get("run_in_background") is True or not isinstance(command, str):
        return ""
    words = [*program, "sandbox", "exec", "--plane", root, "--agent", agent, "--in", base]
    changed: dict[str, Json] = dict(asked.input)
    changed["command"] = shlex.join([*words, "--", command])
    return json.dumps(changed)
