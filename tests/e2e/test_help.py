#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_help.py: tests what the program says about itself: help, the manual, and completion in shells.

    test_help.py QUERN SOURCE_ROOT

All of this is printed from the tables of the commands, so the test does not list the commands: `quern help` names them.
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time

from lib.cases import check, run

QUERN, ROOT = map(os.path.abspath, sys.argv[1:3])
LIMIT = 300  # seconds for one command
TMP = tempfile.TemporaryDirectory(prefix="quern-help-")
BIN, HERE = os.path.join(TMP.name, "bin"), os.path.join(TMP.name, "here")
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("QUERN_", "XDG_", "LC_")) and k not in ("NO_COLOR", "MANPAGER")}
ENV.update(PATH=BIN + ":" + os.environ["PATH"], HOME=TMP.name, TERM="xterm", LC_ALL="C")
os.mkdir(BIN)
os.symlink(QUERN, os.path.join(BIN, "quern"))
os.makedirs(os.path.join(HERE, "weights.d"))  # where completion happens: a file and a folder
open(os.path.join(HERE, "weights.gguf"), "w").close()


def quern(*args, **env):
    r = subprocess.run(["quern", *args], env={**ENV, **env}, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    check(r.returncode == 0 and not r.stderr, args, r.returncode, r.stderr)
    return r.stdout.decode()


COMMANDS = re.findall(r"^  ([a-z][a-z-]*) +\S", quern("help"), re.M)


def options(command):
    """[(letter or "", name)] in the long help."""
    return re.findall(r"^  (?:-(.),|   ) --([a-z0-9-]+)(?: \S+)?(?:  |$)", quern(command, "--help-all"), re.M)


class Terminal:
    """A program at a terminal of so many columns."""

    def __init__(self, command, columns=80, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(HERE)
                fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                os.execvpe(command[0], command, {**ENV, **env})
            finally:
                os._exit(127)
        self.shown = ""

    def read(self, until=None):
        """Reads up to a text that matches the pattern, or all. Returns the match."""
        end = time.monotonic() + LIMIT
        while not (until and re.search(until, self.shown)):
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"{until} not in {self.shown[-2000:]!r}")
            try:
                piece = os.read(self.fd, 65536)
            except OSError:
                piece = b""
            if not piece:
                break
            self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return until and re.search(until, self.shown)

    def write(self, text):
        os.write(self.fd, text.encode())

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def at_terminal(command, columns=80, **env):
    t = Terminal(command, columns, **env)
    t.read()
    t.close()
    return t.shown


# ---- help ----

def test_there_are_commands():
    check({"run", "serve", "check", "manual", "completion", "help"} <= set(COMMANDS), COMMANDS)
    check("complete" not in COMMANDS, "a hidden command is listed")
    check(len(COMMANDS) == len(set(COMMANDS)), COMMANDS)


def test_help_fits_a_screen():
    for args in [["--help"]] + [[c, "--help"] for c in COMMANDS]:
        text = quern(*args)
        lines = text.splitlines()
        check(len(lines) <= 24, args, len(lines), "lines")
        check(max(map(len, lines)) <= 80, args, max(lines, key=len))
        check(text.isascii() and "\033" not in text and "\t" not in text, args)
        check(all(line == line.rstrip() for line in lines), args, "has blanks at the end of lines")
    for c in COMMANDS:
        lines = quern(c, "--help-all").splitlines()
        check(lines[0].startswith("usage: quern "), c, lines[0])
        check(max(map(len, lines)) <= 80, c, max(lines, key=len))
        check("    quern" in "\n".join(lines) or "| quern" in "\n".join(lines), c, "has no examples")


def test_the_short_help_is_part_of_the_long_one():
    names_of = re.compile(r"^  (?:-.,|   ) --([a-z0-9-]+)", re.M)
    for c in COMMANDS:
        short, long = quern(c, "--help"), quern(c, "--help-all")
        rare = set(names_of.findall(long)) - set(names_of.findall(short)) - {"help-all", "config"}
        check(set(names_of.findall(short)) <= set(names_of.findall(long)), c)
        check((f"quern manual {c}, or --help-all" in short) == bool(rare), c, rare)
        check(quern("help", c) == long, c, "help COMMAND is not --help-all")


def test_help_lists_every_command():
    short = quern("--help")
    for c in COMMANDS:
        check(re.search(rf"\b{c}\b", short), c)
    check(quern("-h") == short, "-h is not --help")
    check(quern("--help-all") == quern("help"), "help is not --help-all")


def test_a_terminal_is_filled_and_bold():
    wide, narrow = (at_terminal(["quern", "run", "--help"], n) for n in (120, 50))
    check("\033[1m" in wide and wide.count("\n") < narrow.count("\n"), wide)
    plain = re.sub(r"\033\[[01]m", "", narrow)
    check(max(map(len, plain.splitlines())) <= 50 and "\033" not in plain, plain)
    for env in {"NO_COLOR": "1"}, {"TERM": "dumb"}:
        check(at_terminal(["quern", "run", "--help"], **env) == quern("run", "--help"), env)
    check("\033" not in quern("run", "--help", CLICOLOR_FORCE="1"), "colour in a pipe")


# ---- the manual ----

def shown(page, width=80):
    """A page as man shows it; complains of every warning of man and of groff."""
    r = subprocess.run(["man", "--warnings=w", "-E", "ascii", "-l", "-"], input=page.encode(), env={**ENV, "MANWIDTH": str(width)},
                       capture_output=True, timeout=LIMIT)
    check(r.returncode == 0 and not r.stderr, page[:40], r.stderr.decode())
    g = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=page.encode(), env=ENV, capture_output=True, timeout=LIMIT)
    check(g.returncode == 0 and not g.stderr, page[:40], g.stderr.decode())
    return re.sub(".\b", "", r.stdout.decode())


