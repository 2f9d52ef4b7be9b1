"""What reads a command line: bash where a command may reach one, else sh."""

from typing import Final

from paddock.sandbox.host.places import is_covered
from paddock.sandbox.host.standing import Resolver
from paddock.sandbox.values import SandboxPlan

_BASH: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
SH: Final = "/bin/sh"


def find_interpreter(plan: SandboxPlan) -> str:
    """The absolute name of bash, or of sh where none is readable under the plan."""
    resolver = Resolver()
    for path in _BASH:
        standing = resolver.find(path)
        if standing is not None and is_covered(standing.real, plan.readable):
            return path
    return SH
