"""The question that a person is shown before an approval, the same at every door. Pure.

Threat: arguments and a cloned policy's reasons are written by others: with line
breaks, terminal sequences or direction overrides they would draw a question of
their own. Everything is escaped, each part on one line, and a cut is said.
"""

import json
from typing import Final

from paddock.runtime.approvals import ApprovalRequest
from paddock.text.show import cut, show_line, show_name

_SHOWN_CHARS_MAX: Final = 2000
_DIFF_LINES_MAX: Final = 1000


def question_of(request: ApprovalRequest) -> str:
    """Who asks to run what, why that is asked about, and by which rule."""
    arguments = json.dumps(dict(request.arguments), ensure_ascii=True)
    shown = cut(arguments, _SHOWN_CHARS_MAX)
    rows = [
        f"agent {show_name(request.agent)} asks to run {show_name(request.tool)} {shown}",
        *(f"  action: {show_name(action)}" for action in request.actions),
        f"  why asked: {show_name(request.reason)}",
        *(f"  warning: {show_name(warning)}" for warning in request.warnings),
    ]
    if request.rule:
        rows.append(f"  rule: {show_name(request.rule)}")
    if request.diff:
        rows += ["  it would change:", *_diff_rows(request.diff)]
    return "\n".join(rows)


def _diff_rows(diff: str) -> list[str]:
    lines = diff.split("\n")
    rows = [f"    {show_line(line)[0]}" for line in lines[:_DIFF_LINES_MAX]]
    missing = len(lines) - _DIFF_LINES_MAX
    return [*rows, f"    … {missing} more lines"] if missing > 0 else rows