def check_page(name, page, parts):
    check(page.isascii(), name)
    check(not re.search(r"^['.](?!(TH|SH|SS|PP|TP|RS|RE|EX|EE|BR|B|I|IR|br|nh|ad)\b)", page, re.M), name, "has a line that roff may act on")
    text = shown(page)
    for part in parts:
        check(re.search(rf"^{part}$", text, re.M), name, "has no", part)
    path = os.path.join(TMP.name, name)
    with open(path, "w") as f:
        f.write(page)
    whatis = subprocess.run(["lexgrog", path], env=ENV, capture_output=True, text=True, timeout=LIMIT).stdout
    check(f'"{name[:-2]} - ' in whatis, name, whatis)
    return text


def test_every_page_is_good_roff():
    names = quern("manual", "--roff").split()
    check({"quern.1", "quern.toml.5", "quern-run.1"} <= set(names) and len(names) > len(COMMANDS), names)
    for name in names:
        check_page(name, quern("manual", "--roff", name), ["NAME", "DESCRIPTION", "SEE ALSO"] +
                   (["SYNOPSIS", "EXIT STATUS"] if name.endswith(".1") else []))


def test_pages_have_every_option():
    config = quern("manual", "--roff", "quern.toml")
    own = {name[len("quern-"):-2] for name in quern("manual", "--roff").split() if name.startswith("quern-")}
    for c in COMMANDS:
        page = quern("manual", "--roff", c)
        check(page == quern("manual", "--roff", f"quern-{c}.1") == quern("manual", "--roff", f"quern-{c}"), c)
        check(page.startswith('.TH "QUERN' + (r"\-" + c.upper() if c in own else '"')), c, page[:60])
        for letter, name in options(c):
            escaped = name.replace("-", r"\-")
            check((rf"\fB\-{letter}\fR, " if letter else "") + rf"\fB\-\-{escaped}\fR" in page, c, letter, name)
            if name not in ("config", "help", "help-all"):
                check(rf"\fB{escaped}\fR (" in config, c, name, "is no key")
                check(re.search(rf"QUERN_\w*{name.upper().replace('-', '_')}\\fR", page), c, name, "has no variable")


def test_values_are_described():
    text = shown(quern("manual", "--roff", "serve"), 300)
    check("From 1 to 1024." in text, "the range of --parallel")
    check("One of f16, f32, q8_0." in text, "the choices of --kv")
    check("QUERN_SERVE_CACHE_DIR; in quern.toml(5) [serve] cache-dir" in text, "the names of --cache-dir")
    check("At least -1." in shown(quern("manual", "--roff", "run")), "a range with one end")


