"""Tables of programs: which start another one, and what a wildcard in an allow rule covers.

A wrapper's row (`env`, `nice`, `xargs`) says how to find the command that it starts. If an option
is not in its row, or its value is not known, every later word may be the program, so that a deny
still matches.

A rule `git diff *` means "show differences", not `git diff --output=~/.bashrc`: options that
write or run something have to be named. One row per reason; a program without a row is judged by
the generic ones. Sources: the programs' manual pages, and published bypasses of allow-lists.
"""

import re
from functools import cache
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern

ASSIGNMENT: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
HARMLESS: Final = lazy_pattern(
    r"(?:(?:CI|NODE_ENV|RAILS_ENV|RACK_ENV|APP_ENV|FLASK_ENV|DEBUG|VERBOSE|LOG_LEVEL|RUST_LOG|TZ"
    r"|RUST_BACKTRACE|LANG|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE)=(?P<quote>['\"]?)[\w.,:*@+-]*(?P=quote)"
    r"|(?:GIT_PAGER|PAGER|MANPAGER)=cat)",
    re.ASCII,
)
"""Assignments that do not change which program runs, with values that name no file."""
INTEGER: Final = lazy_pattern(
    r"(?:-\w*)?(?:S?RANDOM|SECONDS|OPTIND|HISTCMD)(?!\w|=\d*+\Z)", re.ASCII
)
"""Variables whose assigned value bash evaluates as arithmetic."""
TAME: Final = (
    r"(?:GIT_(?:AUTHOR|COMMITTER)_\w+=.*|GIT_TERMINAL_PROMPT=[01]"
    r"|(?:GIT_PAGER|PAGER|MANPAGER|GIT_EDITOR|GIT_SEQUENCE_EDITOR|EDITOR|VISUAL)=(?:cat|true|:)?"
    r"|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|UTF8)=\w*"
    r"|NODE_OPTIONS=--max-old-space-size=\d+|GOFLAGS=-mod=\w+|MAKEFLAGS=-j\d*"
    r"|CARGO_(?:TERM_COLOR|INCREMENTAL|NET_OFFLINE)=\w+|CARGO_TARGET_DIR=[\w./-]+)"
)
"""Assignments that do not change which programs run: no rule could name their value."""
SHELLS: Final = frozenset(
    "sh bash dash zsh ksh ash rbash mksh fish csh tcsh yash posh oksh elvish nu xonsh".split()
)
RUNNING_INPUT: Final = frozenset("ssh su runuser at batch sg newgrp parallel".split())
"""Programs other than shells that run a here-document as commands, or take words from it."""
INTERPRETERS: Final = lazy_pattern(
    r"(?:python[\d.]*|pypy[\d.]*|perl[\d.]*|ruby[\d.]*|node|nodejs|deno|bun|php[\d.]*|lua[\d.]*"
    r"|tclsh[\d.]*|Rscript|osascript|pwsh|ed|ex|bc|dc|gdb|sqlite3|psql|mysql)"
)
"""Programs that run their input when they are given no script."""
LOADERS: Final = lazy_pattern(r"ld-linux.*\.so.*|ld-musl.*\.so.*|ld\.so.*|ld64\.so.*", re.DOTALL)


@cache
def listed(text: str) -> tuple[str, ...]:
    """Return the names of a row: between blanks, or between bars where they have blanks."""
    return tuple(text.split("|" if text.startswith("git ") else " ")) if text else ()


class Wrapper(Struct, frozen=True):
    """The options that `programs` take before the command that they start.

    `flags` and `valued` are letters, `words` long options without a value, `settings` with one;
    `operands` words precede the command (-1: any number); `assigns`: so do `NAME=value` words;
    `joins`: a shell gets all words joined; with `prints` nothing is started.
    """

    programs: str
    flags: str = ""
    valued: str = ""
    words: str = ""
    settings: str = ""
    operands: int = 0
    assigns: bool = False
    joins: bool = False
    prints: str = ""


