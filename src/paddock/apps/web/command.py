"""`paddock web`. The server's modules are loaded only when it starts."""

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
    from paddock.apps.web.view import ServedPlane

    project = use_project(options, console)
    remote = options.allow_remote
    if remote is not None and not _NAME.fullmatch(remote):
        raise UsageError(
            f"invalid host name {quote(remote)}",
            where="--allow-remote",
            hint="the name of your TLS reverse proxy, as browsers reach it",
        )
    plane = ServedPlane(find_site(options, console), options.read_only)
    codes = Codes(time.monotonic)
    listening = server.listen_here(options.port)
    number = listening[0].getsockname()[1]
    origin = f"http://{server.name_here()}:{number}" if remote is None else f"https://{remote}"
    hub = Hub(plane)
    app = server.make_app(plane, codes, origin, hub)

    def say() -> str:
        address = f"{origin}/#code={codes.new()}"
        if options.json:
            console.write_json({"url": address, "port": number, "read_only": options.read_only})
        else:
            console.say(address)
        console.flush()
        return address

    def say_again() -> None:
        # From the descriptor: a thread that waits on a text stream holds its lock at exit.
        while os.read(console.stdin.fileno(), _TYPED_BYTES):
            say()

    address = say()
    if console.is_interactive:
        console.warn("Enter: print an address for another window; Ctrl-C: stop")
        threading.Thread(target=say_again, daemon=True).start()
    opener = project.environment.paddock_home / "web" / f"open-{number}.html"
    try:
        # Without a display it would start a browser in this terminal, and wait for it.
        has_screen = any(map(console.variables.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if has_screen and not options.no_browser and remote is None:
            _open(address, opener)
        serve(app, listening, hub.stop)
    finally:
        with suppress(FileNotFoundError):
            opener.unlink()
    return 0


def _open(address: str, file: Path) -> None:
    """Open the page through a private file that redirects to it.

    Threat: other users can read a program's arguments, so the code must not be among those of
    the browser: another user's process could use it first.
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
        console.warn(f"saved in {file}; an earlier token of this kind is no longer valid")
    return Reply({"status": "ok", "token": token, "file": str(file)}, token)


_READ_ONLY = flag("--read-only", "show everything, but change nothing")

COMMAND = Command(
    "Open the console in the browser: watch agents, answer their requests, undo their\n"
    "calls and edit the policy. Only this machine can reach it, until Ctrl-C; the printed\n"
    "address opens one window, once, within a minute.",
    "  paddock web\n"
    "  paddock web --no-browser --port 8700\n"
    "  paddock web --read-only\n"
    "  paddock web token --read-only",
    opt("--port", "N", "default: 0, any free port", type=int, default=0),
    flag("--no-browser", "only print the address"),
    _READ_ONLY,
    opt(
        "--allow-remote",
        "NAME",
        "host name of your reverse proxy on this machine, which terminates TLS and authenticates\n"
        "users; requests must name it",
    ),
    Part("token", "create a token for programs that use the API", _token, _READ_ONLY),
    alone=_serve,
    metavar="ACTION",
)
