#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_package.py: tests the packages that tools/package makes, by installing and using them.

    test_package.py SOURCE_ROOT BUILD_ROOT MODEL CHAT_MODEL [PREFIX_OF_CASES]

The packages are made of the files that BUILD_ROOT has compiled. The Debian packages are installed, used and purged in
an overlay of this machine's files, in a mount namespace of its own, so nothing is left behind. That needs root; without
it, those cases say so.
"""
import glob
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile

from lib.cases import Skipped, check, run
from lib.files import path

SOURCE, BUILD, MODEL, CHAT = map(os.path.abspath, sys.argv[1:5])
OUT = os.path.join(SOURCE, "build", "package")
HELLO = "Grüße! 😀 What can I do?"  # of the chat model (make-parrot), whatever it is asked
LIMIT = 500  # seconds for one program
ENV = {**os.environ, "LC_ALL": "C.UTF-8"}


def call(*command, cwd=SOURCE, env=ENV, text=True, **popen):
    return subprocess.run(command, cwd=cwd, env=env, text=text, capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
                          **popen)


def output_of(*command, **popen):
    r = call(*command, **popen)
    check(r.returncode == 0, command, r.returncode, r.stdout[-2000:], r.stderr[-2000:])
    return r.stdout


def sums(files):
    return {os.path.basename(f): hashlib.sha256(open(f, "rb").read()).hexdigest() for f in files}


def read_sources(suffix):
    for directory, _, names in os.walk(os.path.join(SOURCE, "src")):
        for name in names:
            if name.endswith(suffix):
                with open(os.path.join(directory, name)) as f:
                    yield f.read()


def is_git():
    return call("git", "rev-parse", "--git-dir").returncode == 0


def made(what, *build):
    """The files that tools/package names when it makes `what`; made once."""
    if what not in made.files:
        r = call(os.path.join(SOURCE, "tools/package"), what, *build)
        if r.returncode != 0:
            raise RuntimeError(f"tools/package {what}: {r.returncode}: {r.stderr[-3000:]}")
        made.files[what] = r.stdout.split()
    return made.files[what]


made.files = {}


def debs():
    return made("deb", BUILD)


def unpacked():
    """The files of all Debian packages in one folder."""
    root = path("unpacked")
    if not os.path.exists(root):
        for f in debs():
            output_of("dpkg-deb", "-x", f, root)
    return root


# ---- Debian packages ----


def test_the_packages_are_made_and_the_tree_stays_as_it_is():
    before = output_of("git", "status", "--porcelain") if is_git() else ""
    names = sorted(os.path.basename(f).split("_")[0] for f in debs())
    check(names == ["libquern-dev", "libquern0", "quern", "quern-cluster", "quern-models"], names)
    check((output_of("git", "status", "--porcelain") if is_git() else "") == before, "the tree has changed")


def test_the_same_tree_makes_the_same_bytes():
    first = sums(debs())
    del made.files["deb"]
    check(sums(debs()) == first, first, sums(debs()))


def test_lintian_finds_nothing():
    changes = glob.glob(os.path.join(OUT, "deb", "*.changes"))
    r = call("lintian", *(["--allow-root"] if os.geteuid() == 0 else []), *changes)
    check(r.returncode == 0, r.returncode, r.stderr)
    check(not re.search(r"^[EW]: ", r.stdout, re.M), r.stdout)


def test_every_version_is_that_of_meson_build():
    with open(os.path.join(SOURCE, "meson.build")) as f:
        version = re.search(r"version: '(.+)'", f.read())[1]
    for f in debs():
        check(output_of("dpkg-deb", "-f", f, "Version").strip() == version, f)
    said = output_of(os.path.join(unpacked(), "usr/bin/quern"), "--version")
    check(said.startswith(f"quern {version} "), said)


def test_building_needs_what_install_deps_says():
    with open(os.path.join(SOURCE, "dist/debian/control")) as f:
        wanted = re.search(r"^Build-Depends:(.*(?:\n .*)*)", f.read(), re.M)[1]
    given = {re.split(r"[ (:]", w.strip())[0] for w in wanted.split(",")}
    needs = output_of("bash", "-c", ". tools/install-deps; echo ${deps_build[@]}").split()
    check(set(needs) - {"gcc", "libc6-dev"} <= given, set(needs) - given)


def test_libraries_that_are_opened_are_recommended():
    wanted = output_of("dpkg-deb", "-f", next(f for f in debs() if "/quern_" in f), "Recommends", "Suggests")
    for text in read_sources(".c"):
        for name, number in re.findall(r'"(lib[\w+-]+)\.so\.(\d+)"', text):
            check(re.search(rf"\b{name}{number}\b", wanted), name, number, "is not among", wanted)


def pages():
    return sorted(glob.glob(os.path.join(unpacked(), "usr/share/man/man*/*")))


def test_manual_pages_are_set_without_warnings():
    names = [os.path.basename(p) for p in pages()]
    check({"quern.1.gz", "quern-run.1.gz", "quern.toml.5.gz", "quern-api.7.gz"} <= set(names), names)
    for p in pages():
        r = call("man", "--warnings", "--encoding=UTF-8", "-l", p, env={**ENV, "MANROFFSEQ": "", "MANWIDTH": "80"})
        check(r.returncode == 0 and not r.stderr and len(r.stdout) > 500, p, r.stderr, r.stdout[:200])


def test_completions_can_be_read_by_their_shells():
    for shell, name in (("bash", "bash-completion/completions/quern"), ("zsh", "zsh/vendor-completions/_quern"),
                        ("fish", "fish/vendor_completions.d/quern.fish")):
        script = os.path.join(unpacked(), "usr/share", name)
        check(os.path.isfile(script), "no", name)
        r = call(shell, "-n", script)
        check(r.returncode == 0 and not r.stderr, r)


# ---- installed ----

# The script's standard output goes to a case; the packages lie in /tmp/debs. Each line "= NAME" starts what NAME has found.
INSTALL = r"""
set -e
cd /tmp
export HOME=/root DEBIAN_FRONTEND=noninteractive
dpkg -i debs/*.deb > log 2>&1 || { cat log; exit 1; }
echo '= user'; getent passwd quern; stat -c '%U %G %a' /var/lib/quern
echo '= units'; systemctl --root=/ is-enabled quern.service quern.socket || true
systemctl --root=/ --global is-enabled quern.service quern.socket || true
echo '= manual'; man -w quern quern-serve quern.toml quern-api
echo '= settings'; dpkg-query -W -f '${Conffiles}\n' quern
echo '= ask'
cp model.gguf /var/lib/quern/model.gguf; chown quern: /var/lib/quern/model.gguf
setpriv --reuid quern --regid quern --clear-groups quern run -n 5 --temp 0 /var/lib/quern/model.gguf 'Once upon'
echo; echo '= own'
cat > own.c <<'C'
#include <quern.h>
#include <stdio.h>
int main(void)
{
    printf("with %s\n", qn_version());
    return 0;
}
C
gcc -Wall -Werror own.c -o own $(pkg-config --cflags --libs quern); ./own
echo '= tutorial'
mkdir -p home srv; chown -R nobody home
newcomer() { setpriv --reuid nobody --clear-groups env -i PATH="$PATH" HOME=/tmp/home quern "$@" 2>&1; }
cd /usr/share/quern
newcomer run models/stories15M-q8_0.gguf --greedy -n 12 "Once upon a time"; echo
newcomer check models/tiny-draft-q8_0.gguf
newcomer start models/tiny-base-q8_0.gguf | sed 's/pid [0-9]*/pid/'
newcomer "$(printf 'Make a table of name, city:\nHugo, Rome')"
newcomer stop
cd /tmp
echo '= newcomer'
mkdir home/run; mv chat.gguf srv/m.gguf; chown -R nobody home
python3 -c '
import functools, http.server
h = functools.partial(http.server.SimpleHTTPRequestHandler, directory="srv")
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), h)
open("port.new", "w").write(str(s.server_port))
__import__("os").rename("port.new", "port")
s.serve_forever()' > /dev/null 2>&1 &
server=$!
while [ ! -e port ] && kill -0 $server; do sleep 0.05; done
newcomer() { setpriv --reuid nobody --clear-groups env -i PATH="$PATH" HOME=/tmp/home XDG_RUNTIME_DIR=/tmp/home/run quern "$@" 2>&1; }
newcomer pull "http://127.0.0.1:$(cat port)/m.gguf"
kill $server
newcomer models | awk '{ print $2 }'
newcomer "Say hello."
newcomer start > started || cat started
newcomer ps | awk '/^m / { print $2 }'
echo "Say hello." | newcomer -p summarize
echo "Say hello." | newcomer chat
newcomer stop > stopped || cat stopped
newcomer rm --yes m
ls home/models
echo '= again'
echo 'QUERN_OPTIONS=--parallel 2' > /etc/quern/quern.env
dpkg -i debs/*.deb > log 2>&1 || { cat log; exit 1; }
cat /etc/quern/quern.env
echo '= removed'
install -d -o quern /var/cache/quern; touch /var/cache/quern/x
dpkg --remove quern quern-cluster > log 2>&1 || { cat log; exit 1; }
ls /var/lib/quern /etc/quern
echo '= purged'
dpkg --purge quern quern-models libquern-dev libquern0 > log 2>&1 || { cat log; exit 1; }
grep -i warning log || true
grep -c "models in /var/lib/quern stay" log
ls /var/lib/quern
dpkg -i debs/*.deb > log 2>&1 || { cat log; exit 1; }
QUERN_PURGE_MODELS=yes dpkg --purge quern quern-cluster quern-models libquern-dev libquern0 > log 2>&1 || { cat log; exit 1; }
grep -i warning log || true
"""

OVERLAY = r"""
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs none "$1/root/run"
mount -t tmpfs none "$1/root/tmp"
mkdir "$1/root/tmp/debs"
cp "$3" "$1/root/tmp/model.gguf"
cp "$4" "$1/root/tmp/chat.gguf"
cp "$2" "$1/root/tmp/install"
shift 4
cp "$@" "$OVERLAY_ROOT/root/tmp/debs"
chroot "$OVERLAY_ROOT/root" sh /tmp/install
find "$OVERLAY_ROOT/upper" -iname '*quern*' -printf '%P\n'
"""


# Its own mounts, and processes that end with it.
NAMESPACE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]


def installed():
    """What INSTALL found, by name."""
    if installed.found is None:
        os.makedirs(path("overlay"), exist_ok=True)
        if os.geteuid() != 0 or call(*NAMESPACE, "mount", "-t", "tmpfs", "none", path("overlay")).returncode != 0:
            raise Skipped("no right to mount")
        if call("dpkg-query", "-W", "quern").returncode == 0:
            raise Skipped("quern is installed on this machine")
        with open(path("install"), "w") as f:
            f.write(INSTALL)
        said = output_of(*NAMESPACE, "sh", "-c", OVERLAY, "sh", path("overlay"), path("install"), MODEL, CHAT, *debs(), cwd="/",
                         env={**ENV, "OVERLAY_ROOT": path("overlay")})
        parts = re.split(r"^= (\w+)\n", said, flags=re.M)[1:]
        installed.found = dict(zip(parts[::2], parts[1::2]))
    return installed.found


installed.found = None


def test_installing_makes_the_user_and_its_directory_and_starts_nothing():
    found = installed()
    check(re.fullmatch(r"quern:x:\d+:\d+:Quern language models:/var/lib/quern:/usr/sbin/nologin\nquern quern 750\n", found["user"]),
          found["user"])
    check(found["units"].split() == ["disabled", "disabled", "indirect", "disabled"], found["units"])


def test_man_finds_the_pages():
    names = ["1/quern.1", "1/quern-serve.1", "5/quern.toml.5", "7/quern-api.7"]
    check(installed()["manual"].split() == [f"/usr/share/man/man{n}.gz" for n in names], installed()["manual"])


def test_the_installed_program_answers():
    check(len(installed()["ask"].split()) >= 3, installed()["ask"])


def test_the_tutorial_runs_where_the_models_are_installed():
    """As another user, in a session that has no runtime folder."""
    check(installed()["tutorial"] == """, there was a little girl named Lily. She loved
models/tiny-draft-q8_0.gguf: ok (35 tensors, 27 metadata keys, 233.0 KiB)
quern: the daemon runs: pid, /tmp/home/.cache/quern/quern.sock
quern: its log: /tmp/home/.local/state/quern/serve.log
| name | city |
|---|---|
| Hugo | Rome |
""", installed()["tutorial"])


def test_a_newcomer_gets_a_model_asks_serves_chats_and_removes_it():
    lines = installed()["newcomer"].splitlines()
    check(lines[0] == "/tmp/home/models/m.gguf", lines)
    check(lines[1:] == ["FAMILY", "m", HELLO, "loaded", HELLO, HELLO], "and nothing is left", lines)


def test_a_program_is_compiled_with_the_development_package():
    check(re.fullmatch(r"with \d+\.\d+\.\d+.*\n", installed()["own"]), installed()["own"])


def test_settings_survive_an_update_and_a_removal():
    found = installed()
    check("/etc/quern/quern.env" in found["settings"], found["settings"])
    check(found["again"] == "QUERN_OPTIONS=--parallel 2\n", found["again"])
    check(found["removed"].split() == ["/etc/quern:", "quern.env", "/var/lib/quern:", "model.gguf"], found["removed"])


def test_a_purge_keeps_the_models_unless_it_is_told():
    check(installed()["purged"] == "1\nmodel.gguf\n", installed()["purged"])


def test_the_documents_that_the_installed_ones_name_are_there():
    root = os.path.join(unpacked(), "usr/share/doc/quern")
    for name in ["README.md", *(f"docs/{f}" for f in os.listdir(root + "/docs") if f.endswith(".md"))]:
        with open(os.path.join(root, name)) as f:
            for link in re.findall(r"\]\(((?:docs/)?[A-Z]+\.md|docs/[a-z]+\.(?:txt|json)|(?:docs/)?pictures/[a-z]+\.svg)[)#]", f.read()):
                at = os.path.normpath(os.path.join(root, os.path.dirname(name), link))
                check(os.path.exists(at) or link == "CONTRIBUTING.md", name, link)


# ---- tarballs ----


def test_the_source_tarball_has_the_tracked_files():
    if not is_git():
        raise Skipped("no git repository")
    file, = made("dist")
    first = sums([file])
    del made.files["dist"]
    check(sums(made("dist")) == first, "other bytes")
    with tarfile.open(file) as t:
        names = {m.name.split("/", 1)[1] for m in t if not m.isdir()}
    check(names == set(output_of("git", "ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")) - {""}, "files")


def static():
    file, = made("static", BUILD)
    with tarfile.open(file) as t:
        t.extractall(path("static"))
    folder, = glob.glob(path("static/*"))
    return folder


def test_the_static_tarball_needs_only_what_it_says():
    program = os.path.join(static(), "quern")
    needs = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", program))
    check(set(needs) <= {"libm.so.6", "libc.so.6", "libgnutls.so.30", "ld-linux-x86-64.so.2"}, needs)
    symbols = output_of("readelf", "--version-info", program)
    newest = max(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d[\d.]*)", symbols))
    check(newest <= (2, 36), newest)
    check(output_of(program, "--version").startswith("quern "), "runs")
    check(len(os.listdir(os.path.join(static(), "licences"))) == 5, os.listdir(os.path.join(static(), "licences")))


# ---- the bill of materials ----


def check_sbom(d, kinds):
    """That d is SPDX 2.3 as far as its rules reach, and says what each library is."""
    check((d["spdxVersion"], d["dataLicense"], d["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"), "head")
    check(re.match(r"[a-z]+:", d["documentNamespace"]) and "#" not in d["documentNamespace"], d["documentNamespace"])
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", d["creationInfo"]["created"]), d["creationInfo"])
    check(all(re.match(r"(Tool|Organization|Person): ", c) for c in d["creationInfo"]["creators"]), d["creationInfo"])
    ids = [e["SPDXID"] for e in (d, *d["packages"], *d["files"])]
    check(len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", i) for i in ids), "ids")
    for p in d["packages"]:
        check({"name", "downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText", "versionInfo"} <= set(p), p)
    for r in d["relationships"]:
        check(r["spdxElementId"] in ids and r["relatedSpdxElement"] in ids, r)
    quern = d["packages"][0]
    check(set(quern["hasFiles"]) == {f["SPDXID"] for f in d["files"]}, "files")
    check(("SPDXRef-DOCUMENT", "DESCRIBES", quern["SPDXID"]) in
          {(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in d["relationships"]}, "describes")
    ones = []
    for f in d["files"]:
        with open(os.path.join(SOURCE, f["fileName"]), "rb") as source:
            data = source.read()
        ones.append(hashlib.sha1(data).hexdigest())
        check([c["checksumValue"] for c in f["checksums"]] == [ones[-1], hashlib.sha256(data).hexdigest()], f)
        check(f["licenseConcluded"] == "MIT" or f["fileName"] in ("./LICENSE", "./NOTICE"), f)
    code = hashlib.sha1("".join(sorted(ones)).encode()).hexdigest()
    check(quern["packageVerificationCode"]["packageVerificationCodeValue"] == code, "verification code")
    known = {p["name"]: p for p in d["packages"]}
    for kind, names in kinds.items():
        related = {e for r in d["relationships"] if r["relationshipType"] == kind for e in (r["spdxElementId"], r["relatedSpdxElement"])}
        check({p["name"] for p in d["packages"][1:] if p["SPDXID"] in related} == set(names), kind, names)
        for n in names:
            check(known[n]["versionInfo"] != "NOASSERTION" and known[n]["externalRefs"], known[n])
            check(known[n]["licenseDeclared"] != "NOASSERTION" or re.match(r"lib(c|m|gnutls)\.", n), known[n])


def test_the_bill_of_materials_names_every_file_and_library():
    with gzip.open(os.path.join(unpacked(), "usr/share/doc/quern/quern.spdx.json.gz")) as f:
        d = json.load(f)
    needs = re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", os.path.join(unpacked(), "usr/bin/quern")))
    check_sbom(d, {"DYNAMIC_LINK": needs})
    with open(os.path.join(static(), "quern.spdx.json")) as f:
        check_sbom(json.load(f), {"STATIC_LINK": ["lib" + n + ".a" for n in (
            "jansson", "seccomp", "pcre2-8", "utf8proc", "xxhash")]})


run(globals(), sys.argv[5] if sys.argv[5:] else "test_")