_ROWS: Final = (
    Wrapper("env", "iv0", "uC", "--ignore-environment --null --debug", "--unset --chdir",
            assigns=True),
    Wrapper("command", "p", prints="vV"),
    Wrapper("builtin nohup busybox toybox unbuffer chronic caffeinate eatmydata fakeroot catchsegv "
            "noglob nocorrect then do else -"),
    Wrapper("repeat setuidgid gosu su-exec runcon chpst", operands=1),
    Wrapper("exec", "cl", "a"),
    Wrapper("nice", valued="n", settings="--adjustment"),
    Wrapper("time", "pvaqV", "of", "--portability --verbose --append --quiet", "--output --format"),
    Wrapper("timeout gtimeout", "vfp", "ks", "--foreground --preserve-status --verbose",
            "--kill-after --signal", operands=1),
    Wrapper("sudo", "AbEHknPSKN", "ughpCrtTUDR", "--non-interactive --preserve-env --set-home "
                                                 "--stdin --background", "--user --group --host "
            "--prompt --chdir --chroot", assigns=True),
    Wrapper("xargs gxargs", "0oprtx", "adEILnPs", "--null --interactive --verbose "
                                                  "--no-run-if-empty --exit --open-tty",
            "--arg-file --delimiter --max-lines --max-args --max-procs --max-chars --replace "
            "--eof"),
    Wrapper("watch", "tbegcpqwx", "n", "--no-title --beep --errexit --exec", "--interval",
            joins=True),
    Wrapper("parallel hyperfine concurrently watchexec entr nodemon", joins=True),
    Wrapper("npx bunx pipx uvx", "yq", "p", "--yes --no", "--package"),
    Wrapper("unshare nsenter setpriv prlimit numactl systemd-run firejail bwrap xvfb-run dbus-run- "
            "session script su runuser proot start-stop-daemon coproc gdb valgrind perf rlwrap "
            "faketime softlimit ssh-agent torsocks proxychains proxychains4 setarch linux32 "
            "linux64 i386 x86_64 nix-shell sg pkexec cgexec aa-exec cpulimit chrt taskset flock "
            "chroot doas strace ltrace tini dumb-init nq emulate dtach stdbuf setsid ionice",
            operands=-1),
)  # fmt: skip
WRAPPERS: Final = {name: row for row in _ROWS for name in listed(row.programs)}

NESTING: Final = {
    program: frozenset(subcommands.split())
    for programs, subcommands in (
        ("uv poetry pipenv hatch pdm rye rustup conda mamba micromamba pixi devbox", "run"),
        ("bundle mise direnv npm pnpm yarn corepack asdf", "exec"),
        ("nix", "run develop shell"),
        ("cargo", "watch"),
        ("tmux", ("new new-session neww new-window splitw split-window respawnp respawn-pane "
                 "respawnw respawn-window run run-shell if if-shell pipep pipe-pane popup "
                 "display-popup send send-keys")),
    )
    for program in programs.split()
}  # fmt: skip
"""Programs with subcommands that start another program: `uv run pytest`."""

GIT_BEFORE: Final = frozenset(
    {"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects",
     "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--version", "-v", "--help"}
)  # fmt: skip
"""Options of git before its subcommand that are harmless, and take no value."""
GIT_BEFORE_VALUED: Final = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix",
     "--config-env", "--attr-source"}
)  # fmt: skip


CHANGERS: Final = frozenset(
    ". alias bind cd compgen complete compopt coproc declare dirs enable eval exec export fc "
    "getopts hash history let local logout mapfile popd pushd read readarray readonly select set "
    "shopt source suspend trap typeset ulimit umask unalias unset".split()
)
"""Builtins after which a later word of the line may mean something else."""


def change_by(name: str) -> str:
    return f"{name} can change what a later word of the line means"


WRITES: Final = "writes a file"
RUNS: Final = "runs a program"
STARTS: Final = "runs the command that it is given"
"""Deny and ask read that command, as a line and as words."""
READS: Final = "reads files in any directory"
LOADS: Final = "loads code or configuration from elsewhere"


class Caution(Struct, frozen=True):
    """Words of `programs` that only a literal word of a rule covers, and their effect.

    `long` options without dashes (or abbreviated), `short` letters (anywhere in a cluster),
    `prefixes` of whole words, `holding` parts of operands in any case. A program is a name, or a
    name with its subcommand.
    """

    programs: str
    does: str
    long: str = ""
    short: str = ""
    prefixes: str = ""
    holding: str = ""


class Trusted(Struct, frozen=True):
    """The only options of `programs` that a wildcard covers; the rest is dangerous.

    `short` letters without and `valued` letters with a value, `long` options. At most
    `operands_max` operands (the next would be written), and none that contains a text
    of `holding`; `script` is the language of the first operand. With `stops`, words
    after the first operand are not options of the program.
    """

    programs: str
    why: str
    short: str = ""
    valued: str = ""
    long: str = ""
    operands_max: int = 1_000_000
    holding: str = ""
    script: str = ""
    stops: bool = False


