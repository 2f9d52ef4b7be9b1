"""Use Paddock as the backend of deepagents: its file tools, its search and its shell.

    with PaddockBackend("path/to/project") as backend:
        agent = create_deep_agent(model=model, backend=backend)

Paths are absolute paths of the host in the workspace; the commands' private `/tmp` can be read and
written, too. Refusals are results, with the error names of deepagents.
"""

import base64
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from deepagents.backends import protocol as deep
from deepagents.backends.utils import (
    InvalidGlobPatternError,
    compile_grep_include_glob,
    slice_read_response,
)

from paddock import errors, limits
from paddock.errors import ToolError
from paddock.integrations import REFUSED, Opened, text_of
from paddock.runtime import program
from paddock.runtime.program import await_thread
from paddock.text.show import quote
from paddock.tools.replace import EDIT_FILE_DEV
from paddock.values.calls import NEVER, Cancel

_BINARY_BYTES_MAX: Final = 512_000  # deepagents' limit for showing a binary file to a model
_OUTPUT_BYTES_MAX: Final = 10_000_000
_TIMED_OUT: Final = 124
# deepagents' names for refusals: the first match applies.
_WORDS: Final[tuple[tuple[type[ToolError], str], ...]] = (
    (errors.PathNotFoundError, deep.FILE_NOT_FOUND),
    (errors.PathNotAFileError, deep.IS_DIRECTORY),
    (errors.PathTraversalError, deep.INVALID_PATH),
    (errors.InvalidPathError, deep.INVALID_PATH),
    (errors.PermissionDeniedError, deep.PERMISSION_DENIED),
    (errors.ApprovalError, deep.PERMISSION_DENIED),
    (errors.PathError, deep.PERMISSION_DENIED),
    (errors.AmbiguousMatchError, "multiple_occurrences"),
    (errors.FileChangedError, "already exists"),
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[Concatenate["PaddockBackend", _P], _R]


def _word(error: ToolError) -> str:
    return next((word for kind, word in _WORDS if isinstance(error, kind)), error.code)


def _said(error: ToolError) -> str:
    hint = f"\nhint: {error.hint}" if error.hint else ""
    return f"{_word(error)}: {error.message}{hint}"


def _answering(refused: Callable[..., _R]) -> Callable[[_Method[_P, _R]], _Method[_P, _R]]:
    """Return a refusal as a result, which `refused` creates from its text."""

    def decorated(method: _Method[_P, _R]) -> _Method[_P, _R]:
        @wraps(method)
        def answering(self: "PaddockBackend", *args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return method(self, *args, **kwargs)
            except ToolError as error:
                return refused(error=_said(error))
            except (InvalidGlobPatternError, UnicodeEncodeError) as error:
                return refused(error=str(error))

        return answering

    return decorated


def _not_run(error: str) -> deep.ExecuteResponse:
    return deep.ExecuteResponse(error, REFUSED)


class PaddockBackend(Opened, deep.SandboxBackendProtocol):
    """The backend for `create_deep_agent`, for a project's directory or an open Runtime.

    A context manager; `close` releases the workspace. The protocol documents each method.
    """

    @property
    def id(self) -> str:
        return f"paddock:{self.runtime.root}"

    def _absolute(self, relative: str) -> str:
        return f"{self.runtime.root}/{relative}"

    @_answering(deep.LsResult)
    def ls(self, path: str) -> deep.LsResult:
        root = self.runtime.root
        if path.startswith("/") and root.startswith(f"{path.rstrip('/')}/"):
            # Models list / first: show them the workspace.
            return deep.LsResult(entries=[{"path": root, "is_dir": True}])
        listed = self.runtime.list_entries(_named(path))
        found = [_info(self._absolute(entry.path), entry) for entry in listed.entries]
        cut = f"only the first {len(found)} entries are listed" if listed.is_cut else None
        return deep.LsResult(error=cut, entries=found)

    @_answering(deep.ReadResult)
    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> deep.ReadResult:
        content = self.runtime.read_bytes(_named(file_path))
        return _shown(file_path, content, offset, limit)

    @_answering(deep.WriteResult)
    def write(self, file_path: str, content: str) -> deep.WriteResult:
        self.runtime.write_bytes(_named(file_path), content.encode(), is_new=True)
        return deep.WriteResult(path=file_path)

    @_answering(deep.EditResult)
    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> deep.EditResult:
        given = {"old_string": old_string, "new_string": new_string, "replace_all": replace_all}
        given["path"] = _named(file_path)
        done = program.call_tool(self.runtime, EDIT_FILE_DEV, given)
        return deep.EditResult(path=file_path, occurrences=int(done.details["replacements"]))

    @_answering(deep.DeleteResult)
    def delete(self, file_path: str) -> deep.DeleteResult:
        # Threat: a symlink or the root. Entries are deleted only if the path itself may be.
        try:
            self.runtime.delete_file(_named(file_path))
        except errors.DirectoryNotEmptyError:
            below = self.runtime.list_entries(file_path, depth=limits.path_depth_max)
            # The deepest first: only an empty directory can be deleted.
            for entry in reversed(below.entries):
                self.runtime.delete_file(entry.path)
            self.runtime.delete_file(file_path)
        return deep.DeleteResult(path=file_path)

    @_answering(deep.GrepResult)
    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> deep.GrepResult:
        most = limits.grep_matches_max
        given: dict[str, Any] = {"pattern": pattern, "literal": True, "path": _named(path)}
        given |= {"limit": min(max_count or most, most)} | ({"glob": glob} if glob else {})
        found = self.runtime.call("grep", given).unwrap().details
        matches: list[deep.GrepMatch] = [
            {"path": self._absolute(row["path"]), "line": row["line"], "text": row["text"]}
            for row in found["matches"]
        ]
        return deep.GrepResult(matches=matches, truncated=bool(found["truncated"]))

    @_answering(deep.GlobResult)
    def glob(self, pattern: str, path: str | None = None) -> deep.GlobResult:
        """Return paths relative to `path` if given, as deepagents' own tests require."""
        is_wanted = compile_grep_include_glob(pattern)
        listed = self.runtime.list_entries(_named(path), depth=limits.path_depth_max)
        above = "" if listed.path == "." else f"{listed.path}/"
        named = [(entry.path.removeprefix(above), entry) for entry in listed.entries]
        before = self._absolute("") if path is None else ""
        return deep.GlobResult(
            matches=[_info(before + name, entry) for name, entry in named if is_wanted(name)],
            truncated=listed.is_cut,
            truncation_reason="budget" if listed.is_cut else None,
        )

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[deep.FileUploadResponse]:
        def uploaded(path: str, content: bytes) -> deep.FileUploadResponse:
            try:
                self.runtime.write_bytes(_named(path), content)
            except ToolError as error:
                return deep.FileUploadResponse(path, _word(error))
            return deep.FileUploadResponse(path)

        return [uploaded(path, content) for path, content in files]

    def download_files(self, paths: list[str]) -> list[deep.FileDownloadResponse]:
        def downloaded(path: str) -> deep.FileDownloadResponse:
            try:
                return deep.FileDownloadResponse(path, self.runtime.read_bytes(_named(path)))
            except ToolError as error:
                return deep.FileDownloadResponse(path, error=_word(error))

        return [downloaded(path) for path in paths]

    def execute(self, command: str, *, timeout: int | None = None) -> deep.ExecuteResponse:
        return self._execute(command, timeout, NEVER)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> deep.ExecuteResponse:
        return await await_thread(lambda cancel: self._execute(command, timeout, cancel))

    @_answering(_not_run)
    def _execute(self, command: str, timeout: int | None, cancel: Cancel) -> deep.ExecuteResponse:
        bounds: dict[str, Any] = {"timeout": timeout or None, "output_limit": _OUTPUT_BYTES_MAX}
        done = program.execute(self.runtime, command, **bounds, cancel=cancel)
        printed = map(text_of, (done.stdout, done.stderr))
        said = "\n".join(each.removesuffix("\n") for each in (*printed, done.notice) if each)
        return deep.ExecuteResponse(
            said, _TIMED_OUT if done.timed_out else done.exit_status, done.is_cut
        )


def _twin(method: _Method[_P, _R]) -> Callable[..., Any]:
    """Return an async method that runs in a thread, and awaits it even if it is cancelled."""

    @wraps(method)
    async def twin(self: PaddockBackend, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await await_thread(lambda _: method(self, *args, **kwargs))

    return twin


for _name in "ls read write edit delete grep glob upload_files download_files".split():
    setattr(PaddockBackend, f"a{_name}", _twin(getattr(PaddockBackend, _name)))


def _named(path: str | None) -> str:
    if path is None:
        return "."
    if not path.startswith("/"):
        raise errors.InvalidPathError(f"{quote(path)} is not absolute", hint="begin with ls /")
    return path


def _info(path: str, entry: program.ListedEntry) -> deep.FileInfo:
    return {"path": path, "is_dir": entry.is_directory, "size": entry.size_bytes}


def _shown(path: str, content: bytes, offset: int, limit: int) -> deep.ReadResult:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        shown = slice_read_response({"content": text, "encoding": "utf-8"}, offset, limit)
        if shown.file_data is not None and shown.next_offset is not None:
            # The newline between two pages belongs to neither.
            shown.file_data["content"] = shown.file_data["content"].removesuffix("\n")
        return shown
    if len(content) > _BINARY_BYTES_MAX:
        why = f"Binary file exceeds maximum preview size of {_BINARY_BYTES_MAX} bytes"
        return deep.ReadResult(error=f"File '{path}': {why}")
    encoded = base64.b64encode(content).decode()
    return deep.ReadResult(file_data={"content": encoded, "encoding": "base64"})
