"""Argument validation beside a cached jsonschema validator.

    python bench/arguments.py

Prints microseconds a call (median of interleaved rounds) and the ratio. Must: 0.05.
"""

import statistics
import sys
import time
from collections.abc import Callable

import jsonschema

from paddock.tools.arguments import Binder
from paddock.tools.replace import StrReplaceArguments

ROUNDS = 15
CALLS = 2_000
MUST = 0.05
ARGUMENTS = {"path": "src/app.py", "old_str": "teh", "new_str": "the"}


def microseconds(act: Callable[[], object], calls: int) -> float:
    started = time.perf_counter_ns()
    for _ in range(calls):
        act()
    return (time.perf_counter_ns() - started) / calls / 1000


def main() -> int:
    binder = Binder(StrReplaceArguments)
    validator = jsonschema.Draft202012Validator(binder.schema)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        ours.append(microseconds(lambda: binder.bind(ARGUMENTS), CALLS))
        theirs.append(microseconds(lambda: validator.validate(ARGUMENTS), CALLS // 10))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    print(f"binder      {statistics.median(ours):8.2f} us")
    print(f"jsonschema  {statistics.median(theirs):8.2f} us")
    print(f"ratio       {ratio:8.3f}  (must {MUST})")
    return 0 if ratio <= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
