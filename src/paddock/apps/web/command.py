"""`paddock web`. Nothing of the server is loaded before it starts."""

import os
import threading
import time
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path

from paddock.apps.command import Command, Options, Part, Reply, find_site, flag, opt, use_project
from paddock.apps.console import Console
from paddock.errors import UsageError
from paddock.pattern import lazy_pattern
from paddock.plane.tokens import make_token, token_path
from paddock.storage.atomic import make_directories, replace_file
from paddock.text.show import quote

_TYPED_BYTES = 4096
_NAME = lazy_pattern(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[0-9]{1,5})?")


def _serve(options: Options, console: Console) -> int:
    from paddock.apps.listener import serve
    from paddock.apps.web import server
    from paddock.apps.web.access import Codes
    from paddock.apps.web.stream import Hub
    from paddock.apps.web.view import PlaneDesk

    project = use_project(options, console)
    remote = options.allow_remote
    if remote is not None and not _NAME.fullmatch(remote):
        raise UsageError(
            f"{quote(remote)} is no name of a host",
            where="--allow-remote",
            hint="the name by which your reverse proxy, which ends TLS, is reached",
        )
    desk, codes = PlaneDesk(find_site(options, console), options.read_only), Codes(time.monotonic)
    listening = server.listen_here(options.port)
    number = listening[0].getsockname()[1]
    origin = f"http://{server.name_here()}:{number}" if remote is None else f"https://{remote}"
    hub = Hub(desk)
    app = server.make_app(desk, codes, origin, hub)

    def say() -> str:
        address = f"{origin}/#code={codes.new()}"
        if options.json:
            console.write_json({"url": address, "port": number, "read_only": options.read_only})
        else:
            console.say(address)
        console.flush()
        return address

    def say_again() -> None:
        # Of the descriptor: who waits for a text stream holds its lock when the process ends.
        while os.read(console.stdin.fileno(), _TYPED_BYTES):
            say()

    address = say()
    if console.is_interactive:
        console.warn("Enter: an address for another page; Ctrl-C: the end")
        threading.Thread(target=say_again, daemon=True).start()
    opener = project.environment.paddock_home / "web" / f"open-{number}.html"
    try:
        # Without a screen it would be a browser in this terminal, which we would wait for.
        has_screen = any(map(console.variables.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if has_screen and not options.no_browser and remote is None:
            _open(address, opener)
        serve(app, listening, hub.stop)
    finally:
        with suppress(FileNotFoundError):
            opener.unlink()
    return 0


def _open(address: str, file: Path) -> None:
    """Open the page by a private file that leads there.

    Threat: the arguments of a program are anybody's to read, and the code would stand in those of
    the browser: another user's process would use it first.
    """
    make_directories(file.parent)
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}">\n'
    replace_file(file, page.encode("ascii"))
    with suppress(webbrowser.Error):
        webbrowser.open(file.as_uri())


def _token(options: Options, console: Console) -> Reply:
    from paddock.apps.web.access import ACTING, FOLDER, READING

    project = use_project(options, console)
    at = (project.layout, project.environment, READING if options.read_only else ACTING, FOLDER)
    token, file = make_token(*at), token_path(*at)
    if not options.json:
        console.warn(f"kept at {file}; an earlier token of this kind counts no more")
    return Reply({"status": "ok", "token": token, "file": str(file)}, token)


_READ_ONLY = flag("--read-only", "it shows everything, and acts on nothing")

COMMAND = Command(
    "Open the console in the browser: see what agents do, answer what they ask, take back\n"
    "what they did, and change what they may. It is served to this machine alone, until\n"
    "Ctrl-C; the address that is printed lets one page in, once, within a minute.",
    "  paddock web\n"
    "  paddock web --no-browser --port 8700\n"
    "  paddock web --read-only\n"
    "  paddock web token --read-only",
    opt("--port", "N", "0: any that is free (default)", type=int, default=0),
    flag("--no-browser", "only print the address"),
    _READ_ONLY,
    opt(
        "--allow-remote",
        "NAME",
        "the name of your own reverse proxy on this machine, which ends TLS and lets in whom\n"
        "you want; requests have to name it",
    ),
    Part("token", "a token for programs that use the API", _token, _READ_ONLY),
    alone=_serve,
    metavar="ACTION",
)
