"""The console in a real browser, beside a plane of a million entries and one of a thousand.

    python bench/console.py [--entries 1000 1000000] [--rounds 5] [--folder DIR]

    page      from the address to the frame in which the page's data is painted, for each page.
              Must, with a million entries: 300 ms
    update    from the append of an entry to the frame that shows it, on the pages that follow
              calls. Must: 200 ms
    append    an append, its sync included, while ten windows follow the ledger, over one while
              none does, in turns. Must: 1.1, for the median and for the 99th of a hundred

The planes are written from entries of real calls and of a real session, copied under other ids
and paths. Chromium and this program share the machine with the server: ten windows that draw
need as many processors, or they and not the server are what an append waits for.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

from msgspec import Struct

# In place of this folder, whose mcp.py is not the package of that name.
sys.path[0] = str(Path(__file__).parents[1])

from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_site
from paddock.ledger.append import LedgerFile
from paddock.ledger.query import Filter, query
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.browsers import Tab
from tests.support.console_pages import Page, opened, worked_place
from tests.support.consoles import make_call
from tests.support.mcp_servers import McpPlace

CALLS_PER_SESSION = 50
VIEWS_PER_EDIT = 8
BATCH = 1_000
WINDOWS = 10
APPENDS = 100
TURNS = 4
PACE_S = 0.05
SHOWN = {
    "now": "main ul.calls .row",
    "inbox": ".detail .answer button",
    "timeline": ".rows .row",
    "files": ".rows .row",
    "policy": ".panel .rule",
    "sessions": ".detail .turn",
    "ledgers": ".ledger .facts",
}
FOLLOWING = ("now", "timeline")
PAINTED = """
globalThis.painted = null;
new MutationObserver((_, watch) => {
  if (!document.querySelector(%s)) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => (painted = performance.now())));
}).observe(document, { childList: true, subtree: true });
"""
WATCH = """new Promise((done) => new MutationObserver((_, watch) => {
  if (!document.querySelector("main").innerText.includes(%s)) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(Date.now())));
}).observe(document, { childList: true, subtree: true, characterData: true }))"""


class Plane(Struct, frozen=True, dict=True):
    place: McpPlace
    calls: tuple[Entry, ...] = ()
    """Of a view, a creation and an edit: intent and result of each."""

    def path(self, name: str) -> str:
        return json.loads(self.place.run("where", "--json").stdout)["ledgers"][name]

    def entries(self, name: str, **wanted: str) -> list[Entry]:
        return [each.entry for each in query(self.path(name), Filter(**wanted)).entries]

    def open(self, name: LedgerName) -> LedgerFile:
        site = find_site(self.place.project, read_environment(self.place.variables), None)
        return PlaneLedger(site.layout, site.environment, name).open()


def make_plane(base: Path, entries: int) -> Plane:
    """Work in a new place, then repeat what was recorded until there are so many entries."""
    base.mkdir()
    place = worked_place(base)
    made = [
        make_call(place, "view", path="README.md"),
        make_call(place, "create_file", path="kept.md", content="one\n"),
        make_call(place, "str_replace", path="kept.md", old_str="one", new_str="two"),
    ]
    place.run("run", "what files are there?")
    plane = Plane(place)
    calls = [each for call in made for each in plane.entries("ho1m", call_id=call["call"])]
    plane = Plane(place, tuple(calls))
    talk = [each for each in plane.entries("ho2m") if each.session_id]
    sessions = entries // (2 * CALLS_PER_SESSION + len(talk))
    write_all(plane, LedgerName.HO1M, of_calls(plane.calls, sessions))
    turns = (each._replace(session_id=f"SES-{at:016x}") for at in range(sessions) for each in talk)
    write_all(plane, LedgerName.HO2M, turns)
    return plane


def of_calls(calls: Sequence[Entry], sessions: int) -> Iterator[Entry]:
    view, edit = calls[:2], calls[2:]
    for number in range(sessions * CALLS_PER_SESSION):
        kind = number % (VIEWS_PER_EDIT + 2) - VIEWS_PER_EDIT
        yield from as_call(view if kind < 0 else edit[2 * kind : 2 * kind + 2], number)


def as_call(pair: Sequence[Entry], number: int, path: str = "") -> Iterator[Entry]:
    """Yield both entries of a call under another id, in another session, of another path."""
    path = path or f"src/module{number % 997}.py"
    ids = {"session_id": f"SES-{number // CALLS_PER_SESSION:016x}", "call_id": f"CALL-{number}"}
    for entry in pair:
        metadata = dict(entry.metadata)
        if "actions" in metadata:
            action = str(metadata["actions"][0]).partition(" ")[0]
            metadata |= {"actions": [f"{action} {path}"]}
            metadata |= {"arguments": {**metadata["arguments"], "path": path}}
        else:
            metadata |= {"effects": [{**each, "path": path} for each in metadata["effects"]]}
        yield entry._replace(metadata=metadata, **ids)


def write_all(plane: Plane, name: LedgerName, entries: Iterator[Entry]) -> None:
    """Append in batches, with one sync at the end."""
    with closing(plane.open(name)) as ledger:
        end = None
        while batch := [*islice(entries, BATCH)]:
            _, *end = ledger.write(batch)
        if end:
            ledger.commit(*end)
    query(plane.path(name), Filter("NEVER"))  # makes the index


def paint_ms(page: Page, name: str) -> float:
    """From the address to the frame with the page's data."""
    tab = page.tab
    source = PAINTED % json.dumps(SHOWN[name])
    added = tab.browser.ask("Page.addScriptToEvaluateOnNewDocument", tab.session, source=source)
    page.open(f"/{name}")
    found = tab.until("globalThis.painted")
    tab.browser.ask("Page.removeScriptToEvaluateOnNewDocument", tab.session, **added)
    assert tab.problems == []
    return found