CAUTIONS: Final = (
    Caution("git", WRITES, "output output-directory", prefixes="--output-directory"),
    Caution("git", RUNS, "ext-diff textconv edit-description filters tool gpg-sign interactive"),
    Caution("git", STARTS, "upload-pack receive-pack exec open-files-in-pager extcmd exec-batch",
            "O"),
    Caution("git", LOADS, "config config-env template exec-path git-dir work-tree no-index "
                          "reference separate-git-dir"),
    Caution("git diff", READS, prefixes="/ ~ ../"),
    Caution("git clone", RUNS, "recurse-submodules", "c"),
    Caution("git clone", STARTS, short="u"),
    Caution("git fetch|git pull", RUNS, "recurse-submodules"),
    Caution("git rebase|git difftool", RUNS, short="i"),
    Caution("git rebase|git difftool", STARTS, short="x"),
    Caution("git bisect|git submodule", STARTS, prefixes="run foreach"),
    Caution("git filter-branch", STARTS, prefixes="--setup --env-filter --tree-filter "
                                                  "--index-filter --parent-filter --msg-filter "
                                                  "--commit-filter --tag-name-filter"),
    Caution("git archive|git format-patch|git bundle", WRITES, "remote", "o"),
    Caution("git apply|git am", WRITES, "unsafe-paths directory"),
    Caution("find gfind bfs", RUNS, prefixes="-exec -ok"),
    Caution("find gfind bfs", WRITES, prefixes="-delete -fprint -fls"),
    Caution("fd fdfind", STARTS, "exec exec-batch", "xX"),
    Caution("sort gsort", WRITES, "output temporary-directory", "oT"),
    Caution("sort gsort", STARTS, "compress-program"),
    Caution("shuf", WRITES, "output", "o"),
    Caution("rg", RUNS, "pre hostname-bin search-zip", "z"),
    Caution("ag ack bat batcat delta", STARTS, "pager"),
    Caution("ag ack bat batcat delta", LOADS, "config-file ackrc"),
    Caution("make gmake", LOADS, "file makefile directory include-dir eval", "fCIE", holding="="),
    Caution("cmake ninja just meson", LOADS, "justfile shell working-directory", "PECDfSBtd"),
    Caution("pytest py.test", LOADS, "rootdir override-ini confcutdir pdbcls config-file "
                                     "cov-config tx px import-mode pyargs pythonwarnings", "pcoW",
            "@"),
    Caution("pytest py.test", WRITES, "basetemp junitxml junit-xml log-file pastebin debug "
                                      "report-log resultlog cov-report rsyncdir html profile-svg "
                                      "cache-clear"),
    Caution("tree", WRITES, short="oR"),
    Caution("less more most", RUNS, "log-file LOG-FILE cmd lesskey-file lesskey-src "
                                    "lesskey-content", "oOk", "+"),
    Caution("man", RUNS, "config-file gxditview preprocessor troff-device", "CXpT"),
    Caution("man", STARTS, "pager html", "PH"),
    Caution("info", WRITES, "output restore dribble init-file", "o"),
    Caution("sdiff diff3", RUNS, "diff-program"),
    Caution("sdiff", WRITES, "output", "o"),
    Caution("ptx", WRITES, "traditional", "G"),
    Caution("nm objdump readelf size strings", LOADS, "plugin", prefixes="@"),
    Caution("getent", LOADS, "service", "s"),
    Caution("colordiff", LOADS, "config"),
    Caution("tput", LOADS, short="T"),
    Caution("jobs", STARTS, short="x"),
    Caution("mapfile readarray compgen complete", STARTS, short="C"),
    Caution("su runuser script flock sg emulate", STARTS, "command session-command", "c"),
    Caution("nix-shell", STARTS, "run command"),
    Caution("npx bunx", STARTS, "call", "c"),
    Caution("env", STARTS, "split-string", "S"),
    Caution("tar gtar bsdtar", STARTS, "to-command checkpoint-action use-compress-program "
                                       "info-script new-volume-script rsh-command rmt-command",
            "IF"),
    Caution("lsof", WRITES, short="D"),
    Caution("date", WRITES, "set", "s"),
    Caution("hostname", WRITES, "file boot", "Fb"),
    Caution("file", WRITES, "compile magic-file uncompress uncompress-noreport", "CmzZ"),
    Caution("yq", WRITES, "inplace in-place split-exp", "is"),
    Caution("curl", WRITES, "output remote-name remote-name-all output-dir dump-header cookie-jar "
                            "trace trace-ascii stderr libcurl etag-save hsts alt-svc write-out "
                            "upload-file", "oODcTw"),
    Caution("curl", LOADS, "config engine netrc-file", "K"),
    Caution("wget", WRITES, "output-document output-file append-output directory-prefix warc-file "
                            "save-cookies post-file body-file", "OoaP"),
    Caution("wget", RUNS, "execute use-askpass config input-file", "ei"),
    Caution("ssh scp sftp", RUNS, short="oFSDEIwLRJ"),
    Caution("rsync", RUNS, "daemon remote-option", "M"),
    Caution("rsync", STARTS, "rsh rsync-path", "e"),
    Caution("rsync", WRITES, "log-file partial-dir backup-dir temp-dir write-batch "
                             "only-write-batch", "T"),
    Caution("zip", RUNS, "unzip-command test", "T"),
    Caution("zip", WRITES, "output-file temp-path move logfile-path", "Obm"),
    Caution("split", STARTS, "filter"),
    Caution("install", RUNS, "strip-program"),
    Caution("patch", RUNS, "ed", "e"),
    Caution("patch", WRITES, "output directory reject-file input", "odri"),
    Caution("openssl", WRITES, prefixes="-out -keyout -writerand -CAcreate -sess_"),
    Caution("openssl", LOADS, prefixes="-engine -provider -config -dynamic"),
    Caution("npm pnpm yarn bun", RUNS, "script-shell node-options shell editor viewer browser git "
                                       "package use-yarnrc"),
    Caution("npm pnpm yarn bun", STARTS, "call", "c"),
    Caution("npm pnpm yarn bun", LOADS, "prefix userconfig globalconfig dir cwd global cache",
            "Cg"),
    Caution("pip pip3", LOADS, "python requirement editable config-settings global-option "
                               "constraint proxy isolated", "rec"),
    Caution("pip pip3", WRITES, "target prefix root log report src cache-dir dest", "td"),
    Caution("cargo", LOADS, "config manifest-path lockfile-path", "ZC", "+"),
    Caution("cargo", WRITES, "target-dir artifact-dir out-dir fix"),
    Caution("go", RUNS, prefixes="-overlay -modfile -ldflags -gcflags -asmflags -gccgoflags -C"),
    Caution("go", STARTS, prefixes="-exec -toolexec -vettool"),
    Caution("go", WRITES, prefixes="-o -cpuprofile -memprofile -coverprofile -blockprofile "
                                   "-mutexprofile -trace -pkgdir -w -u -c -fix -json="),
    Caution("gcc cc g++ c++ clang clang++ ld", RUNS, prefixes="-wrapper -fplugin -specs --specs -B "
                     "@ -Wl -Xlinker -Xclang -load -T --config -fuse-ld -plugin"),
    Caution("gcc cc g++ c++ clang clang++ ld", WRITES, prefixes="-o --output -save-temps -dump -M "
                     "-fdump -aux"),
    Caution("ruff", WRITES, "fix unsafe-fixes fix-only output-file add-noqa cache-dir", "o"),
    Caution("ruff", LOADS, "config"),
    Caution("mypy", LOADS, "config-file python-executable custom-typeshed-dir install-types",
            prefixes="@"),
    Caution("mypy", WRITES, "cache-dir junit-xml html-report txt-report xml-report "
                            "any-exprs-report linecount-report"),
    Caution("eslint prettier tsc jest vitest mocha", LOADS, "config rulesdir "
            "resolve-plugins-relative-to parser format plugin reporter require import project "
            "build globalSetup ui file", "cfrpb"),
    Caution("eslint prettier tsc jest vitest mocha", WRITES, "fix fix-dry-run write output-file "
            "outDir outFile cache-location coverageDirectory outputFile init updateSnapshot",
            "owu"),
    Caution("sqlite3", RUNS, prefixes=". -cmd -init -A -archive", holding="writefile "
                    "load_extension edit attach vacuum zipfile fsdir readfile \n."),
    Caution("psql mysql", RUNS, "command file output execute pager tee", "cfoLve", holding="\\"),
    Caution("test [", RUNS, prefixes="-v -R"),
    Caution("printf wait", RUNS, prefixes="-v -p"),
)  # fmt: skip

