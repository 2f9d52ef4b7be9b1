"""Commands that do harm although an allow rule looks as if it covered them.

Each row is run for real, without any policy, in a prepared directory, and must
do harm there: a file `HARM` appears or `victim` changes. With the row's rules
none of them may be allowed. The twin is what the rule is for: it must be
allowed, and does no harm.

The directory holds a git repository with two commits, `in.txt`, `victim`,
`evil` (a program that makes `HARM`), and what the row's set-up adds.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    kind: str
    rules: tuple[str, ...]
    command: str
    twin: str
    setup: str = ""
    needs: tuple[str, ...] = ()


def rows(kind, rule, twin, *commands, setup="", needs=()):
    """Rows that share a rule (several are split at `+`), a twin and a set-up."""
    rules = tuple(part.strip() for part in rule.split(" + "))
    return [Attack(kind, rules, command, twin, setup, tuple(needs)) for command in commands]


PLANT = "cp evil git; mkdir -p sub; cp evil sub/git"
REPOSITORY = (
    'git init -q sub && git -C sub config core.fsmonitor "$WS/evil" && printf x > sub/new.txt'
)

PLANTED = [
    *rows(
        "a planted file named like an allowed program", "git status + git diff *", "git status",
        "./git status", "sub/git status", '"./git" status', ".//git status", "./sub/../git status",
        "~+/git status", "/proc/self/cwd/git status", "/usr/bin/../../proc/self/cwd/git diff x",
        r".\/git status", "$'./git' status",
        setup=PLANT,
    ),
    *rows(
        "a planted directory named like a system directory", "ls *", "ls -l",
        "./usr/bin/ls", "usr/bin/ls -l",
        setup="mkdir -p usr/bin; cp evil usr/bin/ls",
    ),
    *rows(
        "a planted repository", "git status + git *", "git status",
        "cd sub && git status", "(cd sub && git status)", "pushd sub; git status",
        "builtin cd sub && git status", "command cd sub; git status", "git -C sub status",
        "env -C sub git status", "env --chdir=sub git status", "git -Csub --help; git -C sub status",
        "git --git-dir=sub/.git status", "GIT_DIR=sub/.git git status",
        setup=REPOSITORY,
    ),
]  # fmt: skip

ENVIRONMENT = [
    *rows(
        "an assignment before it", "git status + git diff *", "git status",
        "PATH=.:/usr/bin:/bin git status", "PATH=. git status", "PATH+=x PATH=.:/bin git status",
        "env PATH=.:/usr/bin:/bin git status", "env -i PATH=. git status",
        "x=1 PATH=./sub git status",
        setup=PLANT,
    ),
    *rows(
        "an assignment before it", "git diff *", "git diff HEAD~1",
        "GIT_EXTERNAL_DIFF=./evil git diff HEAD~1",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=diff.external GIT_CONFIG_VALUE_0=./evil git diff HEAD~1",
        "'GIT_EXTERNAL_DIFF'=./evil; export GIT_EXTERNAL_DIFF=./evil; git diff HEAD~1",
    ),
    *rows(
        "an assignment before it", "git commit *", "git commit --allow-empty -m x",
        "GIT_EDITOR=./evil git commit --allow-empty", "EDITOR=./evil git commit --allow-empty",
        setup="git config user.name x; git config user.email x",
    ),
    *rows(
        "an assignment before it", "git fetch *", "git fetch .",
        "GIT_SSH_COMMAND=./evil git fetch ssh://nowhere/x",
    ),
    *rows(
        "an assignment before it", "bash *", "bash ok.sh",
        "BASH_ENV=./evil bash ok.sh",
        setup="echo : > ok.sh",
    ),
    *rows(
        "an assignment before it", "python3 *", "python3 ok.py",
        "PYTHONPATH=site python3 ok.py",
        setup="echo pass > ok.py; mkdir site; echo \"open('HARM', 'w')\" > site/sitecustomize.py",
        needs=["python3"],
    ),
    *rows(
        "an assignment before it", "perl *", "perl ok.pl",
        "PERL5LIB=. PERL5OPT=-Mharm perl ok.pl",
        setup="echo '1;' > ok.pl; echo 'system(\"./evil\"); 1;' > harm.pm", needs=["perl"],
    ),
    *rows(
        "an assignment before it", "make test", "make test",
        "MAKEFILES=evil.mk make test",
        setup="printf 'test:\\n\\t@:\\n' > Makefile; echo '$(shell ./evil)' > evil.mk",
        needs=["make"],
    ),
    *rows(
        "an assignment before it", "tar tf *", "tar tf a.tar",
        "TAR_OPTIONS='--checkpoint=1 --checkpoint-action=exec=./evil' tar tf a.tar",
        setup="tar cf a.tar in.txt", needs=["tar"],
    ),
    *rows(
        "an assignment before it", "ls *", "ls -l",
        "LD_PRELOAD=./evil.so ls",
        setup="printf '#include <unistd.h>\\n#include <fcntl.h>\\n__attribute__((constructor)) "
        'void f(void) { open("HARM", O_CREAT, 0600); }\' > e.c; cc -shared -fPIC -o evil.so e.c',
        needs=["cc"],
    ),
]  # fmt: skip

SHELL_STATE = [
    *rows(
        "the shell was changed before it", "git status + git diff *", "git status",
        "export PATH=.:/bin; git status", "declare -x PATH=.:/bin; git status",
        "typeset PATH=.; git status", "readonly PATH=.; git status", "PATH=.:/bin; git status",
        "PATH=.:/bin\ngit status", "for PATH in .; do git status; done",
        "read -r PATH <<< .; git status", "printf -v PATH . && git status",
        "mapfile -t PATH <<< .; git status", "hash -p ./evil git; git status",
        "builtin hash -p ./evil git; git status", r"\export PATH=.; git status",
        "'export' PATH=.; git status", "command export PATH=.; git status",
        "git() { ./evil; }; git status", "function git { ./evil; }; git status",
        "git () ( ./evil ); git status", "shopt -s expand_aliases\nalias git=./evil\ngit status",
        "trap ./evil EXIT; git status", "trap ./evil DEBUG; git status",
        "source ./evil; git status", ". ./evil && git status", "exec ./evil git status",
        "set -- ./evil; trap ./evil ERR; false; git status",
        "case PATH in P*) PATH=.;; esac; git status", "getopts a: PATH -a.; OPTARG=. ; "
        "PATH=$OPTARG git status", "exec 3< evil; source /dev/fd/3; git status",
        "command_not_found_handle() { ./evil; }; no-such-program; git status",
        setup=PLANT,
    ),
]  # fmt: skip

GIT_OPTIONS = [
    *rows(
        "an option that writes", "git diff *", "git diff HEAD~1",
        "git diff --output=victim HEAD~1", "git diff HEAD~1 --output victim",
        "git diff HEAD~1 --output=./victim --stat",
        "git diff '--output=victim' HEAD~1", 'git diff --out""put=victim HEAD~1',
        "git diff --out\\put=victim HEAD~1", "git diff $'--output=victim' HEAD~1",
        "git diff $'\\x2d-output=victim' HEAD~1", "git diff {--output=victim,HEAD~1}",
        "git diff --{output=victim,stat} HEAD~1", "git diff --out\\\nput=victim HEAD~1",
        "git diff \\\n--output=victim HEAD~1", "git${IFS}diff${IFS}--output=victim${IFS}HEAD~1",
        "git diff --no-index --output=victim evil in.txt",
        "/usr/bin/git diff --output=victim HEAD~1",
    ),
    *rows(
        "an option that writes", "git log * + git show *", "git log -1",
        "git log -1 -p --output=victim", "git show --output=victim",
    ),
    *rows(
        "an option that writes", "git *", "git log -1",
        "git archive -o victim HEAD", "git format-patch -1 --output=victim",
        "git bundle create victim HEAD", "git clone --template=tpl . made",
        setup='mkdir -p tpl/hooks; cp evil tpl/hooks/post-checkout',
    ),
    *rows(
        "an option that executes", "git grep *", "git grep -n precious",
        "git grep -O./evil precious", "git grep -nO./evil precious", "git grep -GO./evil precious",
        "git grep --open-files-in-pager=./evil precious", "git grep --open=./evil precious",
        "git grep --op=./evil precious", "git grep -lO./evil precious",
        setup="git add victim; git -c user.name=x -c user.email=x commit -qm victim",
    ),
    *rows(
        "configuration from the command line", "git *", "git status",
        "git -c core.fsmonitor=./evil status", "git -c diff.external=./evil diff HEAD~1",
        "git -c alias.x='!./evil' x", "git --no-pager -c core.fsmonitor=./evil status",
        "git --exec-path=. harm", "git -c core.sshCommand=./evil fetch ssh://nowhere/x",
        "git --config-env=diff.external=EVIL diff HEAD~1", "git --config-env diff.external=EVIL diff HEAD~1",
        "git config diff.external ./evil; git diff HEAD~1", "git bisect start HEAD HEAD~1; "
        "git bisect run ./evil", "git harm",
        setup="cp evil git-harm; git config alias.harm '!./evil'",
    ),
    *rows(
        "an option that executes", "git fetch * + git ls-remote * + git clone * + git push *",
        "git fetch .",
        "git fetch --upload-pack=./evil .", "git fetch --upl ./evil .",
        "git ls-remote --upload-pack=./evil .", "git ls-remote --exec=./evil .",
        "git clone -u ./evil . made", "git clone --upload-pack ./evil . made",
        "git clone -c core.fsmonitor=../evil . made; git -C made status",
        "git push --receive-pack=./evil . HEAD:x", "git push --exec=./evil . HEAD:x",
    ),
    *rows(
        "an option that executes", "git rebase * + git difftool *", "git rebase HEAD~1",
        "git rebase -x ./evil HEAD~1", "git rebase --exec ./evil HEAD~1",
        "git rebase --exe=./evil HEAD~1", "git difftool -y -x ./evil HEAD~1",
        "git difftool -y --extcmd=./evil HEAD~1",
        setup="git config user.name x; git config user.email x",
    ),
]  # fmt: skip

OPTIONS = [
    *rows(
        "an option that executes", "find *", "find . -name in.txt",
        "find . -maxdepth 0 -exec ./evil ;".replace(";", r"\;"),
        "find . -maxdepth 0 -exec ./evil {} +", "find . -maxdepth 0 -execdir ./evil ';'",
        "find . -maxdepth 0 -ex''ec ./evil ';'", r"find . -maxdepth 0 \-exec ./evil \;",
        "find . -maxdepth 0 -exec sh -c ./evil ';'", "yes | find . -maxdepth 0 -ok ./evil ';'",
    ),
    *rows(
        "an option that writes", "find *", "find . -name in.txt",
        "find victim -delete", "find . -name victim -delete", "find . -fprint victim",
        "find . -fprint0 victim", "find . -fprintf victim x", "find . -fls victim",
        "find victim $'-delete'", "find victim -dele''te",
    ),
    *rows(
        "a script that writes or executes", "sed -n *", "sed -n 1,5p in.txt",
        "sed -n 'w victim' in.txt", "sed -n '1e ./evil' in.txt", "sed -n '1w victim' in.txt",
        "sed -n 's/.*/.\\/evil/e' in.txt", "sed -n 's/a/b/w victim' in.txt", "sed -n '1W victim' in.txt",
        "sed -n 's|.*|./evil|pe' in.txt", "sed -n -e p -e 'w victim' in.txt", "sed -ne 'w victim' in.txt",
        "sed -n 'p;w victim' in.txt", "sed -n 'p\nw victim' in.txt", "sed -n '/a/{p;w victim\n}' in.txt",
        "sed -n --expression='w victim' in.txt", "sed -n --expr='1e ./evil' in.txt",
        "sed -n -f evil.sed in.txt", "sed -n --file=evil.sed in.txt", "sed -nf evil.sed in.txt",
        "sed -n '$!e ./evil' in.txt", "sed -n '/[/]/,$w victim' in.txt", "sed -n 'y/a/b/;1e ./evil' in.txt",
        setup="echo 'w victim' > evil.sed",
    ),
    *rows(
        "an option that writes", "sed -n *", "sed -n '/a/p' in.txt",
        "sed -n -i d victim", "sed -ni d victim", "sed -n --in-place d victim", "sed -n --in d victim",
        "sed -n -i.bak d victim", "sed -n d -i victim", "sed -n d victim --in-pl",
        "sed -n -Ei d victim",
    ),
    *rows(
        "an option that writes", "sort *", "sort -k 1 in.txt",
        "sort -o victim in.txt", "sort -ovictim in.txt", "sort -uo victim in.txt", "sort in.txt -o victim",
        "sort --output=victim in.txt", "sort --outp victim in.txt", "sort --o=victim in.txt",
        "sort -k1 -uro victim in.txt", "sort '-o' victim in.txt",
    ),
    *rows(
        "an option that executes", "sort *", "sort in.txt",
        "sort -S 10k --compress-program=./evil big", "sort -S 10k --compress-prog ./evil big",
        setup="seq 300000 | tac > big; printf '\\ncat\\n' >> evil",
    ),
    *rows(
        "a script that writes or executes", "awk *", "awk '{print $1}' in.txt",
        "awk 'BEGIN{system(\"./evil\")}'", "awk 'BEGIN{print \"x\" > \"victim\"}'",
        "awk 'BEGIN{print \"x\" >> \"victim\"}'", "awk 'BEGIN{\"./evil\" | getline}'",
        "awk 'BEGIN{print | \"./evil\"}'", "awk -f evil.awk in.txt", "awk -fevil.awk in.txt",
        "awk 'BEGIN { system ( \"./evil\" ) }'",
        setup="echo 'BEGIN{system(\"./evil\")}' > evil.awk", needs=["awk"],
    ),
    *rows(
        "an option that executes", "tar tf *", "tar tf a.tar",
        "tar tf a.tar --checkpoint=1 --checkpoint-action=exec=./evil", "tar tf a.tar -I ./evil",
        "tar tf a.tar --use-compress-program=./evil", "tar tf a.tar --use-comp ./evil",
        "tar tf a.tar --checkpoint=1 --checkpoint-act=exec=./evil",
        "tar tf a.tar --index-file=victim",
        setup=""
        "for i in $(seq 300); do cat in.txt > f$i; done; tar cf a.tar f*", needs=["tar"],
    ),
    *rows(
        "an operation that writes", "tar *", "tar tf a.tar",
        "tar xf a.tar", "tar -xf a.tar", "tar --extract -f a.tar", "tar cf victim in.txt",
        "tar -rf victim.tar in.txt; tar xf a.tar",
        setup="cp victim keep; echo other > victim; tar cf a.tar victim; mv keep victim", needs=["tar"],
    ),
    *rows(
        "a variable of the program", "make test + make test *", "make test -j2",
        "make test SHELL=./evil", "make test --eval='$(shell ./evil)'", "make test --ev '$(shell ./evil)'",
        "make test -f evil.mk", "make test -fevil.mk", "make test --file=evil.mk", "make test --makef=evil.mk",
        "make test -C sub", "make test --direc=sub", "make test CC='$(shell ./evil)'",
        "make test -kf evil.mk",
        setup="printf 'test:\\n\\t@true $(CC)\\n' > Makefile; mkdir sub; "
        "printf 'test:\\n\\t@../evil\\n' > sub/Makefile; printf 'test:\\n\\t@./evil\\n' > evil.mk",
        needs=["make"],
    ),
    *rows(
        "an option that writes or loads", "pytest *", "pytest -q test_ok.py",
        "pytest -q --junitxml=victim test_ok.py", "pytest -q --junit-xml victim test_ok.py",
        "pytest -q --log-file=victim test_ok.py", "pytest -q -c evil.ini test_ok.py",
        "pytest -q -o addopts=--junitxml=victim test_ok.py", "pytest -q -p harm -o pythonpath=. test_ok.py",
        setup="echo 'def test_x(): pass' > test_ok.py; printf '[pytest]\\naddopts=--junitxml=victim\\n' > evil.ini; "
        "echo \"open('HARM', 'w')\" > harm.py", needs=["pytest"],
    ),
    *rows(
        "an operand that is written", "uniq *", "uniq -c in.txt",
        "uniq in.txt victim", "uniq -c in.txt victim", "uniq -- in.txt victim", "uniq vi*",
        setup="echo x > vic",
    ),
    *rows("an operand that is written", "xxd *", "xxd in.txt", "xxd in.txt victim", "xxd -r dump victim",
          setup="xxd in.txt > dump", needs=["xxd"]),
    *rows("an option that writes", "shuf *", "shuf in.txt", "shuf -o victim in.txt",
          "shuf --outp=victim in.txt", "shuf -zo victim in.txt"),
    *rows("an option that executes", "split *", "split -l 1 in.txt part",
          "split --filter=./evil in.txt", "split --fil ./evil in.txt"),
    *rows(
        "an option that runs text", "python3 *", "python3 ok.py",
        "python3 -c \"open('HARM', 'w')\"", "python3 -m harm", "python3 -mharm", "python3 -Sc \"open('HARM', 'w')\"",
        "python3 -Bm harm", "echo \"open('HARM', 'w')\" | python3", "python3 - < harm.py",
        setup="echo pass > ok.py; echo \"open('HARM', 'w')\" > harm.py", needs=["python3"],
    ),
    *rows(
        "an option that runs text", "perl *", "perl ok.pl",
        "perl -e 'system(\"./evil\")'", "perl -we 'system(\"./evil\")'", "perl -I. -Mharm ok.pl",
        "perl -pi -e 's/precious/gone/' victim", "perl -I. -d:harm ok.pl",
        setup="echo '1;' > ok.pl; echo 'system(\"./evil\"); 1;' > harm.pm; mkdir Devel; cp harm.pm Devel; "
        "mkdir -p lib/Devel", needs=["perl"],
    ),
    *rows("an option that runs text", "node *", "node ok.js",
          "node -e 'require(\"fs\").writeFileSync(\"HARM\", \"\")'", "node -r ./harm.js ok.js",
          setup="echo > ok.js; echo 'require(\"fs\").writeFileSync(\"HARM\", \"\")' > harm.js", needs=["node"]),
    *rows("an option that runs text", "bash * + cat *", "bash ok.sh",
          "bash -c ./evil", "bash -lc ./evil", "bash --rcfile evil -ic exit", "cat evil | bash",
          "bash < evil", "bash -s < evil", "bash <<< ./evil", "bash -o errexit -c ./evil", "bash -ec './evil'",
          "bash <<'EOF'\n./evil\nEOF", "cat evil | bash /dev/stdin",
          setup="echo : > ok.sh"),
    *rows("an option that executes", "zip *", "zip -q out.zip in.txt",
          "zip -q out.zip in.txt -T -TT ./evil", "zip -q out.zip in.txt --test --unzip-command ./evil",
          needs=["zip"]),
    *rows("an option that writes or loads", "curl *", "curl --version",
          "curl -s -K evil.cfg", "curl -sK evil.cfg", "curl -s --config evil.cfg", "curl --version -s -D victim -K evil.cfg --url x; curl -sK evil.cfg",
          setup='printf "url = file://$WS/in.txt\\noutput = victim\\n" > evil.cfg', needs=["curl"]),
    *rows("an option that executes", "ssh *", "ssh -V", "ssh -o ProxyCommand=./evil nowhere true",
          "ssh -oProxyCommand=./evil nowhere true", "ssh -F cfg nowhere true",
          setup="printf 'Host *\\n ProxyCommand ./evil\\n' > cfg", needs=["ssh"]),
    *rows("an option that writes", "openssl *", "openssl version", "openssl rand -out victim 4", needs=["openssl"]),
    *rows("an option that writes or executes", "cc *", "cc -fsyntax-only t.c", "cc -fsyntax-only t.c -wrapper ./evil",
          "cc -E t.c -o victim", "cc -E t.c -ovictim", "cc @args",
          setup="echo 'int main(void) { return 0; }' > t.c; echo '-E t.c -o victim' > args", needs=["cc"]),
    *rows("an option that executes", "rg *", "rg precious", "rg --pre ./evil precious", "rg --pre=./evil precious",
          needs=["rg"]),
    *rows("an option that executes", "fd *", "fd in", "fd -x ./evil", "fd -X ./evil", needs=["fd"]),
    *rows("a subscript that executes", "[ * + test * + printf *", "[ -f in.txt ]",
          "[ -v 'a[$(./evil)]' ]", "test -v 'a[$(./evil)]'", "printf -v 'a[$(./evil)]' x",
          "[ -n x -a -v 'a[$(./evil)]' ]", "test -R 'a[$(./evil)]' -o -v 'a[$(./evil)]'"),
]  # fmt: skip

WRAPPED = [
    rows("a wrapper", f"{wrapper} * + git status", f"{twin}", *commands)
    for wrapper, twin, commands in (
        ("env", "git status", ("env ./evil", "env -i ./evil", "env -- ./evil", "env -S ./evil", "env -S'./evil x'",
                               "env A=b ./evil", "env nice ./evil", "env -u X ./evil", "env -iS ./evil")),
        ("command", "git status", ("command ./evil", "command -p ./evil", "command -- ./evil")),
        ("nice", "git status", ("nice ./evil", "nice -n 5 ./evil", "nice -5 ./evil")),
        ("nohup", "git status", ("nohup ./evil", "nohup -- ./evil")),
        ("timeout", "git status", ("timeout 5 ./evil", "timeout -k 1 5 ./evil", "timeout --signal=KILL 5 ./evil",
                                   "timeout --sig KILL 5 ./evil")),
        ("time", "git status", ("time ./evil", "time -p ./evil", "time git status && ./evil")),
        ("xargs", "git status", ("xargs ./evil < /dev/null", "echo ./evil | xargs -I{} sh -c {}",
                                 "echo ./evil | xargs env")),
        ("setsid", "git status", ("setsid -w ./evil",)),
        ("stdbuf", "git status", ("stdbuf -o0 ./evil",)),
        ("sh", "git status", ("sh -c ./evil", "sh -ec ./evil", "echo ./evil | sh")),
        ("eval", "git status", ("eval ./evil", "eval 'git status; ./evil'")),
        ("exec", "git status", ("exec ./evil", "exec -a git ./evil")),
    )
]  # fmt: skip
WRAPPERS = [row for group in WRAPPED for row in group]

SUBSTITUTION = [
    *rows(
        "a substitution", "git diff * + echo * + cat *", "git diff HEAD",
        "git diff $(./evil)", "git diff `./evil`", 'git diff "$(./evil)"', 'git diff "`./evil`"',
        "cat <(./evil)", "echo x > >(./evil; cat); wait", "echo ${x:-$(./evil)}", 'echo "${x:-$(./evil)}"',
        "echo $((a[$(./evil)0]))", "echo $[a[$(./evil)0]]", "echo x$(./evil)y", "git diff HEAD -- \"x$(./evil)\"",
        "echo ${x[$(./evil)0]}", "[[ 'a[$(./evil)0]' -eq 0 ]] && echo x", "[[ -v 'a[$(./evil)0]' ]]; echo x",
        "(( a[$(./evil)0] )); echo x", "let 'a[$(./evil)0]=1'; echo x", "cat <<< $(./evil)",
        "x='a[$(./evil)0]'; echo $((x))", "echo ${x:=$(./evil)}", "a[$(./evil)0]=1; echo x",
        "for i in $(./evil); do echo x; done", "case $(./evil) in *) echo x;; esac",
        "x='$(./evil)'; echo ${x@P}", "declare 'a[$(./evil)0]=1'; echo x", "a=(1); unset 'a[$(./evil)0]'; echo x",
        "cat < $(./evil)", "echo x 2> \"$(./evil)\"", "echo $\"$(./evil)\"",
    ),
]  # fmt: skip

LINES = [
    *rows(
        "another command in the line", "git status + git diff * + git log * + true + :", "git status && git diff HEAD",
        "git status\n./evil", "git status; ./evil", "git status;./evil", "git status &&./evil", "git status&./evil",
        "git status | ./evil", "git status|./evil", "git diff HEAD #\n./evil", "git diff HEAD # '\n./evil #'",
        "git diff HEAD # \\\n./evil", "git log -1 '#';./evil", "git log -1 \\#;./evil", "git diff a#;./evil",
        "git status & ./evil", "git status || true; ./evil", "git diff nowhere || ./evil", "! ./evil", "{ ./evil; }",
        "(./evil)", "{ git status; ./evil; }", "if ./evil; then git status; fi", "if true; then ./evil; fi",
        "case x in x) ./evil;; esac", "while ./evil && ! :; do :; done", "until ./evil; do :; done",
        "coproc ./evil; wait", "time ./evil", "true |& ./evil", "git status\n\n\t./evil", "git diff \\\nHEAD\n./evil",
        "git diff ';' ; ./evil", "git diff \"a\nb\"; ./evil", "git diff 'a' \"b'\";./evil;\"'\"",
        "true; f() { ./evil; }; f", "for i in 1; do ./evil; done", "for ((;;)); do ./evil; break; done",
        "select i in x; do ./evil; break; done <<< 1", "true && (git status; (./evil))", "git status \\;;./evil",
        "true\\\n;./evil", "git status;\\\n./evil", "git diff --;./evil", "{ true; } 2>&1; ./evil", "true 2>&1 | ./evil",
        "[[ -f in.txt ]] && ./evil", "true &>/dev/null; ./evil", "true >&2;./evil",
    ),
]  # fmt: skip

DOCUMENTS = [
    *rows(
        "a here-document", "cat * + git status", "cat <<'EOF'\n$(./evil)\nEOF\ngit status",
        "cat <<EOF\n$(./evil)\nEOF", "cat <<EOF\n`./evil`\nEOF", "cat <<'EOF'\nx\nEOF\n./evil",
        "cat <<-EOF\n\tx\n\tEOF\n./evil", "cat <<E'O'F\nx\nEOF\n./evil", "cat <<\\EOF\nx\nEOF\n./evil",
        "cat <<A <<B\nx\nA\ny\nB\n./evil", "cat <<EOF\nx\\\nEOF\n$(./evil)\nEOF", "cat <<EOF; ./evil\nx\nEOF",
        "cat <<EOF && ./evil\nx\nEOF", "cat <<EOF | ./evil\nx\nEOF", "cat <<''\nx\n\n./evil", "cat <<\"A B\"\nx\nA B\n./evil",
        "cat <<EOF\n${x:-$(./evil)}\nEOF", "cat <<'EOF' > /dev/null\nx\n EOF\nEOF\n./evil", "cat <<EOF\\\nEOF\nx\nEOFEOF\n./evil",
        "cat <<'EOF'x\ny\nEOFx\n./evil", "cat <<''EOF\n$(./evil)\nEOF\n./evil", "git status <<x\nx\n./evil",
    ),
]  # fmt: skip

GLOBS = [
    *rows("a pattern that becomes an option", "sort *", "sort in.txt", "sort *", "sort -* in.txt", "sort ?ovictim in.txt",
          "sort [-]ovictim in.txt", "sort ''*", "sort {-ovictim,in.txt}", setup="rm -rf tpl; : > -ovictim; chmod -x evil"),
    *rows("a pattern that becomes an operand", "uniq *", "uniq in.txt", "uniq v*", "uniq vi?*", setup="echo x > via"),
    *rows("a pattern that becomes a program", "echo * + git status", "echo x", "./ev*", "./evi?", "./[e]vil",
          "/proc/self/cwd/ev*"),
]  # fmt: skip

ATTACKS = [
    *PLANTED, *ENVIRONMENT, *SHELL_STATE, *GIT_OPTIONS, *OPTIONS, *WRAPPERS, *SUBSTITUTION, *LINES, *DOCUMENTS, *GLOBS,
]  # fmt: skip

REDIRECTIONS = [
    ("git diff HEAD~1 > victim", "victim"),
    ("git diff HEAD~1 >victim", "victim"),
    ("git diff HEAD~1 >| victim", "victim"),
    ("git diff HEAD~1 >> victim", "victim"),
    ("git diff HEAD~1 &> victim", "victim"),
    ("git diff HEAD~1 &>> victim", "victim"),
    ("git diff HEAD~1 >& victim", "victim"),
    ("git diff HEAD~1 1> ./victim", "./victim"),
    ("> victim git diff HEAD~1", "victim"),
    ("git > 'vic'tim diff HEAD~1", "victim"),
    ("git diff no-such-thing 2> victim", "victim"),
    ("{ git diff HEAD~1; } > victim", "victim"),
    ("(git diff HEAD~1) > victim", "victim"),
    ("git diff HEAD~1 | cat > victim", "victim"),
    ("git diff HEAD~1 1<> victim", "victim"),
    ("git diff HEAD~1 > HARM", "HARM"),
]
"""Lines whose commands an allow covers, and what their redirections write."""
