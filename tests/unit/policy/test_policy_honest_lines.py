"""Lines as coding agents write them all day, which nobody should be asked about.

Under the default policy, with a deny and with an ask for other commands beside it. What each mend
could have let through stands at the end.
"""

import pytest

from paddock.policy.decide import decide
from paddock.policy.engine import PolicySource, load_policy
from paddock.values.decisions import Action, Agent

POLICY = """
[profiles.denying]
extends = "standard"
deny = ["tool:shell:run git push *", "tool:shell:run mark *"]
[profiles.asking]
extends = "standard"
ask = ["tool:shell:run git push *", "tool:shell:run terraform apply *"]
"""
DECIDED = load_policy(PolicySource("paddock.toml", POLICY.encode(), True))


def outcome(line: str, profile: str) -> str:
    chain = (Agent("main", profile),)
    return decide(DECIDED, chain, (Action("shell", "run", line),)).outcome.word


LINES = r"""
source .venv/bin/activate && pytest -q
. venv/bin/activate; pip install -e .
source ./env.sh && make
PYTHONPATH=src python -m pytest
PYTHONPATH=src:. pytest -q tests
env PYTHONPATH=src python x.py
PYTEST_ADDOPTS=-q pytest
PIP_NO_INPUT=1 pip install -r requirements.txt
PATH=$PWD/node_modules/.bin:$PATH tsc --noEmit
export PATH="$HOME/.cargo/bin:$PATH"; cargo test
CARGO_TARGET_DIR=/tmp/target cargo build
MAKEFLAGS=-j4 make
i=0; i=$((i+1)); echo "$i"
i=0; while [ $i -lt 3 ]; do echo "try $i"; i=$((i + 1)); done
i=0; until curl -sf localhost:8000 || [ "$i" -ge 30 ]; do sleep 1; i=$((i+1)); done
n=0; while [[ $n -lt 5 ]]; do n=$((n+1)); done
count=0; while read -r l; do count=$((count+1)); done < f; echo "count: $count"
for i in 1 2 3; do echo $((i*2)); done
for i in {1..10}; do curl -s "localhost:8000/?page=$((i - 1))"; done
for ((i=0; i<3; i++)); do echo "$i"; done
total=0; for f in *.log; do total=$(( total + 1 )); done; printf '%s\n' "$total"
set -e; i=0; (( i += 1 )); echo $i
export CI=1 n=3; for i in 1 2; do echo $((i * n)); done
arr=(a b c); i=0; echo "${arr[$i]}"
set -euo pipefail; pytest -q
set -euo pipefail
set -x; make test; set +x
cd src && ls -la
cd src && npm test -- --coverage
cd /work/x && git status
export FOO=bar
export A=1 B=2
A=1
A=1 B=2
FOO=$(date +%s)
VERSION=$(git describe --tags) && echo "$VERSION"
[[ -f x ]]
[ -f x ] && echo yes
[ -f x ]
[[ -f package.json ]] && npm test
[[ "$OSTYPE" == linux* ]] && echo linux
[[ $x =~ ^[0-9]+$ ]] && echo number
[[ "$line" =~ ^([a-z]+)=(.*)$ ]] && echo "${BASH_REMATCH[1]}"
if [[ -z "${CI:-}" ]]; then echo local; fi
if [ "$1" = "x" ]; then echo a; else echo b; fi
test -f a && echo b || echo c
while IFS= read -r x; do echo "$x"; done < f
while IFS= read -r line; do echo "$line"; done < <(git ls-files)
git ls-files | while read -r f; do wc -l "$f"; done
git ls-files | while IFS= read -r f; do wc -l "$f"; done
while IFS=, read -r a b c; do echo "$a"; done < data.csv
IFS=, read -ra parts <<< "$csv"; echo "${parts[0]}"
find . -print0 | while IFS= read -r -d '' f; do echo "$f"; done
while ! curl -s localhost:3000 >/dev/null; do sleep 1; done
until curl -sf http://localhost:8080/health; do sleep 1; done
for i in 1 2 3; do echo "$i"; done
for i in {1..5}; do echo $i; done
for i in $(seq 1 10); do curl -s localhost:$i; done
for f in *.py; do echo "$f"; done
for f in src/**/*.ts; do wc -l "$f"; done
for f in $(git diff --name-only); do prettier --check "$f"; done
for d in */; do (cd "$d" && npm test); done
for pkg in a b c; do npm view "$pkg" version; done
for branch in $(git branch --format='%(refname:short)'); do git log -1 "$branch"; done
for file in a.txt b.txt; do sed -i 's/a/b/' "$file"; done
for arg in "$@"; do echo "$arg"; done
git status
git status --short --branch
git diff HEAD~1
git diff --stat main...HEAD
git log --oneline -20
git log --graph --all --oneline | head -20
git log -p --follow -- src/a.py
git add -A && git commit -m "fix: a thing"
git commit -am 'wip' && git log -1
git commit --amend --no-edit
git checkout -b feature/x
git switch -c feature
git stash && git pull --rebase && git stash pop
git rebase -i HEAD~3
git fetch origin && git diff origin/main
git branch --show-current
git rev-parse --abbrev-ref HEAD
git show HEAD:src/a.py
git show HEAD:src/a.py > /tmp/a.py
git blame -L 10,20 src/a.py
git ls-files | grep test
git ls-files '*.py' | xargs wc -l
git ls-files -z | xargs -0 grep -l NOTE
git grep -n "def main" -- '*.py'
git diff --name-only HEAD~3 | xargs -I{} ls -la {}
git log --format='%H %s' | awk '{print $1}'
git log --since="2 weeks ago" --author="$(git config user.name)" --oneline
git config user.name
git config --get remote.origin.url
git config --global core.pager cat
git remote -v
git tag -l 'v*' | sort -V | tail -1
git merge --no-ff feature
git cherry-pick abc123
git reset --hard HEAD~1
git reset HEAD -- a.py
git clean -fd
git worktree add ../x main
git submodule update --init --recursive
git bisect start && git bisect bad && git bisect good v1
git archive HEAD | tar x -C /tmp/out
git -C sub status
git --no-pager diff
GIT_PAGER=cat git log -5
GIT_AUTHOR_NAME=x git commit -m y
GIT_SEQUENCE_EDITOR=true git rebase -i HEAD~2
git diff | tee /tmp/d.patch
git apply --check fix.patch && git apply fix.patch
git stash list | wc -l
echo "$(git rev-parse HEAD)"
BRANCH=$(git branch --show-current); echo "on $BRANCH"
npm install
npm ci && npm run build
npm run lint -- --fix
npm test 2>&1 | tail -50
npm run dev &
npm run dev > /tmp/dev.log 2>&1 &
npx tsc --noEmit
npx jest --testPathPattern=foo
npx eslint . --ext .ts,.tsx
npx prettier --write "src/**/*.ts"
NODE_ENV=test npx jest
NODE_OPTIONS=--max-old-space-size=4096 npm run build
yarn install --frozen-lockfile
pnpm -r build
pnpm --filter app test
bun test
node -e "console.log(require('./package.json').version)"
node --version && npm --version
node scripts/build.js --watch=false
cat package.json | jq '.scripts'
jq -r '.dependencies | keys[]' package.json
jq '.version = "2.0"' package.json > tmp.json && mv tmp.json package.json
jq --arg v "$VERSION" '.version = $v' package.json
python -c "import sys; print(sys.version)"
python3 -c 'import json; print(json.load(open("a.json")))'
python -m pytest -x -q tests/unit
python -m pytest tests/test_a.py::test_b -v 2>&1 | tail -30
pip install -e '.[dev]'
pip list | grep -i django
python -m http.server 8000 &
python setup.py build_ext --inplace
PYTHONDONTWRITEBYTECODE=1 pytest -q
python manage.py migrate
DJANGO_SETTINGS_MODULE=app.settings python manage.py check
pytest -k "a and not b" --cov=src --cov-report=term-missing
pytest -q && ruff check . && mypy src
timeout 60 pytest -q
timeout 300 npm test || echo "timed out"
poetry run pytest
uv run pytest -q
uv pip install requests
uv sync && uv run ruff check
tox -e py311
coverage run -m pytest && coverage report
black --check . && isort --check .
cargo build --release
cargo test -- --nocapture
cargo clippy --all-targets -- -D warnings
cargo fmt --check
RUST_BACKTRACE=1 cargo test
RUST_LOG=debug cargo run -- --help
RUSTFLAGS="-D warnings" cargo build
cargo run --bin x -- arg
cargo tree -i serde
go build ./...
go test ./... -run TestX -v
go test -race -count=1 ./...
go vet ./... && gofmt -l .
CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -o bin/app ./cmd/app
GOFLAGS=-mod=mod go build ./...
go mod tidy && git diff --exit-code go.mod go.sum
go list -m all | grep x
make
make -j$(nproc)
make -j"$(nproc)" test
make test 2>&1 | tee build.log
make -C sub clean all
make DESTDIR=/tmp/x install
cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build -j
mkdir -p build && cd build && cmake .. && make
./configure --prefix=/usr && make
mvn -q test -Dtest=FooTest
./gradlew test --tests '*Foo*'
JAVA_HOME=/usr/lib/jvm/x mvn package
bundle exec rspec spec/models
bundle install && bundle exec rake db:migrate
rails test
php artisan test
composer install --no-interaction
dotnet test --filter Name~Foo
mix test
find . -name '*.py' -type f
find . -name '*.pyc' -delete
find . -type f -name '*.ts' -not -path '*/node_modules/*' | head
find . -name '*.js' -exec grep -l foo {} +
find . -name '*.js' -exec sed -i 's/a/b/g' {} \;
find . -type d -name __pycache__ -exec rm -rf {} +
find . -type d -name __pycache__ | xargs rm -rf
find src -name '*.ts' | xargs grep -n "foo"
find src -name '*.ts' -print0 | xargs -0 sed -i 's/foo/bar/g'
find . -newer a -type f | xargs ls -la
find . -type f -size +1M -exec ls -lh {} \; | sort -k5
find . -name '*.py' | xargs -n1 python -m py_compile
grep -rn "NOTE" src --include='*.py'
grep -rl foo src | xargs sed -i 's/foo/bar/g'
grep -c . a.txt
grep -oP '(?<=version = ")[^"]+' Cargo.toml
grep -E '^(a|b)$' f | sort -u
grep -q foo a.txt && echo found || echo missing
if grep -q foo a.txt; then echo yes; fi
! grep -q foo a.txt
rg -n 'foo' -g '*.ts' | head -20
rg -l foo | xargs sed -i 's/foo/bar/'
rg --files | rg test
sed -n '10,20p' a.py
sed -i 's/foo/bar/g' src/a.py
sed -i.bak -e 's/a/b/' -e '/^#/d' a.py
sed -i "s/VERSION/$VERSION/" a.py
sed -n "${start},${end}p" a.py
sed 's/a/b/' a.txt | diff - b.txt
awk '{print $2}' a.txt
awk -F, 'NR>1 {sum+=$3} END {print sum}' data.csv
awk '/start/,/end/' a.txt
awk -v x="$x" '$1 == x' a.txt
awk 'NR==FNR{a[$1];next} $1 in a' a b
ps aux | grep node | awk '{print $2}' | xargs kill
ps aux | grep -v grep | grep python
kill $(lsof -t -i:3000)
kill -9 $PID 2>/dev/null || true
kill %1
lsof -i :3000
diff <(sort a) <(sort b)
diff <(git show HEAD:a.py) a.py
comm -23 <(sort a) <(sort b)
diff -u <(python a.py) <(python b.py) | head
paste <(cut -f1 a) <(cut -f2 b)
mapfile -t files < <(git ls-files '*.py'); echo "${#files[@]}"
mapfile -t lines < a.txt; printf '%s\n' "${lines[@]}"
readarray -t xs <<< "$out"
files=(*.py); echo "${files[@]}"
files=(a b c); for f in "${files[@]}"; do echo "$f"; done
files=(a b c); echo "${#files[@]} ${files[0]}"
arr+=("x"); echo "${arr[@]}"
declare -a list=(); list+=(x)
declare -r X=1
readonly X=1; echo $X
unset FOO; echo "${FOO:-none}"
local x=1
f() { local x="$1"; echo "$x"; }; f a
f() { echo hi; }; f
function g { echo hi; }; g
log() { printf '[%s] %s\n' "$(date)" "$*"; }; log start
cleanup() { rm -rf "$tmp"; }; trap cleanup EXIT; tmp=$(mktemp -d); ls "$tmp"
trap 'echo done' EXIT
trap 'rm -f "$tmp"' EXIT INT TERM
trap - EXIT
trap 'kill $pid' EXIT; npm start & pid=$!; sleep 2; curl localhost:3000
tmp=$(mktemp -d) && cd "$tmp" && git init -q
tmp=$(mktemp); echo x > "$tmp"; cat "$tmp"
case "$1" in start) echo a;; stop) echo b;; *) echo c;; esac
case $(uname -s) in Linux*) echo linux;; Darwin*) echo mac;; esac
case "$x" in a|b) make;; esac
while getopts "ab:c" opt; do case $opt in a) x=1;; b) y=$OPTARG;; *) exit 1;; esac; done
n=$((1+2)); echo $n
echo $((2**10))
[ "$x" -gt 3 ] && echo big
if [ $? -eq 0 ]; then echo ok; fi
if (( $? != 0 )); then echo bad; fi
[ $(wc -l < a.txt) -gt 10 ] && echo long
[[ $(git status --porcelain) ]] && echo dirty
[[ -n $(git status --porcelain) ]] && echo dirty
test -z "$(gofmt -l .)"
printf '%s\n' a b c
printf -v x '%03d' 5; echo "$x"
printf "%-20s %s\n" "$a" "$b"
echo "a" | tee -a log.txt
echo -e "a\nb" | sort
echo "PATH=$PATH"
echo "$HOME" "$USER" "$PWD"
echo ${x:-default} ${y%.py} ${z##*/} ${w//a/b} ${v^^} ${u:0:3}
echo "${files[@]/%/.bak}"
echo "${x:?must be set}"
basename "${f%.*}"
dirname "$(realpath "$0")"
SCRIPT_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
DIR=$(dirname "$0"); cd "$DIR"; ls
export DATABASE_URL=postgres://localhost/x; npm test
DATABASE_URL=sqlite:///x.db alembic upgrade head
export $(cat .env.example | xargs)
env | grep -i node | sort
env FOO=bar npm test
env -u FOO npm test
printenv PATH
command -v node >/dev/null 2>&1 || echo missing
which python3 && python3 --version
type -a python
hash -r
alias ll='ls -la'
curl -s https://api.example.com/x | jq '.data[] | .id'
curl -fsSL https://example.com -o /tmp/x.html
curl -X POST -H 'Content-Type: application/json' -d '{"a":1}' localhost:3000/api
for i in {1..30}; do curl -sf localhost:8080 && break; sleep 1; done
for i in $(seq 1 30); do if curl -s localhost:3000 > /dev/null; then break; fi; sleep 1; done
curl -s -o /dev/null -w '%{http_code}' localhost:3000
wget -q https://example.com/a.tgz && tar xzf a.tgz
tar czf a.tgz --exclude=node_modules .
tar -xzf a.tgz -C /tmp/x --strip-components=1
unzip -o a.zip -d out
rm -rf dist && npm run build
rm -rf node_modules package-lock.json && npm install
rm -f *.log
mkdir -p a/{b,c} && touch a/b/x
cp -r src/{a,b} dist/
mv a.py b.py && git add -A
chmod +x scripts/*.sh
ln -sf ../a b
touch a && stat a
ls -la | head
ls *.py 2>/dev/null | wc -l
ls -t | head -1 | xargs cat
wc -l $(git ls-files '*.py') | tail -1
head -20 a.py; echo ---; tail -20 a.py
cat a.py | head -100 | tail -50
tail -f log.txt & sleep 5; kill $!
du -sh * | sort -h
df -h .
xxd a.bin | head
date +%Y-%m-%d
date -d '1 day ago' +%F
sleep 2 && curl -s localhost:3000
sleep 5; tail -20 /tmp/dev.log
wait
wait $!
wait $pid; echo $?
cmd & pid=$!; wait $pid
(npm test; echo $?) 2>&1 | tail -5
(cd sub && make) && echo ok
{ echo a; echo b; } > c.txt
{ npm test && echo ok; } || { echo failed; exit 1; }
npm test; echo "exit: $?"
npm test && echo PASS || echo FAIL
npm test > out.txt 2>&1; tail out.txt
npm test |& tail
pytest 2>&1 | grep -E 'passed|failed' || true
time npm test
nohup npm start > out.log 2>&1 &
exec 3>&1; echo x >&3
exec > >(tee log.txt) 2>&1; make
exec 2>&1
docker ps
docker compose up -d && docker compose logs --tail=50
docker exec -it app bash -c 'ls -la'
docker run --rm -v "$PWD":/w -w /w node:18 npm test
kubectl get pods -o json | jq '.items[].metadata.name'
ssh host 'ls -la'
psql -c 'select 1' mydb
sqlite3 db.sqlite '.tables'
sqlite3 db.sqlite 'select count(*) from t'
redis-cli ping
terraform plan -out=tf.plan
bash scripts/build.sh
bash -c 'echo hi'
bash -lc 'npm test'
bash -x scripts/a.sh 2>&1 | tail
bash -n scripts/a.sh
sh -c 'cd sub && make'
shopt -s globstar nullglob; ls **/*.py
set -o pipefail; npm test | tee log
ulimit -n 4096
umask 022
pushd sub >/dev/null; make; popd >/dev/null
cd - && ls
cd "$(git rev-parse --show-toplevel)" && ls
cd ..; ls
cd
pwd
true
:
: > a.txt
> a.txt
exit 0
return 1
echo done # a comment
shellcheck scripts/*.sh
column -t -s, a.csv
tr -d '\r' < a > b
cut -d: -f1 /etc/passwd
sort a | uniq -c | sort -rn | head
xargs -a files.txt rm -f
seq 10 | xargs -I{} echo item {}
echo a b c | xargs -n1 echo
xargs < list.txt ls
select x in a b; do echo $x; break; done
read -r x < VERSION; echo "$x"
read -p 'name? ' name
IFS=$'\n' read -d '' -ra xs < <(ls)
IFS=: read -r a b <<< "x:y"; echo "$a"
IFS=$'\n'; for x in $(cat f); do echo "$x"; done
OLDIFS=$IFS; IFS=,; set -- $csv; IFS=$OLDIFS; echo $1
LC_ALL=C sort a
TZ=UTC date
CI=true npm test
DEBUG=app:* node server.js &
PORT=3001 npm start &
EDITOR=true git commit --amend
apt-get update && apt-get install -y jq
brew install jq
sudo apt-get install -y ripgrep
systemctl status nginx
openssl rand -hex 16
base64 -d <<< "aGk="
echo aGk= | base64 -d
strace -f -e openat ls 2>&1 | head
ldd ./a.out
gcc -o a a.c && ./a
g++ -std=c++20 -O2 a.cpp -o a -Wall && ./a < in.txt
clang-format -i src/*.c
valgrind ./a
gdb -batch -ex run -ex bt ./a
perl -pi -e 's/a/b/' a.txt
perl -ne 'print if /x/' a.txt
ruby -e 'puts 1'
patch -p1 < fix.diff
echo "$x" > out/$name.txt
for f in *.md; do pandoc "$f" -o "${f%.md}.html"; done
for f in a b; do [ -f "$f" ] || continue; wc -l "$f"; done
if command -v jq >/dev/null; then jq . a.json; else cat a.json; fi
if ! npm test; then echo failed; exit 1; fi
[ -d node_modules ] || npm ci
[ -z "$x" ] && x=1
: "${FOO:=bar}"; echo "$FOO"
echo 'a' 'b' "c d" $'e\tf'
printf 'a\0b\0' | xargs -0 -n1 echo
cat a | while read l; do echo "${l^^}"; done
awk '{ print > $1".txt" }' data.txt
test "$(cat VERSION)" = "1.0" || exit 1
result=$(npm test 2>&1) || { echo "$result"; exit 1; }
out=$(mktemp) && npm test >"$out" 2>&1; status=$?; tail -5 "$out"; exit $status
count=$(grep -c x a || true); [ "$count" -gt 0 ] && echo "$count"
arr=($(ls)); echo ${#arr[@]}
IFS=',' read -r -a items <<< "a,b"; for i in "${items[@]}"; do echo "$i"; done
echo ${arr[@]:1:2} ${arr[-1]} ${#arr[0]}
arr[0]=x; echo "${arr[0]}"
echo "line $LINENO" "${FUNCNAME[0]}" "$SECONDS" "$RANDOM" $$ $#
ls -la `which node`
echo `date`
X=`pwd`; echo $X
tmux new-session -d -s dev 'npm start'
screen -dmS dev npm start
crontab -l
journalctl -u x --since today
watch -n1 ls
yes | head -3
stty size
tput cols
"""
DOCUMENTS = (
    "while read -r a b; do echo \"$a $b\"; done <<'E'\n1 2\nE",
    "git add . && git commit -m \"$(cat <<'EOF'\nfix: a thing\n\nCo-authored-by: x\nEOF\n)\"",
    "python3 - <<'EOF'\nimport os\nprint(os.getcwd())\nEOF",
    "python3 <<EOF\nprint(1)\nEOF",
    "cat > a.py <<'EOF'\nimport os\nprint(\"x\")\nEOF",
    "cat <<EOF > a.txt\nhello $USER\nEOF",
    "cat << 'EOF' | python3\nprint(1)\nEOF",
    "cat <<'EOF' >> .gitignore\nnode_modules/\nEOF",
    "cat > x.sh <<'EOF' && chmod +x x.sh && ./x.sh\n#!/bin/bash\nset -e\ngit status\nEOF",
    "cat <<\\EOF\n`git` is a program\nEOF",
    "cat <<EOF\n\\`code\\` is quoted\nEOF",
    "cat > README.md <<EOF\n\\`\\`\\`bash\nnpm test\n\\`\\`\\`\nEOF",
    "cat > README.md <<'EOF'\n```bash\ngit push origin main\n```\nEOF",
    'gh pr create --title "x" --body "$(cat <<\'EOF\'\n## Summary\n- a `b` c\nEOF\n)"',
    "tee a.txt <<'EOF' >/dev/null\nx\nEOF",
    "psql mydb <<'SQL'\nselect 1;\nSQL",
)


