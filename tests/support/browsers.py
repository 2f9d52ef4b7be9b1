"""A real browser that opens a file, and what its page says afterwards."""

import atexit
import base64
import contextlib
import functools
import html
import json
import os
import re
import select
import subprocess
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

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
    """Open a page as a reader does who was sent the file: from the disk, alone.

    The browser is one, and each page has a profile of its own there.
    """
    file = folder / "page.html"
    file.write_bytes(page)
    browser = _browser()
    context = browser.ask("Target.createBrowserContext")["browserContextId"]
    target = browser.ask("Target.createTarget", url="about:blank", browserContextId=context)
    attached = browser.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    session = attached["sessionId"]
    browser.ask("Page.enable", session)
    browser.ask("Page.navigate", session, url=file.as_uri())
    browser.wait_for("Page.loadEventFired", session)
    shown = "document.documentElement.outerHTML"
    dom = browser.ask("Runtime.evaluate", session, expression=shown, returnByValue=True)
    browser.ask("Target.disposeBrowserContext", browserContextId=context)
    return Seen(dom["result"]["value"])


_WATCHED = """
globalThis.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => problems.push(event.blockedURI));
"""
_POLLED = """new Promise((found, failed) => {
  const end = performance.now() + %d;
  const look = () => {
    const value = (() => (%s))();
    if (value) found(value);
    else if (performance.now() > end) failed(new Error(document.body.innerText));
    else setTimeout(look, 10);
  };
  look();
})"""
_KEYS = {"Enter": 13, "Tab": 9, " ": 32, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40}


class Tab(Struct, frozen=True):
    """A window of its own: nothing is shared with another but the browser."""

    browser: "_Browser"
    session: str

    def go(self, address: str) -> None:
        # An address that differs in its fragment alone is no new document.
        self.browser.ask("Page.navigate", self.session, url="about:blank")
        self.browser.wait_for("Page.loadEventFired", self.session)
        self.browser.ask("Page.navigate", self.session, url=address)
        self.browser.wait_for("Page.loadEventFired", self.session)

    def run(self, script: str) -> Any:
        options = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        found = self.browser.ask("Runtime.evaluate", self.session, expression=script, **options)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition: str) -> Any:
        """The value of an expression, once it has one that is true."""
        return self.run(_POLLED % (TIMEOUT_S * 500, condition))

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until an element that is shown says that."""
        inner = f"document.querySelector({json.dumps(selector)})?.innerText"
        self.until(f"{inner}?.includes({json.dumps(text)})")

    def click(self, name: str, selector: str = "button, a, summary, .row") -> None:
        """Click, once it is there and enabled, on what begins with that text."""
        each = f"[...document.querySelectorAll({json.dumps(selector)})]"
        is_it = f"each.innerText.trim().startsWith({json.dumps(name)}) && !each.disabled"
        self.until(
            f"{each}.filter((each) => {is_it} && each.checkVisibility())"
            ".slice(0, 1).map((each) => (each.click(), true))[0]"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            named = {"key": key, "windowsVirtualKeyCode": _KEYS[key], "code": key}
            text = {"Enter": "\r", " ": " "}.get(key, "")
            for kind in ("keyDown", "keyUp"):
                said = {"type": kind, **named, **({"text": text} if text else {})}
                self.browser.ask("Input.dispatchKeyEvent", self.session, **said)

    def write(self, text: str) -> None:
        self.browser.ask("Input.insertText", self.session, text=text)

    def look(self, width: int, scheme: str = "light", height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.ask("Emulation.setDeviceMetricsOverride", self.session, **size)
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.ask("Emulation.setEmulatedMedia", self.session, features=media)

    def picture(self) -> bytes:
        """What is seen, as WebP."""
        shot = self.browser.ask("Page.captureScreenshot", self.session, format="webp", quality=85)
        return base64.b64decode(shot["data"])

    @property
    def problems(self) -> list[str]:
        """What went wrong in its scripts, and what its policy held back."""
        return self.run("problems")


@contextlib.contextmanager
def open_tab(width: int = 1440) -> Generator[Tab]:
    browser = _browser()
    context = browser.ask("Target.createBrowserContext")["browserContextId"]
    target = browser.ask("Target.createTarget", url="about:blank", browserContextId=context)
    attached = browser.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    tab = Tab(browser, attached["sessionId"])
    browser.ask("Page.enable", tab.session)
    browser.ask("Page.addScriptToEvaluateOnNewDocument", tab.session, source=_WATCHED)
    tab.look(width)
    try:
        yield tab
    finally:
        browser.ask("Target.disposeBrowserContext", browserContextId=context)


class _Browser:
    """Chromium, asked through two pipes: a message each way ends with a NUL."""

    def __init__(self, profile: Path) -> None:
        read_by_it, self._asking = os.pipe()
        self._answers, written_by_it = os.pipe()
        options = (
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}"),
        )
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{read_by_it} 4>&{written_by_it}',
                "bash",
                "chromium",
                *options,
            ],
            env={"HOME": str(profile), "PATH": "/usr/local/bin:/usr/bin:/bin"},
            pass_fds=(read_by_it, written_by_it),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_by_it)
        os.close(written_by_it)
        self._number = 0
        self._left = b""

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        asked |= {"sessionId": session} if session else {}
        os.write(self._asking, json.dumps(asked).encode() + b"\0")
        answer = self._next(lambda said: said.get("id") == self._number)
        assert "result" in answer, answer
        return answer["result"]

    def wait_for(self, event: str, session: str) -> None:
        self._next(lambda said: (said.get("method"), said.get("sessionId")) == (event, session))

    def end(self) -> None:
        os.close(self._asking)
        self._process.wait()

    def _next(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            while b"\0" not in self._left:
                ready, _, _ = select.select([self._answers], [], [], TIMEOUT_S)
                read = os.read(self._answers, 1 << 20) if ready else b""
                assert read, "the browser does not answer"
                self._left += read
            message, _, self._left = self._left.partition(b"\0")
            said = json.loads(message)
            if is_wanted(said):
                return said


@functools.cache
def _browser() -> _Browser:
    """It ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="paddock-browser-")
    browser = _Browser(Path(folder.name))

    def end() -> None:
        browser.end()
        folder.cleanup()

    atexit.register(end)
    return browser
