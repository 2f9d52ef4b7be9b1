"""A real browser that opens a file, and what its page says afterwards."""

import html
import re
import subprocess
from pathlib import Path

from msgspec import Struct

TIMEOUT_S = 120


class Seen(Struct, frozen=True, dict=True):
    """The document after its scripts have run."""

    dom: str

    @property
    def verdict(self) -> str:
        found = re.search(r'<body[^>]* data-verdict="(\w+)"', self.dom)
        return found[1] if found else "none"

    def texts(self, tag: str, name: str) -> list[str]:
        """What the `tag`s in the element of that id say."""
        inner = re.search(rf'<(\w+)[^>]* id="{name}"[^>]*>(.*?)</\1>', self.dom, re.DOTALL)
        assert inner is not None, f"the page has no {name}"
        rows = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", inner[2], re.DOTALL)
        return [html.unescape(row) for row in rows]

    @property
    def found(self) -> list[str]:
        return self.texts("li", "found")

    @property
    def problems(self) -> list[str]:
        return self.texts("li", "problems")


def open_page(page: bytes, folder: Path) -> Seen:
    """Open a page as a reader does who was sent the file: from the disk, alone."""
    file = folder / "page.html"
    file.write_bytes(page)
    ran = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            file.as_uri(),
        ],
        env={"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return Seen(ran.stdout.decode())
