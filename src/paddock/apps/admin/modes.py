"""What keys mean now."""

from enum import Enum, auto


class Mode(Enum):
    """One at a time; see `panel`."""

    READING = auto()
    BUSY = auto()
    DRAWING = auto()
    ASKING = auto()