@pytest.mark.parametrize("line", [*filter(None, LINES.splitlines()), *DOCUMENTS])
def test_what_agents_write_is_confined_and_asked_about_nowhere(line: str) -> None:
    for profile in ("standard", "denying", "asking"):
        assert outcome(line, profile) == "confine", profile


ATTACKS = r"""
for RANDOM in 'a[$(mark)]'; do :; done
for SECONDS in 'a[$(mark)]'; do :; done
select OPTIND in 'a[$(mark)]'; do :; done
read -r RANDOM <<< 'a[$(mark)]'
printf -v RANDOM %s 'a[$(mark)]'
printf -vRANDOM %s 'a[$(mark)]'
RANDOM='a[$(mark)]'
x='a[$(mark)]'; OPTIND=x
x='a[$(mark)]'; RANDOM=x ls
export RANDOM='a[$(mark)]'
declare -n r=RANDOM; r='a[$(mark)]'
hash -p /usr/bin/mark x; x
hash -dp /usr/bin/mark x; x
hash x=/usr/bin/mark; x
bind -x '"a": mark'
x='a[$(mark)]'; echo ${y[x]}
x='a[$(mark)]'; echo ${y[$x]}
x='a[$(mark)]'; y[x]=1
x='a[$(mark)]'; echo $((x))
x='a[$(mark)]'; ((x))
x='a[$(mark)]'; [[ x -eq 1 ]]
x='a[$(mark)]'; [[ 1 -eq $x ]]
echo ${a[0]$(mark)}
a[0$(mark)]=1
echo $(( 1 + $(mark) ))
echo mark | xargs -I ls ls x
echo mark | xargs -I ls -d {} ls
echo mark | xargs -I{} {} x
echo mark | xargs -I{} sh -c {}
echo mark | xargs -i env {}
echo mark | xargs env
echo mark | xargs env -i
echo mark | xargs nice
xargs -I{} -- mark {}
IFS=_; x=mark_x; $x
IFS= mark
A=$(mark)
x=`mark`
A=(1 $(mark))
[[ -f $(mark) ]]
[[ $(mark) ]]
echo "${x:?must $(mark) set}"
echo "${x:-`mark` b}"
echo "$a `mark`"
echo "$a $(mark)"
GIT_EDITOR=mark git commit
GIT_EDITOR='true; mark' git commit
GIT_AUTHOR_NAME=$(mark) git commit
GIT_AUTHOR_NAME=x GIT_SSH_COMMAND=mark git fetch
PIP_EDITOR=mark pip config edit
CARGO_TARGET_DIR=$(mark) cargo build
MAKEFLAGS='-j4 --eval=$(shell mark)' make
HOME=. git status
NODE_OPTIONS='--max-old-space-size=1 --require ./x' npm test
PAGER='cat; mark' git log
export EDITOR=mark; git commit
i='a[$(mark)]'; echo $((i))
false && i=0; i='a[$(mark)]'; echo $((i))
i=0; i+='a[$(mark)]'; echo $((i))
i=0; read i <<< 'a[$(mark)]'; echo $((i))
i=0; read -r {h..j} <<< 'a[$(mark)]'; echo $((i))
i=0; read -r ? <<< 'a[$(mark)]'; echo $((i))
i=0; r\ead i <<< 'a[$(mark)]'; echo $((i))
i=0; x=read; $x i <<< 'a[$(mark)]'; echo $((i))
i=0; command read i <<< 'a[$(mark)]'; echo $((i))
i=0; time read i <<< 'a[$(mark)]'; echo $((i))
i=0; printf -v i '%s' 'a[$(mark)]'; echo $((i))
i=0; mapfile -t i <<< 'a[$(mark)]'; echo $((i))
i=0; declare -n i=x; x='a[$(mark)]'; echo $((i))
i=0; for i in 'a[$(mark)]'; do echo $((i)); done
i=0; for i in $x; do echo $((i)); done
i=0; echo ${i:='a[$(mark)]'} $((i))
i=0; unset i; echo ${i='a[$(mark)]'} $((i))
i=0; j='a[$(mark)]'; i=$j; echo $((i))
i=0; j='a[$(mark)]'; echo $((i+j))
i=0; ab='a[$(mark)]'; echo $((a$i + ab))
i=1; a1='a[$(mark)]'; echo $((a$i))
i=1; a1='a[$(mark)]'; echo $((a${i}))
i=0; i[0]='a[$(mark)]'; echo $((i))
i=0; i=('a[$(mark)]'); echo $((i))
i=0; trap 'i="a[\$(mark)]"' DEBUG; echo $((i))
i=0; f() { i='a[$(mark)]'; }; f; echo $((i))
i=0; . ./f; echo $((i))
i=0; eval "$(cat f)"; echo $((i))
i=0; getopts i: i; echo $((i))
export i='a[$(mark)]'; bash -c 'false && i=0; echo $((i))'
i='a[$(mark)]'; false && i=0; [[ $i -eq 0 ]]
i='a[$(mark)]'; for ((; i < 3; i++)); do echo; done
for ((i = $(mark); i < 3; i++)); do echo; done
i=0; export i={0,'a[$(mark)]'}; echo $((i))
i=0; export i="a"'[$(mark)]'; echo $((i))
i=0; readonly i='a[$(mark)]'; echo $((i))
"""
DOCUMENT_ATTACKS = (
    "cat <<E\n\\`mark\\` `mark`\nE",
    "cat <<E\n\\\\`mark`\nE",
    "cat <<E\n\\\\$(mark)\nE",
    "cat <<E <<F\n\\`x\nE\n$(mark)\nF",
    "cat <<-E\n\t\\`x\\` $(mark)\n\tE",
    'x="`cat <<E\n\\`mark\\`\nE\n`"',
    "echo '<<E\n\\`' `mark`",
)


@pytest.mark.parametrize("line", [*filter(None, ATTACKS.splitlines()), *DOCUMENT_ATTACKS])
def test_what_looks_like_it_and_starts_something_is_not(line: str) -> None:
    assert outcome(line, "denying") in ("ask", "deny")


@pytest.mark.parametrize("line", ["A=1", "A=(1 2)", "[[ -f x ]]", "(( 1 < 2 ))"])
def test_a_line_that_only_assigns_or_tests_is_left_to_what_is_said_of_any_command(
    line: str,
) -> None:
    assert outcome(line, "open") == "allow"
    assert outcome(line, "locked") == "deny"
    assert outcome(line, "readonly-commands") == "deny"
