"""The file that an installed hook command names: `python -I -S launch.py [--client NAME]`.

Short: the interpreter compiles a script at every start. A failed load is a refusal: status 2.
"""

import posix
import sys

status = 2
try:
    sys.path.insert(0, __file__[:-9] + "lean")
    status = __import__("start").main()
except BaseException as error:  # The door: nothing may let a call run undecided.
    said = f"paddock hook cannot start ({error!r}); repair: paddock hook install\n"
    # Also where nobody hears it: then the status alone refuses.
    posix.write(2, said.encode("ascii", "replace"))
finally:
    # Nothing is left to end in order, and the interpreter's own end costs as much as a call.
    posix._exit(status)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - its name in os
