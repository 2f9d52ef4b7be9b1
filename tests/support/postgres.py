"""A PostgreSQL server of a test's own: on a socket in a temporary directory, for this test alone."""

import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.users import give_to_plain_user, plain_ids

OWNER = "paddock"


def find_program(name: str) -> str | None:
    """A program of the server. Debian and its kin keep those out of the PATH."""
    newest = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)
    return shutil.which(name) or next(iter(newest), None)


def missing() -> str | None:
    """What a server and its clients lack here; None for nothing."""
    absent = [name for name in ("initdb", "pg_ctl", "postgres") if find_program(name) is None]
    if absent:
        return f"needs a PostgreSQL server: no {', '.join(absent)}"
    try:
        import psycopg  # noqa: F401 - it loads libpq
    except ImportError as failure:
        return f"needs a PostgreSQL server: {failure}"
    return None


@contextmanager
def running_server(port: int = 0) -> Generator[str]:
    """The directory of its socket, while it runs; with a port, it listens on the loopback, too.

    It refuses to be root's, so it never is.
    """
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path has 107 bytes
    give_to_plain_user(folder)
    data = folder / "data"
    try:
        # It is thrown away: nothing of it has to reach a disk.
        _run("initdb", "--auth=trust", "--no-sync", f"--username={OWNER}", "-D", data)
        address = "127.0.0.1" if port else ""
        options = f"-c listen_addresses='{address}' -p {port or 5432} -c unix_socket_directories='{folder}' -c fsync=off"
        _run("pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
        try:
            yield str(folder)
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


def empty_database(socket: str) -> str:
    """The server's one database without a collector's tables, as the DSN of its owner."""
    import psycopg

    dsn = f"host={socket} user={OWNER} dbname=postgres"
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP SCHEMA IF EXISTS paddock_collector CASCADE")
    return dsn


def _run(program: str, *arguments: str | os.PathLike[str]) -> None:
    found = find_program(program)
    assert found is not None, program
    as_whom = {}
    if os.geteuid() == 0:
        uid, gid = plain_ids()
        as_whom = {"user": uid, "group": gid, "extra_groups": []}
    done = subprocess.run(
        [found, *arguments],
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        # The server keeps what it is started with: a pipe would stay open as long as it runs.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        **as_whom,
    )
    assert done.returncode == 0, f"{program} ended with {done.returncode}"
