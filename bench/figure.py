"""The budgets as a picture: how much of each is used, on a logarithmic scale."""

import math
from xml.sax.saxutils import escape

from budget import Kept

ROW, LABEL, BAR, MARGIN = 22, 430, 360, 30
LOW, HIGH = 0.01, 2.0


def draw(rows: list[Kept]) -> str:
    """An SVG: one bar a row; the line at 1 is the budget."""
    height = MARGIN * 2 + ROW * len(rows)
    width = LABEL + BAR + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for mark in (0.01, 0.1, 0.5, 1.0, 2.0):
        x = LABEL + _place(mark)
        color = "#b00020" if mark == 1 else "#cccccc"
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN - 6}" y2="{height - MARGIN}" '
            f'stroke="{color}"/>'
            f'<text x="{x:.1f}" y="{MARGIN - 12}" text-anchor="middle" fill="#555">{mark:g}</text>'
        )
    for number, row in enumerate(rows):
        parts.append(_bar(row, MARGIN + ROW * number))
    parts.append(
        f'<text x="{LABEL}" y="{height - 8}" fill="#555">share of the budget that is used; '
        "left of the red line it is kept</text></svg>\n"
    )
    return "\n".join(parts)


def _bar(row: Kept, y: int) -> str:
    label = (
        f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end" fill="#222">'
        f"{escape(row.budget.area)}</text>"
    )
    if row.share is None:
        color = "#555" if row.is_away else "#b00020"
        return f'{label}<text x="{LABEL + 4}" y="{y + 15}" fill="{color}">{row.said.lower()}</text>'
    length = max(2.0, _place(row.share))
    color = "#2e7d32" if row.said == "moonshot" else "#5b8dbd" if row.holds else "#b00020"
    return (
        f'{label}<rect x="{LABEL}" y="{y + 4}" width="{length:.1f}" height="{ROW - 8}" '
        f'fill="{color}"/><text x="{LABEL + length + 5:.1f}" y="{y + 15}" fill="#222">'
        f"{row.share:.2f}</text>"
    )


def _place(share: float) -> float:
    """Where a share stands on the scale, in pixels from its left end."""
    bounded = min(max(share, LOW), HIGH)
    return BAR * math.log(bounded / LOW) / math.log(HIGH / LOW)
