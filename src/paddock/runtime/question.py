"""The question that a person is shown before an approval, the same at every door. Pure.

Threat: arguments and a cloned policy's reasons are written by others: with line
breaks, terminal sequences or direction overrides they would draw a question of
their own. Everything is escaped, each part on one line, and a cut is said.
"""

import json
from typing import Final

from paddock.runtime.approvals import ApprovalRequest
from paddock.text.show import cut, show_unseen

_SHOWN_CHARS_MAX: Final = 2000
_DIFF_LINES_MAX: Final = 1000


def question_of(request: ApprovalRequest) -> str:
    """Who asks to run what, why that is asked about, and by which rule."""
    arguments = json.dumps(dict(request.arguments), ensure_ascii=True)
    shown = cut(arguments, _SHOWN_CHARS_MAX)
    rows = [
        f"agent {_seen(request.agent)} asks to run {_seen(request.tool)} {shown}",
        *(f"  action: {_seen(action)}" for action in request.actions),
        f"  why asked: {_seen(request.reason)}",
        *(f"  warning: {_seen(warning)}" for warning in request.warnings),
    ]
    if request.rule:
        rows.append(f"  rule: {_seen(request.rule)}")
    if request.diff:
        rows += ["  it would change:", *_diff_rows(request.diff)]
    return "\n".join(rows)


def _seen(text: str) -> str:
    return show_unseen(text)[0]


def _diff_rows(diff: str) -> list[str]:
    lines = diff.split("\n")
    rows = [f"    {_seen(line)}" for line in lines[:_DIFF_LINES_MAX]]
    missing = len(lines) - _DIFF_LINES_MAX
    return [*rows, f"    … {missing} more lines"] if missing > 0 else rows
