"""`paddock ledger content` and `erase`: contents that entries name by a digest."""

from contextlib import closing

from paddock.apps.cli.console import EXIT_NO, Console
from paddock.apps.cli.ledger_query import write_new_file
from paddock.apps.cli.options import Options
from paddock.assembly.history import (
    NamedContent,
    contents_of_call,
    erase_contents,
    find_erasure,
    has_output,
    open_blobs,
    read_output,
    require_digest,
)
from paddock.assembly.project import Project
from paddock.errors import UsageError
from paddock.text.show import quote, show_name
from paddock.values.calls import Json


def run_content(project: Project, options: Options, console: Console) -> int:
    """Print one content, or list those of a call; exit 1 where one is not there any more."""
    if (options.digest is None) == (options.call is None):
        raise UsageError("name one content: a digest, or --call ID to list them")
    if options.out is not None and (options.call is not None or options.json):
        raise UsageError("--out is for the bytes of one digest alone", where="--out")
    if options.call is not None:
        return _list(project, options, console)
    digest = require_digest(options.digest)
    with closing(open_blobs(project)) as blobs:
        content = blobs.read(digest)
    if content is None:
        content = read_output(project, digest)
    if content is None:
        said = _why_gone(project, digest)
        if options.json:
            console.write_json({"status": "error", "digest": digest, "error": said})
        else:
            console.warn(said)
        return EXIT_NO
    text = content.decode("utf-8", "backslashreplace")
    if options.out is not None:
        file = console.directory / options.out
        write_new_file(file, [content])
        console.say(f"wrote {len(content)} bytes to {file}")
    elif options.json:
        found = {"status": "ok", "digest": digest, "bytes": len(content), "content": text}
        console.write_json(dict[str, Json](found))
    else:
        console.say(text)
    return 0


def run_erase(project: Project, options: Options, console: Console) -> int:
    """Erase contents for good, and put it on record; exit 1 where there is none to erase."""
    if bool(options.digest) == (options.call is not None):
        raise UsageError("name what to erase: digests, or --call ID")
    digests = [require_digest(text) for text in options.digest]
    if options.call is not None:
        named = contents_of_call(project, options.call)
        if not named:
            raise UsageError(f"no entry of the call {quote(options.call)} names a content")
        digests = [each.digest for each in named if not each.is_output]
    question = f"erase {len(set(digests))} contents for good? [y/N] "
    if not options.yes and not console.agrees(question):
        return _end(options, console, (), "nothing was erased")
    erased = erase_contents(project, digests, options.reason)
    if not erased:
        return _end(options, console, (), "there is nothing to erase: none of them is kept here")
    said = f"erased {len(erased)} contents with their salts; every proof of the ledgers still holds"
    return _end(options, console, erased, said)


def _end(options: Options, console: Console, erased: tuple[str, ...], said: str) -> int:
    if options.json:
        status = "ok" if erased else "error"
        console.write_json({"status": status, "erased": list(erased), "said": said})
    else:
        console.say(said)
        if erased:
            console.say("files of the workspace and what undo keeps of them are not touched")
    return 0 if erased else EXIT_NO


def _list(project: Project, options: Options, console: Console) -> int:
    named = contents_of_call(project, options.call)
    if not named:
        raise UsageError(f"no entry of the call {quote(options.call)} names a content")
    with closing(open_blobs(project)) as blobs:
        rows = [
            (each, has_output(project, each.digest) if each.is_output else blobs.has(each.digest))
            for each in named
        ]
    if options.json:
        console.write_json([_row_json(each, is_there) for each, is_there in rows])
    else:
        for each, is_there in rows:
            state = "kept" if is_there else "gone"
            console.say(
                f"{each.digest}  {state}  {each.size_bytes:>9} bytes  seq {each.seq}  "
                f"{show_name(each.argument)}"
            )
    return 0


def _row_json(each: NamedContent, is_there: bool) -> dict[str, Json]:
    return {
        "digest": each.digest,
        "call_id": each.call_id,
        "seq": each.seq,
        "argument": each.argument,
        "bytes": each.size_bytes,
        "kept": is_there,
    }


def _why_gone(project: Project, digest: str) -> str:
    seq = find_erasure(project, digest)
    if seq is None:
        return f"the content {digest} is not kept here"
    return f"the content {digest} was erased: governance, seq {seq}"