TRUSTED: Final = (
    Trusted("sed gsed", "its script can write and run", "nErsuz", "e", "quiet silent "
            "regexp-extended posix separate unbuffered null-data", script="sed"),
    Trusted("awk gawk mawk nawk original-awk", "its script can write and run", valued="Fv",
            script="awk"),
    Trusted("tar gtar bsdtar", "its options write and run, and a colon means a host", "tvzjJ", "f",
            "list verbose gzip bzip2 xz file", holding=":"),
    Trusted("uniq guniq", "its second operand is written", "cdDiuz", "fsw",
            "count repeated all-repeated unique ignore-case zero-terminated group skip-fields "
            "skip-chars check-chars", operands_max=1),
    Trusted("zstdcat", "its options write files", "cdfkqv", "M", "stdout decompress uncompress "
            "force keep quiet verbose memory no-progress"),
    Trusted("ldd", "it may run what it is given", "druv", long="version help data-relocs "
                 "function-relocs unused verbose", operands_max=0),
    Trusted("xxd", "its second operand is written", "abeEipuU", "cglos", operands_max=1),
    Trusted("python python2 python3 pypy pypy3", "its options run text and modules",
            "BEIOPqsSuvVdb", long="version help", stops=True),
    Trusted("perl ruby node nodejs php lua deno Rscript tclsh", "its options run text and load "
            "modules", "v", long="version help", stops=True),
    Trusted("sh bash dash zsh ksh ash rbash mksh fish", "its options run text and files",
            long="version help", stops=True),
    Trusted("vi vim nvim view ex ed emacs nano dc bc gdb lldb m4 osascript screen tmux expect "
            "socat nc ncat telnet", "it runs whatever its options, files or keys say",
            long="version help", operands_max=0),
)  # fmt: skip