def test_built_in_personas_are_described():
    names = quern("complete", "personas").split()
    check(len(names) > 3, names)
    for page in "quern", "quern.toml":
        for name in names:
            check(r"\fB" + name.replace("-", r"\-") + r"\fR" in quern("manual", "--roff", page), page, name)


def test_unknown_pages_are_refused():
    for name in "nonsense", "complete", "quern-", "", "x" * 100, "quern-run.", "quern-api":
        r = subprocess.run(["quern", "manual", name], env=ENV, capture_output=True, text=True, timeout=LIMIT)
        check(r.returncode == 64 and r.stderr.count("\n") == 1 and not r.stdout, name, r.returncode, r.stderr)


def test_unknown_commands_have_no_help():
    for name in "nonsense", "":
        r = subprocess.run(["quern", "help", name], env=ENV, capture_output=True, text=True, timeout=LIMIT)
        check(r.returncode == 64 and r.stderr.count("\n") == 1 and not r.stdout, name, r.returncode, r.stderr)
    r = subprocess.run(["quern", "completion", "tcsh"], env=ENV, capture_output=True, text=True, timeout=LIMIT)
    check(r.returncode == 64 and r.stderr.count("\n") == 1 and not r.stdout, r)


def test_at_a_terminal_the_manual_is_shown():
    text = re.sub("\033\\[[0-9;]*m|.\b", "", at_terminal(["quern", "manual", "check"], PAGER="cat"))
    check(re.search(r"^NAME$", text, re.M) and ".SH" not in text, text[:300])
    listed = at_terminal(["quern", "manual"])
    check("quern-check(1)" in listed and "quern.toml(5)" in listed, listed)
    alone = os.path.join(TMP.name, "alone")  # without man
    os.mkdir(alone)
    os.symlink(shutil.which("sh"), os.path.join(alone, "sh"))
    text = at_terminal([QUERN, "manual", "check"], PATH=alone)
    check("NAME" in text and "quern check" in text and ".SH" not in text, "without man", text[:300])


def test_the_page_of_the_api():
    made = subprocess.run([ROOT + "/tools/make-api-page", ROOT + "/docs/openapi.json", "1.2"], capture_output=True, text=True, timeout=LIMIT)
    check(made.returncode == 0 and not made.stderr, made.stderr)
    text = check_page("quern-api.7", made.stdout, ["NAME", "DESCRIPTION", "ROUTES", "EXAMPLES", "SEE ALSO"])
    with open(ROOT + "/docs/openapi.json") as f:
        api = json.load(f)
    for path, methods in api["paths"].items():
        for method in methods:
            check(f"{method.upper()} {path}\n" in text, method, path)
    for field in api["components"]["schemas"]["ChatRequest"]["properties"]:
        check(re.search(rf"\b{field}\b", text, re.M), field)


def test_all_is_installed():
    stage = os.path.join(TMP.name, "stage")
    for mandir, datadir in ("share/man", "share"), ("/usr/share/man", "/usr/share"):
        r = subprocess.run([ROOT + "/tools/install-texts", QUERN, mandir, datadir, "1.2"], capture_output=True, text=True, timeout=LIMIT,
                           env={**ENV, "DESTDIR": stage, "MESON_INSTALL_DESTDIR_PREFIX": stage + "/usr"})
        check(r.returncode == 0 and not r.stderr, r.stderr)
        there = {os.path.relpath(os.path.join(at, f), stage + "/usr/share") for at, _, files in os.walk(stage) for f in files}
        subprocess.run([ROOT + "/tools/make-library-pages", ROOT + "/include/quern.h", "1.2", TMP.name + "/man3"], check=True)
        want = {f"man/man{page[-1]}/{page}" for page in quern("manual", "--roff").split()} | {
            f"man/man3/{page}" for page in os.listdir(TMP.name + "/man3")} | {
            "man/man7/quern-api.7", "bash-completion/completions/quern", "zsh/site-functions/_quern",
            "fish/vendor_completions.d/quern.fish"}
        check(there == want, there ^ want)
        for name in there:
            check(stat.S_IMODE(os.stat(os.path.join(stage, "usr/share", name)).st_mode) == 0o644, name)
        shutil.rmtree(stage)


# ---- completion ----

def script(shell):
    path = os.path.join(TMP.name, "script." + shell)
    if not os.path.exists(path):
        with open(path, "w") as f:
            f.write(quern("completion", shell))
    return path


