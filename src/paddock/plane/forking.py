"""What a forked child makes anew: only the thread that forks goes on there.

A lock that another thread held stays taken in the child for ever, and what that thread had
begun is never ended.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_anew: Final[weakref.WeakKeyDictionary[Any, Callable[[Any], None]]] = weakref.WeakKeyDictionary()


def call_after_fork(thing: T, anew: Callable[[T], None]) -> None:
    """Have `anew(thing)` called in every child that is forked while `thing` is there.

    It makes the locks anew, and forgets what other threads had begun: that is the parent's.
    """
    _anew[thing] = anew


def _in_child() -> None:
    for thing, anew in list(_anew.items()):
        anew(thing)


os.register_at_fork(after_in_child=_in_child)