def update_ms(tab: Tab, plane: Plane, ledger: LedgerFile, number: int) -> float:
    """From the append to the frame that shows the entry."""
    path = f"new/{number}.md"
    tab.run(f"(globalThis.seen = {WATCH % json.dumps(path)}, true)")
    began = time.time()
    ledger.append([next(as_call(plane.calls, number, path))])
    return tab.run("seen") - began * 1e3


def append_ms(plane: Plane, ledger: LedgerFile, first: int) -> list[float]:
    taken: list[float] = []
    for number in range(first, first + APPENDS):
        time.sleep(PACE_S)
        entry = next(as_call(plane.calls, number))
        began = time.perf_counter()
        ledger.append([entry])
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def beside_windows(page: Page, plane: Plane) -> tuple[list[float], list[float]]:
    """Appends while no window is open, and while ten follow them, in turns."""
    alone: list[float] = []
    beside: list[float] = []
    with closing(plane.open(LedgerName.HO1M)) as ledger:
        for turn in range(TURNS):
            alone += append_ms(plane, ledger, 10**7 + 2 * turn * APPENDS)
            with ExitStack() as held:
                for number in range(WINDOWS):
                    path = f"/{FOLLOWING[number % 2]}"
                    held.enter_context(page.another(path)).sees("Live", "#live")
                beside += append_ms(plane, ledger, 10**7 + (2 * turn + 1) * APPENDS)
    return alone, beside


def measure(plane: Plane, rounds: int) -> dict[str, float]:
    """The medians in milliseconds by what was done."""
    found: dict[str, float] = {}
    with opened(plane.place) as page:
        for name in SHOWN:
            taken = [paint_ms(page, name) for _ in range(rounds + 1)][1:]
            found[f"page {name}"] = statistics.median(taken)
        with closing(plane.open(LedgerName.HO1M)) as ledger:
            for at, name in enumerate(FOLLOWING):
                tab = page.open(f"/{name}")
                tab.sees("Live", "#live")
                tab.until(f"document.querySelector({json.dumps(SHOWN[name])})")
                numbers = range(10**6 * (at + 1), 10**6 * (at + 1) + 4 * rounds)
                each = [update_ms(tab, plane, ledger, number) for number in numbers]
                found[f"update {name}"] = statistics.median(each)
        page.tab.go("about:blank")
        alone, beside = beside_windows(page, plane)
    for name, at in (("p50", 49), ("p99", 98)):
        for side, taken in (("alone", alone), ("beside windows", beside)):
            found[f"append {name} {side}"] = statistics.quantiles(taken, n=100)[at]
    return found


def summarize(found: dict[str, float], smallest: dict[str, float]) -> Iterator[str]:
    """The lines that bench/budgets.toml looks for."""
    for kind in ("page", "update"):
        names = [name for name in found if name.startswith(kind)]
        yield f"slowest {kind}, ms: {max(found[name] for name in names):.0f}"
        times = max(found[name] / smallest[name] for name in names)
        yield f"slowest {kind}, largest record to smallest: {times:.2f}"
    processors = os.cpu_count() or 1
    if processors <= WINDOWS:
        yield f"not here: {processors} processors for {WINDOWS} windows and who appends"
    label = "append" if processors > WINDOWS else "append, all on the same processors"
    for name in ("p50", "p99"):
        times = found[f"append {name} beside windows"] / found[f"append {name} alone"]
        yield f"{label}, {name} beside {WINDOWS} windows to alone: {times:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=None, help="a directory on the disk to measure")
    options = parser.parse_args()
    if shutil.which("chromium") is None:
        print("not here: chromium")
        return
    results: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-console-", dir=options.folder) as folder:
        for entries in options.entries:
            began = time.perf_counter()
            plane = make_plane(Path(folder, str(entries)), entries)
            print(f"{entries:,} entries, written in {time.perf_counter() - began:.0f} s")
            results[entries] = measure(plane, options.rounds)
            for name, took in results[entries].items():
                print(f"  {name:34} {took:9.2f} ms", flush=True)
    print(*summarize(results[max(results)], results[min(results)]), sep="\n")


if __name__ == "__main__":
    main()