def test_shells_can_read_the_scripts():
    for shell in "bash", "zsh", "fish":
        r = subprocess.run([shell, "-n", script(shell)], env=ENV, capture_output=True, text=True, timeout=LIMIT)
        check(r.returncode == 0 and not r.stderr, shell, r.stderr)


def bash(line, **env):
    """What bash offers for the last word."""
    code = f'source {script("bash")}; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _quern quern; printf "%s\\n" "${{COMPREPLY[@]}}"'
    words = [part for word in line.split(" ") for part in ([p for p in re.split("(=)", word) if p] or [""])]  # as COMP_WORDBREAKS does
    r = subprocess.run(["bash", "--norc", "-c", code, "bash", *words], env={**ENV, **env}, cwd=HERE, capture_output=True, text=True,
                       timeout=LIMIT)
    check(r.returncode == 0 and not r.stderr, words, r.stderr)
    return set(r.stdout.split("\n")) - {""}


def fish(line, **env):
    r = subprocess.run(["fish", "--no-config", "-c", f"source {script('fish')}; complete -C {json.dumps(line)}"], env={**ENV, **env},
                       cwd=HERE, capture_output=True, text=True, timeout=LIMIT)
    check(r.returncode == 0 and not r.stderr, line, r.stderr)
    return {line.split("\t")[0] for line in r.stdout.split("\n")} - {""}


def zsh(line, **env):
    """What an interactive zsh makes of the line when the tab key is pressed."""
    t = Terminal(["zsh", "-f", "-i"], 200, **env)
    t.write("PS1=; unset zle_bracketed_paste; autoload -Uz compinit; compinit -D -u; source " + script("zsh") + "\n"
            "show() { BUFFER=\"print -r -- 'li''ne<$BUFFER>'\"; zle accept-line }; zle -N show; bindkey '^X' show; print rea''dy\n")
    t.read("ready")
    t.write(line + "\t\x18")
    found = t.read(r"line<(.*)>")
    t.write("exit\n")
    t.read()
    t.close()
    return found and found[1]


def readline(line, **env):
    """What an interactive bash makes of the line when the tab key is pressed."""
    t = Terminal(["bash", "--norc", "--noprofile", "-i"], 200, INPUTRC="/dev/null", **env)
    t.write("bind 'set enable-bracketed-paste off'; PS1=; source " + script("bash") + "; echo rea''dy\n")
    t.read("ready")
    t.write(line + "\t\x01echo '<\x05>'\n")  # to the line's beginning, and its end
    found = t.read("(?m)^<(.*)>$")
    t.write("exit\n")
    t.read()
    t.close()
    return found and found[1]


def test_files_are_completed_in_bash():
    open(os.path.join(HERE, "weights two.gguf"), "w").close()
    try:
        for line, want in {"quern ser": "quern serve ", "quern serve --tls-cert weights.g": "quern serve --tls-cert weights.gguf ",
                           "quern run weights\\ ": "quern run weights\\ two.gguf ", "quern run weights.d": "quern run weights.d/",
                           "quern serve --cache-dir weights": "quern serve --cache-dir weights.d/",
                           "quern run --kv=q": "quern run --kv=q8_0 ", "quern run --seed w": "quern run --seed w"}.items():
            got = readline(line)
            check(got == want, line, got)
    finally:
        os.remove(os.path.join(HERE, "weights two.gguf"))


def test_commands_are_completed():
    for offers in bash, fish:
        check(offers("quern ser") == {"serve"}, offers)
        check(offers("quern ") >= set(COMMANDS), offers, offers("quern "))
        check("complete" not in offers("quern co"), offers)
        check(offers("quern --versi") == {"--version"}, offers, offers("quern --versi"))
        check(offers("quern help ser") == offers("quern manual ser") == {"serve"}, offers)


def test_options_are_completed():
    for c in COMMANDS:
        for offers in bash, fish:
            check(offers(f"quern {c} --") == {"--" + name for _, name in options(c)}, offers, c, offers(f"quern {c} --"))
    for offers in bash, fish:
        check(offers("quern serve --tls-c") == {"--tls-cert"}, offers)
        check("--tls-cert" not in offers("quern check --"), offers)


