"""Pictures of the console's pages, of a small project in which two agents have worked.

PYTHONPATH=. python tests/web_pages/pictures.py FOLDER
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.console_pages import opened
from tests.support.consoles import console_place, make_call
from tests.support.mcp_servers import McpPlace

POLICY = """
[profiles.standard]
extends = "standard"
ask = ["tool:file:delete **", "tool:file:str_replace docs/**"]
"""
CART = """class Cart:
    def __init__(self) -> None:
        self.items: list[tuple[str, int]] = []

    def add(self, name: str, price: int) -> None:
        self.items.append((name, price))

    def total(self) -> int:
        total = 0
        for _, price in self.items:
            total += price
        return total
"""
LOOP = CART[CART.index("        total = 0") :]
SUM = "        return sum(price for _, price in self.items)\n"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ls", {"path": "."}),
    ("create_file", {"path": "src/cart.py", "content": CART}),
    ("view", {"path": "src/cart.py"}),
    ("str_replace", {"path": "src/cart.py", "old_str": LOOP, "new_str": SUM}),
    ("grep", {"pattern": "total"}),
    ("view", {"path": ".env"}),
    ("create_file", {"path": ".git/hooks/pre-commit", "content": "#!/bin/sh\n"}),
    ("create_file", {"path": "tests/test_cart.py", "content": "def test_total(): ...\n"}),
    ("view", {"path": "../../etc/passwd"}),
    (
        "str_replace",
        {
            "path": "docs/use.md",
            "old_str": "Add a widget to the cart.\nThen pay.\n",
            "new_str": "Add a widget to the cart.\nCheck the total, then pay.\n",
        },
    ),
    ("delete_file", {"path": "README.md"}),
)
SHOTS = (
    ("now", "/now", "2 questions wait for you", "light"),
    ("inbox", "/inbox", "Check the total, then pay", "light"),
    ("timeline", "/timeline?entry=ho1m:6", "Proved", "dark"),
    ("files", "/files?path=src/cart.py", "Undo this call", "light"),
    ("policy", "/policy", "delete any file", "dark"),
    ("sessions", "/sessions", "what files are there?", "light"),
    ("ledgers", "/ledgers", "messages and answers, turn by turn", "light"),
)


def make_pictures(place: McpPlace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (place.project / "docs").mkdir()
    (place.project / "docs/use.md").write_text("# Use\n\nAdd a widget to the cart.\nThen pay.\n")
    (place.project / ".env").write_text("KEY=abc\n")
    for tool, arguments in CALLS:
        make_call(place, tool, **arguments)
    place.run("run", "what files are there?")
    with opened(place) as page:
        for name, path, said, scheme in SHOTS:
            page.tab.look(1280, scheme, 780)
            tab = page.open(path)
            if name == "inbox":
                tab.click("main wants to edit")
            tab.sees(said)
            tab.sees("Live", "#live")
            tab.sees("project", "#project")
            (folder / f"{name}.webp").write_bytes(tab.picture())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="paddock-pictures-") as made:
        make_pictures(console_place(Path(made), POLICY), Path(sys.argv[1]))
