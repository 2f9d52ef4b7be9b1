"""Entry point of an installed hook: `python -I -S launch.py [--client NAME]`.

Kept short: the interpreter compiles it at every start. If loading fails, status 2 refuses the call.
"""

import posix
import sys

status = 2
try:
    sys.path.insert(0, __file__[:-9] + "lean")
    status = __import__("start").main()
except BaseException as error:  # Fail closed: no error may let a call run undecided.
    said = f"paddock hook cannot start ({error!r}); repair: paddock hook install\n"
    # If stderr is closed, the exit status alone refuses.
    posix.write(2, said.encode("ascii", "replace"))
finally:
    # Nothing needs cleanup, and the interpreter's shutdown takes as long as a call.
    posix._exit(status)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its name in os