def test_values_are_completed():
    for offers in bash, fish:
        check(offers("quern run --kv f") == {"f16", "f32"}, offers, offers("quern run --kv f"))
        check(offers("quern run --kv=q") in ({"q8_0"}, {"--kv=q8_0"}), offers, offers("quern run --kv=q"))
        check(offers("quern run --seed ") == set(), offers, "there is no telling a seed")
        check(offers("quern completion ") == {"bash", "zsh", "fish"}, offers)
        check(offers("quern run weights.g") == {"weights.gguf"}, offers, offers("quern run weights.g"))
    check(fish("quern serve --tls-cert weights.g") == {"weights.gguf"}, "a file")
    check(fish("quern serve --cache-dir weights.") == {"weights.d/"}, "a folder")
    check(bash("quern run --kv =") == bash("quern run --kv=") == {"f16", "f32", "q8_0"}, "behind the sign")


def test_models_and_personas_are_completed():
    models = os.path.join(TMP.name, "models")
    os.mkdir(models)
    hostile = ["two words", "a'quote", 'a"quote', "$(touch owned)", "`touch owned`", "a;b", "a\nb", "a\033[31mb", "-option", "a*", "a|b",
               "a\\b", "caf\u00e9", "#a", "~a", "a&b", "a(b", "a{b", "a=b", "a:b"]
    for name in hostile + ["zephyr-7b.Q4_K_M", "zebra"]:
        shutil.copyfile(ROOT + "/models/stories15M-q8_0.gguf", os.path.join(models, name + ".gguf"))
    config = os.path.join(TMP.name, "config.toml")
    with open(config, "w") as f:
        f.write('[persona.reviewer]\n[persona."two words"]\n[persona.translate-de]\n[run]\ntemperature = 0.5\n')
    env = {"QUERN_MODELS": models, "QUERN_CONFIG": config}
    check(quern("complete", "models", **env) == "zebra\nzephyr-7b.Q4_K_M\n", quern("complete", "models", **env))
    check(set(quern("complete", "personas", **env).split("\n")) >= {"reviewer", "translate-de"}, quern("complete", "personas", **env))
    for offers in bash, fish:
        check(offers("quern -p rev", **env) == offers("quern ask --persona rev", **env) == {"reviewer"}, offers)
        check("zebra" in offers("quern -m z", **env), offers, offers("quern -m z", **env))
        check("--persona" in offers("quern --pers"), offers, offers("quern --pers"))
    for line, want in {"quern @rev": "quern @reviewer ", "quern ask -q @rev": "quern ask -q @reviewer "}.items():
        check(readline(line, **env) == zsh(line, **env) == want, line, readline(line, **env), zsh(line, **env))
        check(fish(line, **env) == {"@reviewer"}, line, fish(line, **env))
    check(bash("quern @", **env) > {"@reviewer", "@translate"} and not bash("quern run @", **env), "all personas")
    check("two" not in quern("complete", "personas", **env), "a persona that is no word")
    check(bash("quern run z", **env) == {"zebra", "zephyr-7b.Q4_K_M"}, bash("quern run z", **env))
    check(fish("quern run z", **env) == {"zebra", "zephyr-7b.Q4_K_M"}, fish("quern run z", **env))
    check(zsh("quern run zep", **env) == "quern run zephyr-7b.Q4_K_M ", zsh("quern run zep", **env))
    for offers in bash, fish:
        check(offers("quern run ", **env) >= {"zebra", "weights.gguf"}, offers, offers("quern run ", **env))
    check(not os.path.exists(os.path.join(HERE, "owned")), "a name was run")
    for broken in {"QUERN_MODELS": "/no/such/folder"}, {"QUERN_CONFIG": "/no/such/file"}:
        check(bash("quern run weights.g", **broken) == {"weights.gguf"}, broken)
        check(fish("quern run weights.g", **broken) == {"weights.gguf"}, broken)


def test_zsh_completes():
    for line, want in {"quern serv": "quern serve ", "quern run --tempera": "quern run --temperature=",
                       "quern run --kv q": "quern run --kv q8_0 ", "quern run weights.g": "quern run weights.gguf ",
                       "quern serve --cache-dir weights": "quern serve --cache-dir weights.d/",
                       "quern completion z": "quern completion zsh ", "quern help ser": "quern help serve "}.items():
        got = zsh(line)
        check(got == want, line, got)


run(globals())
