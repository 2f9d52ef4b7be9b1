"""The program that a wrapped command's line names: `python -I exec.py …`; nobody types this.

Threat: the shell stands where an agent may have put a module of a well-known name, and its
environment may name another place to look: -I takes neither.
"""

import sys

sys.path.append(__file__.removesuffix("/paddock/apps/hook/exec.py"))

from paddock.apps.hook.wrapped import main

sys.exit(main(sys.argv[1:]))