_FILES: Final = "a filter of a pipe reads no file"
FILTERS: Final = (
    Trusted("head tail", _FILES, "qvz0123456789", "nc", "lines bytes quiet", operands_max=0),
    Trusted("wc", _FILES, "clmwL", operands_max=0),
    Trusted("sort", _FILES, "bdfgiMhnRrVuzs", "kt", operands_max=0),
    Trusted("uniq", _FILES, "cdDiuz", "fsw", operands_max=0),
    Trusted("cut", _FILES, "sz", "bcdf", "complement delimiter fields", operands_max=0),
    Trusted("tr", _FILES, "cCdst", operands_max=2),
    Trusted("cat", _FILES, "AbEensTtuv", operands_max=0),
    Trusted("grep egrep fgrep", _FILES, "EFGPivwxcoqshHnbaULlyz", "mABC", "color line-buffered "
            "ignore-case invert-match count", operands_max=1),
)  # fmt: skip
"""Commands that at the end of a pipe only read their input."""

GENERIC: Final = (
    Caution("", WRITES, "output output-file output-dir outfile outdir out-dir out in-place inplace "
                        "write fix delete log-file report save target-dir dest destination",
            prefixes="-o -i -w"),
    Caution("", RUNS, "exec execute command eval expression shell pager editor rsh pre post hook "
                      "filter script run to-command compress-program use-compress-program "
                      "init-command checkpoint-action", prefixes="-e -c -x"),
    Caution("", LOADS, "config config-file rcfile init-file plugin load require import module "
                       "preload include", prefixes="@"),
)  # fmt: skip

READERS: Final = frozenset(
    "ls dir vdir cat tac head tail wc grep egrep fgrep zgrep echo pwd which whereis stat du df cut "
    "tr nl od hexdump basename dirname realpath readlink true false seq diff cmp comm join "
    "paste fold fmt expand unexpand column rev sleep id whoami groups users who w uname arch nproc "
    "uptime free ps pgrep lscpu lsblk printenv tty locale md5sum sha1sum sha224sum sha256sum "
    "sha384sum sha512sum b2sum cksum sum base32 base64 numfmt factor expr type : exit return break "
    "continue caller help times jq zcat bzcat xzcat cal "
    "clear yes pathchk tsort hostid logname".split()
)
"""Programs without options that write or run something: a wildcard may cover any word."""

