"""A program of `tests.support.forked` for whoever starts programs by a command line.

    python -I -S relayed.py SOCKET PROGRAM CODE [ARGUMENT ...]

Its process hands over its streams, environment and directory, passes on the signals that ask it
to end, and ends as the program ends; where it is killed, so is the program. It imports next to
nothing: that is what it is for.
"""

import _socket
import marshal
import os
import signal
import sys
from array import array

socket, *asked = sys.argv[1:]
given = [0, 1, 2]
if os.path.lexists("/proc/self/fd/3"):
    given.append(3)  # as the line of a wrapped command has it
told, telling = os.pipe()
sending = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
sending.connect(socket)
descriptors = array("i", [*given, telling])
try:
    here = os.getcwd()
except FileNotFoundError:
    here = "/proc/self/cwd"
message = marshal.dumps((asked, dict(os.environ), here, False))
sending.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
os.close(telling)
with open(told, "rb") as lines:
    pid = int(lines.readline())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda passed, _: os.kill(pid, passed))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in given:
        os.dup2(nothing, descriptor)
    status = int(lines.readline() or 70)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
