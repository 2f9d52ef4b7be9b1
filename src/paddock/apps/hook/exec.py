"""The program that a wrapped command's line names: `python -I exec.py …`.

Threat: an agent's module of a well-known name, in the directory or by the environment: -I.
"""

import sys

sys.path.append(__file__.removesuffix("/paddock/apps/hook/exec.py"))

from paddock.apps.hook.wrapped import main

sys.exit(main(sys.argv[1:]))
