"""What known programs write, remove and copy: refused where it is protected, silent elsewhere."""

from tests.support.hooks import Client


def run(client: Client, command: str) -> str:
    return client.ask("Bash", tool_input={"command": command}).word


def test_what_is_protected_is_not_written_by_an_option_or_below(client: Client):
    client.place.project.joinpath("sub").mkdir()
    client.place.project.joinpath("sub/.env").write_text("A=1\n")

    commands = [
        "git clean -fdx",
        "git clean -fX .",
        "git clean -x -d -f sub",
        "git -C sub clean -fdx",
        "find . -name .env -exec sed -i s/1/2/ {} +",
        "find . -name .env -exec env rm {} ;",
        "find . -name '.e*' -exec chmod 777 {} +",
        "find . -type f -exec truncate -s0 {} +",
        "find sub -name '.e*' -exec tee {} ;",
        "find . -path './sub/*' -type f -delete",
        "find . -iname '.ENV' -exec mv {} /nowhere ;",
        "find sub -name '*' -exec cp {} src ;",
        "find sub -exec cp {} src ;",
        "chmod -w .env",
        "chmod -R 777 .",
        "chmod -R 777 sub",
        "gzip -r sub",
        "tar -czf .env src",
        "uniq -c README.md .env",
        "csplit -f .env README.md 1",
        "split --lines 1 README.md .env",
        "curl -s --output-dir .git -O http://h/x",
        "git config -f .env a.b c",
        "git format-patch -1 --output-directory .git/x",
        "git bundle create -q .env HEAD",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "deny")


def test_what_the_words_do_not_tell_is_asked_about(client: Client):
    commands = [
        "sed 's/a/b/e' README.md",
        "sed -n 'w .env' README.md",
        "sed 's|d|x|gw .env' README.md",
        "git clean -fd",
        "env -C .git rm config",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "ask")


def test_ordinary_forms_of_them_stay_silent(client: Client):
    commands = [
        "sed -n '1,5p' README.md",
        "sed 's/[^/]*$//' README.md",
        "sed -i s/a/b/ README.md",
        "git clean -ndx",
        "git clean -fdx src",
        "find . -name '*.py' -exec grep -n x {} +",
        "find . -type f -exec wc -l {} ;",
        "find . -name '*.py' -exec sed -i s/1/2/ {} +",
        "find . -name '*.pyc' -delete",
        "find . -type d -name __pycache__ -exec rm -rf {} +",
        "find sub -name '*.md' -exec tee {} ;",
        "find src -name '*.py' -exec sed -i s/1/2/ {} +",
        "chmod +x src/a.py",
        "chmod -R u+w src",
        "gzip -r src",
        "tar -czf a.tgz src",
        "uniq -c README.md",
        "split -l 5 README.md part",
        "git config user.name",
        "git worktree add tree",
        "env A=1 ls",
        "NODE_ENV=production npm run build",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "none")


def test_the_index_is_not_the_file(client: Client):
    client.place.project.joinpath("sub").mkdir()

    commands = [
        "git rm -r --cached .",
        "git rm --cached .env",
        "git rm -rq --cached -- .env sub",
        "git reset .env",
        "git reset HEAD -- .env",
        "git restore --staged .env",
        "git restore -S -q .",
        "git update-index --assume-unchanged .env",
        "git update-index --force-remove .env",
        "git add .env",
        "git add -A",
        "git stash",
        "git stash push -m wip",
        "git stash pop",
        "git stash list",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "none")


def test_what_git_does_to_the_file_is_still_refused(client: Client):
    commands = [
        "git rm .env",
        "git rm -r .",
        "git rm --cached --no-cached .env",
        "git rm -- --cached .env",
        "git checkout -- .env",
        "git checkout HEAD .env",
        "git restore .env",
        "git restore --staged --worktree .env",
        "git restore -SW .env",
        "git clean -xf",
        "git mv .env x",
        "git stash push -u -- .env",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "deny")


def test_where_a_client_takes_its_hooks_from_is_not_taken_away_by_words(client: Client):
    settings = client.place.project / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text("{}")

    commands = [
        "git stash -u -- .claude",
        "git stash push -u -m x -- .claude/settings.json",
        "git stash -- .claude",
        "git clean -fdx .claude",
        "git checkout -- .claude/settings.json",
        "git checkout HEAD~1 .claude",
        "git restore .claude",
        "git rm -r .claude",
        "git mv .claude/settings.json x.json",
        "rm -rf .claude",
        "mv .claude old",
        "cd .claude && git stash -u -- settings.json",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "deny")


def test_stashing_what_git_does_not_track_is_asked_about_and_reading_settings_is_not(
    client: Client,
):
    folder = client.place.project / ".claude"
    folder.mkdir(exist_ok=True)
    folder.joinpath("settings.json").write_text("{}")

    assert [run(client, each) for each in ("git stash -u", "git stash push --all -m x")] == [
        "ask",
        "ask",
    ]
    assert [
        run(client, each)
        for each in (
            "cat .claude/settings.json",
            "git diff .claude",
            "git add .claude/settings.json",
            "git rm --cached .claude/settings.json",
            "git stash push -- src",
        )
    ] == ["none"] * 5
