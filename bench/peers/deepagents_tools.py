"""The file system backend of deepagents: `python deepagents_tools.py ROOT`."""

import sys

from deepagents.backends.filesystem import FilesystemBackend
from serve import Refused, serve


class Tools:
    """Its methods, as its middleware calls them."""

    def __init__(self, root: str) -> None:
        self._backend = FilesystemBackend(root_dir=root, virtual_mode=True)

    def read(self, path: str, first: int = 1, count: int = 2000) -> str:
        done = self._backend.read(f"/{path}", offset=first - 1, limit=count)
        if done.error:
            raise Refused(done.error)
        return str(done.file_data["content"])

    def write(self, path: str, text: str) -> str:
        return self._said(self._backend.write(f"/{path}", text))

    def edit(self, path: str, old: str, new: str) -> str:
        return self._said(self._backend.edit(f"/{path}", old, new))

    def grep(self, pattern: str) -> str:
        done = self._backend.grep(pattern)
        if done.error and not done.matches:
            raise Refused(done.error)
        return "\n".join(f"{m['path']}:{m['line']}:{m['text']}" for m in done.matches or ())

    def find(self, pattern: str) -> str:
        done = self._backend.glob(pattern)
        if done.error and not done.matches:
            raise Refused(done.error)
        return "\n".join(match["path"] for match in done.matches or ())

    def ls(self, path: str) -> str:
        done = self._backend.ls(f"/{path}")
        if done.error:
            raise Refused(done.error)
        return "\n".join(entry["path"] for entry in done.entries or ())

    def _said(self, done: object) -> str:
        error = getattr(done, "error", None)
        if error:
            raise Refused(str(error))
        return "done"


serve(Tools(sys.argv[1]))