WRITERS: Final = frozenset(
    "tee touch mkdir rmdir rm mv cp ln link unlink truncate chmod chown chgrp dd csplit mktemp "
    "mkfifo gzip gunzip bzip2 bunzip2 xz unxz zstd unzip shred sync kill pkill killall".split()
)
"""Programs whose purpose is to change something: a rule that names one intends that."""

SUBCOMMANDS: Final = {
    "git": frozenset(
        "status diff log show blame shortlog describe rev-parse rev-list ls-files ls-tree "
        "cat-file grep branch tag stash add commit checkout switch restore merge reset mv rm init "
        "fetch pull push remote cherry-pick revert merge-base name-rev for-each-ref show-ref "
        "reflog diff-tree diff-index diff-files whatchanged count-objects check-ignore check-attr "
        "range-diff version".split()
    ),
    "npm": frozenset(
        "test run start list outdated view explain ping whoami root bin fund search doctor".split()
    ),
    "pnpm": frozenset("test run start list outdated why".split()),
    "yarn": frozenset("test run start list info outdated why".split()),
    "bun": frozenset("test run".split()),
    "pip": frozenset("list show freeze check debug".split()),
    "pip3": frozenset("list show freeze check debug".split()),
    "cargo": frozenset(
        "build check test run bench clippy doc fmt metadata tree search version "
        "locate-project".split()
    ),
    "go": frozenset("build test vet list version env doc fmt mod".split()),
    "ruff": frozenset("check rule linter version".split()),
}
"""Subcommands that a wildcard covers; any other must be named (an extension or a new one may run
anything). No aliases: a deny that names a subcommand would not match them."""

VALUED: Final = {
    "git": "S", "sort": "kSt", "rg": "efgtTABCmMjEr", "make": "jlWoO", "pytest": "kmnr",
    "py.test": "kmnr", "fd": "etEdSj", "curl": "XHdAuemxb", "cargo": "pjF", "npm": "w",
    "ssh": "bcilmpQW", "lsof": "cdgipsu",
}  # fmt: skip
"""Letters whose value may be attached: the rest of a cluster after them is not letters.
A letter that is a flag in some subcommand is not listed."""

# Threat: sed commands other than those listed: e, w, W, r, R, the flags e and w, script files.
# A hostile script must not make the search backtrack: no alternative begins like another. A
# group that looks ahead at END is not possessive: Python before 3.11.5 matches that wrongly.
_BRACKETS: Final = r"\[\^?+\]?+(?:\[[:.=][^\]\n]*+\]|[^\]\n])*+\]"
_REGEX: Final = rf"(?:\\.|{_BRACKETS}|(?!END)[^\\\[\n])*END"
_MADE: Final = r"(?:\\.|(?!END)[^\\\n])*END"
_SED_COMMAND: Final = lazy_pattern(
    rf"[\s{{}};!,+~\d$=dDgGhHnNpPqQlLxzF]|#[^\n]*+|/{_REGEX.replace('END', '/')}I?+"
    r"|[bTt:][ \t]*+[^\s;}]*+|[aic](?:\\.|[^\\\n])*"
    r"|s([^\\\n\w\[])" + (_REGEX + _MADE).replace("END", r"\1") + r"[gpiImM\d]*+"
    r"|y([^\\\n\w\[])" + (_MADE + _MADE).replace("END", r"\2"),
    re.DOTALL,
)
"""A command that only prints: no `w`, `r` or `e`."""
_AWK_DANGER: Final = lazy_pattern(
    r"\bsystem\b|(?<!\|)\|(?!\|)|\|\|\||>(?!=)|getline|@|\bclose\b|\bfflush\b"
)


def is_plain_sed(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None:
            return False
        at = found.end()
    return True


def is_plain_awk(program: str) -> bool:
    return not _AWK_DANGER.search(program)


_NAMED: Final = {name for row in CAUTIONS for name in listed(row.programs)}
CAUTIONS_BY_PROGRAM: Final = {
    name: tuple(row for row in CAUTIONS if name in listed(row.programs)) for name in _NAMED
}
FILTERS_BY_PROGRAM: Final = {name: row for row in FILTERS for name in listed(row.programs)}
TRUSTED_BY_PROGRAM: Final = {name: row for row in TRUSTED for name in listed(row.programs)}
KNOWN: Final = (READERS | WRITERS | SUBCOMMANDS.keys() | _NAMED).union(
    *(listed(row.programs) for row in TRUSTED if not row.stops)
) - {"lldb", "screen", "ssh"}
"""Programs whose use of their words is in a table; any other may run them."""
