#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_config.py: tests the configuration file: its place, its contents, which setting wins, and `quern config`.

    test_config.py QUERN SLOWNESS
"""
import os
import subprocess
import sys
import tomllib

from lib.cases import SANITIZERS, Skipped, check, run
from lib.files import TMP, path, written

QUERN, SLOWNESS = sys.argv[1], float(sys.argv[2])


def quern(*args, **environment):
    """Runs it with these variables and no others; keyword XDG is for XDG_CONFIG_HOME."""
    named = {"XDG_CONFIG_HOME" if k == "XDG" else k: v for k, v in environment.items()}
    return subprocess.run([QUERN, *args], env=SANITIZERS | named, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60 * SLOWNESS)


def shown(*args, **environment):
    """What `quern config ARGS` prints: the values that are set, and the text."""
    p = quern("config", *args, **environment)
    check(p.returncode == 0 and not p.stderr, args, environment, p)
    text = p.stdout.decode()
    return {k: v for k, v in tomllib.loads(text).items() if v != {}}, text


def refused(text, message, *args, status=78):
    p = quern(*(args or ("config",)), QUERN_CONFIG=written("c.toml", text))
    want = f"quern: {path('c.toml')}{message}\n"
    check(p.returncode == status and p.stderr.decode() == want and not p.stdout, text, p, "expected", want)


def test_the_first_file_that_exists_is_read():
    home, xdg = path("home"), path("xdg")
    if os.path.exists("/etc/quern/config.toml"):
        raise Skipped("this machine has an /etc/quern/config.toml")
    check(shown()[0] == {}, "no HOME, no file")
    check(shown(HOME=home)[0] == {}, "no file in HOME")
    h = written("home/.config/quern/config.toml", "[serve]\nctx = 1")
    x = written("xdg/quern/config.toml", "[serve]\nctx = 2")
    own = written("own.toml", "[serve]\nctx = 3")
    flag = written("flag.toml", "[serve]\nctx = 4")
    for ctx, where, args, variables in [
            (1, h, [], {"HOME": home}), (2, x, [], {"HOME": home, "XDG": xdg}), (2, x, [], {"XDG": xdg}),
            (1, h, [], {"HOME": home, "XDG": "relative"}), (1, h, [], {"HOME": home, "XDG": ""}),
            (3, own, [], {"HOME": home, "XDG": xdg, "QUERN_CONFIG": own}),
            (4, flag, ["--config", flag], {"HOME": home, "QUERN_CONFIG": own}),
            (4, flag, ["serve", "--config", flag], {"QUERN_CONFIG": own})]:
        values, text = shown(*args, **variables)
        check(values == {"serve": {"ctx": ctx}}, args, variables, values)
        check(f"# {where}:2\n" in text and text.startswith(f"# {where}\n"), where, text)
    for args, variables in [([], {"HOME": home, "QUERN_CONFIG": ""}), (["--config", ""], {"HOME": home}),
                            ([], {"XDG": home})]:
        values, text = shown(*args, **variables)
        check(values == {} and text.startswith("# no configuration file\n"), args, variables, text)


def test_a_named_file_must_be_readable():
    for args, variables in [(["check", "x"], {"QUERN_CONFIG": path("none.toml")}),
                            (["check", "--config", path("none.toml"), "x"], {})]:
        p = quern(*args, **variables)
        want = f"quern: configuration: cannot open '{path('none.toml')}': No such file or directory\n"
        check(p.returncode == 78 and p.stderr.decode() == want, p)
    p = quern("config", QUERN_CONFIG=TMP.name)
    check(p.returncode == 78 and p.stderr.decode() == f"quern: configuration: '{TMP.name}' is not a regular file\n", p)
    os.makedirs(path("loop/quern"), exist_ok=True)
    if not os.path.lexists(path("loop/quern/config.toml")):
        os.mkdir(path("loop/quern/config.toml"))  # it exists, and nobody can read it as a file, root neither
    p = quern("config", XDG=path("loop"))
    check(p.returncode == 78 and b"is not a regular file" in p.stderr and p.stderr.count(b"\n") == 1, p)
    p = quern("config", QUERN_CONFIG=written("long.toml", b"#" * (1 << 20) + b"\n"))
    check(p.returncode == 78 and p.stderr.count(b"\n") == 1 and b"too long" in p.stderr, p)


def test_help_needs_no_configuration():
    p = quern("serve", "--help-all", QUERN_CONFIG=path("none.toml"))
    check(p.returncode == 0 and b"--config FILE" in p.stdout and not p.stderr, p)


def test_errors_name_file_line_and_key():
    refused("\n[serve]\nctxx = 1", ":3: unknown key 'ctxx' in [serve] (did you mean 'ctx'?)")
    refused("[serve]\ntop_k = 1", ":2: unknown key 'top_k' in [serve]")
    refused("[run]\ntop_k = 1", ":2: unknown key 'top_k' in [run] (did you mean 'top-k'?)")
    refused("[run]\ntemprature = 1", ":2: unknown key 'temprature' in [run] (did you mean 'temperature'?)")
    refused("qqqqqqq = 1", ":1: unknown key 'qqqqqqq'")
    refused("\n[srve]", ":2: unknown table 'srve' (did you mean 'serve'?)")
    refused("[persona]\nx = 1", ":2: unknown key 'x' in [persona]")
    refused("[personas.x]", ":1: unknown table 'personas' (did you mean 'persona'?)")
    refused("[serve.x]", ":1: unknown table 'x': there are none in [serve]")
    refused("[persona.a.b]", ":1: unknown table 'b': there are none in [persona.a]")
    refused("[serve]\nctx = 1\nctx = 2", ":3: key 'ctx': stands in line 2 already")
    refused("[serve]\nctx = '", ":2: key 'ctx': the string has no ' that closes it")
    refused("[serve]\nctx = {}", ":2: key 'ctx': inline tables { } are not supported; a [table] says the same")
    refused(b"a = '\xff'", ":1: byte 0xFF is not UTF-8")
    refused("[serve]\n'c\x1b[2J' = 1", ":2: control character 0x1B")


def test_errors_about_values():
    refused("[serve]\nctx = 'x'", ":2: ctx: this is a whole number, not a string")
    refused("[serve]\nctx = 1.0", ":2: ctx: this is a whole number, not a number")
    refused("[serve]\nctx = 0", ":2: ctx: '0' is not a whole number in 1..268435456")
    refused("[serve]\nlog = 1", ":2: log: this is true or false, not a whole number")
    refused("[serve]\nmemory = true", ':2: memory: this is a size such as "6G", not true or false')
    refused("[serve]\nmemory = '6X'", ":2: memory: '6X' is not a size such as 6G, 5.5G or 500M")
    refused("[serve]\nlisten = 'x'", ":2: listen: this is an array of strings, not a string")
    refused("[serve]\nlisten = ['x', 1]", ":2: listen: a whole number is among the strings")
    refused("[serve]\nkv = 'f64'", ":2: kv: 'f64' is not one of f16|f32|q8_0")
    refused("[serve]\nname = 1", ":2: name: this is a string, not a whole number")
    refused("[run]\ntemperature = inf", ":2: temperature: 'inf' is not a number")
    refused("[run]\nseed = -1", ":2: seed: '-1' is not a whole number or random")
    p = quern("check", "--config", written("c.toml", "[serve]\nctx = 0"), path("none"))
    check(p.returncode == 66, "values of other commands are theirs", p)


def test_flags_win_then_variables_then_the_file():
    c = written("win.toml", "[serve]\nctx = 1\nparallel = 2\nqueue = 3\nlisten = ['a']\nmemory = '1.5G'\nhost = []\n"
                         "kv = 'q8_0'\n"
                         "[run]\ntemperature = 0\ntop-p = 0.7\nseed = 5\nstop = [\"\\n\", '\u00e9']\n")
    values, text = shown("serve", "--ctx", "9", "-l", "b", "--listen=c", QUERN_CONFIG=c, QUERN_SERVE_CTX="8",
                         QUERN_SERVE_QUEUE="7", QUERN_SERVE_LOG="1", QUERN_SERVE_MLOCK="0")
    check(values == {"serve": {"ctx": 9, "parallel": 2, "queue": 7, "listen": ["b", "c"], "memory": "1536M", "host": [],
                               "kv": "q8_0", "log": True, "mlock": False}}, values)
    for line in ["ctx = 9 # --ctx", "queue = 7 # QUERN_SERVE_QUEUE", f"parallel = 2 # {c}:3", "# grace = 30 # default"]:
        check(line in [" ".join(x.split()) for x in text.split("\n")], line, text)
    values, text = shown(QUERN_CONFIG=c, QUERN_RUN_SEED="18446744073709551615")
    check(values["run"] == {"temperature": 0, "top-p": 0.7, "seed": "18446744073709551615", "stop": ["\n", "\u00e9"]},
          values)
    check(values["serve"]["ctx"] == 1, values)
    again = shown(QUERN_CONFIG=written("again.toml", text))[0]
    check(again == values, "its output is a configuration that says the same", again, values)


def test_a_path_may_begin_in_the_home():
    c = written("tilde.toml", "[serve]\napi-keys = '~/keys'\ncache-dir = '~x'\nname = '~/n'")
    check(shown(QUERN_CONFIG=c, HOME="/h")[0] == {"serve": {"api-keys": "/h/keys", "cache-dir": "~x", "name": "~/n"}})
    check(shown(QUERN_CONFIG=c)[0] == {"serve": {"api-keys": "~/keys", "cache-dir": "~x", "name": "~/n"}}, "no HOME")


def test_what_cannot_be_written_is_said():
    p = subprocess.run([QUERN.encode(), b"config", b"serve", b"--name", b"a\xff"], stdout=subprocess.PIPE,
                       env=SANITIZERS | {"QUERN_CONFIG": ""}, timeout=60 * SLOWNESS)
    check(p.returncode == 0 and b"# name # not UTF-8, which a configuration is, # but set by --name # " in b" ".join(p.stdout.split()), p)
    check("name" not in tomllib.loads(p.stdout.decode()).get("serve", {}), p)


def test_the_manual_s_example_is_one():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/CONFIG.md")) as f:
        example = f.read().split("```toml\n")[1].split("```")[0]
    values = shown(QUERN_CONFIG=written("example.toml", example), HOME="/h")[0]
    check(values["serve"]["ctx"] == 16384 and values["serve"]["api-keys"] == "/h/keys", values)


def test_commands_are_known():
    p = quern("config", "srve", QUERN_CONFIG="")
    check(p.returncode == 64 and p.stderr == b"quern: config: there is no command 'srve' (did you mean 'serve'?)\n", p)
    p = quern("config", "serve", "--help", QUERN_CONFIG="")
    check(p.returncode == 0 and p.stdout.startswith(b"usage: quern serve "), p)
    p = quern("config", "serve", "--ctx", "0", QUERN_CONFIG="")
    check(p.returncode == 64 and b"--ctx: '0'" in p.stderr, p)


run(globals())
