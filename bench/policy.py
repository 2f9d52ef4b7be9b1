"""What a decision costs with 10, 100 and 1,000 rules.

    python bench/policy.py

202 paths are judged against patterns: heads (`dir7/**`), names (`*.ext7`) and whole
paths, most of them matching nothing. Nothing is remembered from one round to the next:
each round has a judge of its own, which sees every path once. A loop over fnmatch has to
agree with what is decided. Must: from 10 to 1,000 rules no more than 15 times the price.
"""

import gc
import statistics
import sys
import time
from fnmatch import fnmatch

from paddock.policy.decide import ChainJudge
from paddock.policy.engine import PolicySource, load_policy
from paddock.values.decisions import Action, Agent, Outcome

ROUNDS = 21
SIZES = (10, 100, 1_000)
MUST_GROWTH = 15


def patterns(count: int) -> list[str]:
    """A third of each kind, as people write them."""
    kinds = ("generated{0}/**", "*.tmp{0}", "src/app{0}/settings.local.py")
    return [kinds[number % 3].format(number) for number in range(count)]


def paths() -> list[str]:
    """202 paths; every tenth one matches."""
    found = []
    for number in range(101):
        found.append(f"src/package{number % 13}/module{number}.py")
        odd = number % 5 == 0
        found.append(f"generated{number % 9}/a/b.txt" if odd else f"docs/part{number}/page.md")
    return found


def judged_us(judge: ChainJudge, actions: list[Action]) -> float:
    started = time.perf_counter_ns()
    for action in actions:
        judge.decide(action)
    return (time.perf_counter_ns() - started) / len(actions) / 1000


def main() -> int:
    asked = paths()
    actions = [Action("file", "create", path) for path in asked]
    medians: dict[int, float] = {}
    print(f"{'rules':>6}{'decision us':>14}")
    for size in SIZES:
        rules = patterns(size)
        denied = ", ".join(f'"tool:file:* {rule}"' for rule in rules)
        text = f'[profiles.standard]\nallow = ["tool:file:*"]\ndeny = [{denied}]\n'
        policy = load_policy(PolicySource("paddock.toml", text.encode()))
        chain = (Agent("main", "standard"),)
        judge = ChainJudge(policy, chain)
        agreed = sum(judge.decide(action).outcome is Outcome.DENY for action in actions)
        if agreed != sum(any(fnmatch(p, r) for r in rules) for p in asked):
            print("error: the two disagree", file=sys.stderr)
            return 1
        gc.disable()
        taken = [judged_us(ChainJudge(policy, chain), actions) for _ in range(ROUNDS)]
        gc.enable()
        medians[size] = statistics.median(taken)
        print(f"{size:>6}{medians[size]:>14.2f}")
    growth = medians[SIZES[-1]] / medians[SIZES[0]]
    print(f"growth from 10 to 1,000 rules: {growth:.2f} (must {MUST_GROWTH})")
    return 0 if growth <= MUST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
