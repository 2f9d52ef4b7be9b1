"""Entry point of a wrapped command: `python -I exec.py …`.

Threat: an agent shadows a standard module, in the working directory or by PYTHONPATH: hence -I.
"""

import sys

sys.path.append(__file__.removesuffix("/paddock/apps/hook/exec.py"))

from paddock.apps.hook.wrapped import main

sys.exit(main(sys.argv[1:]))
