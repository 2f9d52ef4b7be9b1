"""What parsers of a stranger's bytes are fed: valid messages spoilt, and how much work that is."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

INPUTS_OF_AN_EXAMPLE = 200
"""Fifty examples, the fewest of any profile, are ten thousand inputs."""
_EDGES = (0, 1, 2, 3, 0x16, 0x3F, 0x40, 0x80, 0xC0, 0xC0, 0x0C, 0xFF)


def spoilt(seed: int, valid: Sequence[bytes]) -> Iterator[bytes]:
    """Yield inputs for one example: valid messages changed in up to six places, and plain noise."""
    chance = random.Random(seed)
    for _ in range(INPUTS_OF_AN_EXAMPLE):
        if chance.random() < 0.05:
            yield chance.randbytes(chance.choice((0, 1, 11, 12, 40, 300)))
            continue
        message = bytearray(chance.choice(valid))
        for _ in range(chance.randint(0, 6)):
            _spoil(chance, message, valid)
        yield bytes(message)


def _spoil(chance: random.Random, message: bytearray, valid: Sequence[bytes]) -> None:
    at = chance.randint(0, len(message))
    end = at + chance.choice((1, 1, 2, 4, 30))
    match chance.randrange(7):
        case 0:
            message[at : at + 1] = bytes([chance.choice(_EDGES)])
        case 1:
            message[at:at] = chance.randbytes(chance.choice((1, 2, 5)))
        case 2:
            del message[at:end]
        case 3:
            del message[at:]
        case 4:
            message[at:at] = message[at:end]
        case 5:
            other = chance.choice(valid)
            message[at:] = other[chance.randint(0, len(other)) :]
        case _ if at < len(message):
            message[at] ^= 1 << chance.randrange(8)


def lines_run(function: Callable[[bytes], object], data: bytes) -> int:
    """Count the lines of Python that a call runs, its work without a clock."""
    count = 0

    def count_lines(frame: FrameType, event: str, _: object) -> Callable[..., object]:
        nonlocal count
        count += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        function(data)
    finally:
        sys.settrace(before)
    return count
