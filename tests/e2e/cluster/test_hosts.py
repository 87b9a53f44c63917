#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_hosts.py: tests a daemon whose model is computed by several hosts (quern serve --hosts), and what can happen to them.

    test_hosts.py [--all] QUERN STORY_MODEL CHAT_MODEL SLOWNESS QUERN_STAGE MODEL...

Without --all the cases of FOR_RELEASES are left out.

The hosts are namespaces on this machine (lib/nets.py). An agent takes the place of ssh. Answers are compared with those
of a daemon that computes the model itself, as bytes. test_stages.py describes the arguments.
"""
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(1, os.path.dirname(sys.path[0]))
from lib import nets
from lib.cases import Skipped, check, until
from lib.files import path, read

WHY_NOT = None if nets.INSIDE in os.environ else nets.impossible()
AGENT = None if WHY_NOT else nets.enter(sys.argv)

ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")
PREFIX = [sys.argv.pop()] if sys.argv[-1].startswith("test_") else []
import test_stages
from test_same import said
from test_serve import LIMIT, QUERN, SLOWNESS, Server, main
from test_stages import ASKS, SMALL, TEXT, Streamed, answers, command, end, lives

MODELS = test_stages.MODELS
sys.argv[5:] = PREFIX
hosts = []
BODY = {"prompt": TEXT, "max_tokens": 380, "temperature": 1, "seed": 3, "ignore_eos": True, "logprobs": 1}
expected = {}


def make_hosts():
    if WHY_NOT:
        raise Skipped(WHY_NOT)
    while len(hosts) < 3:
        hosts.append(nets.Host(len(hosts) + 1))


def serve(names, *more, model=MODELS[0]):
    """A daemon on host0 for these hosts, which are made if they are missing."""
    make_hosts()
    return Server(model, *SMALL, "--hosts", names, "--interface", "br0", "--launch-agent", AGENT, *more)


def alone(model=MODELS[0]):
    """What a daemon that computes itself says to BODY."""
    if model not in expected:
        server = Server(model, *SMALL)
        expected[model] = said(Streamed(server, BODY, lambda: None), True)
        end(server)
    return expected[model]


def all_of(*words):
    """Every process on this machine, of whatever host, whose command line begins with a program and words."""
    pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
    return [p for p in pids
            if [os.path.basename(w.decode()) for w in command(p)[:len(words)]] == list(words) and lives(p)]


def of_host(name, *words):
    """The same, for one host."""
    own = os.stat(f"/run/netns/{name}").st_ino
    return [p for p in all_of(*words) if os.stat(f"/proc/{p}/ns/net").st_ino == own]


def until_logged(server, n_before, text, seconds):
    """Waits for a new line of the log, and returns after how many seconds it came."""
    begin = time.monotonic()
    until(seconds * SLOWNESS, lambda: text in server.stderr()[n_before:], f"no '{text}':", server.stderr()[-1500:])
    return time.monotonic() - begin


def disturb(server, what, *args):
    """An answer during which something happens. Returns the seconds until it is noticed, and until all is well."""
    times = []

    def between():
        n = len(server.stderr())
        what(*args)
        times.append(until_logged(server, n, "the stages are lost", 2.5))
        times.append(times[0] + until_logged(server, n, "there again", 10))

    answer = Streamed(server, BODY, between)
    check(said(answer, True) == alone(), "another answer:", answer.body[-300:])
    print(f"    noticed after {times[0]:.2f} s, served again after {times[1]:.2f} s")
    return times


def close_all():
    while hosts:
        hosts.pop().close()


def test_hosts_give_the_bytes_of_one_process():
    lists = ["host1,host2", "localhost,host1", "host1,localhost,host2", "host1,host2,host3,host1", "host0,host1:2"]
    for model, names in zip(MODELS, lists):
        one = Server(model, *SMALL)
        wanted = answers(one)
        end(one)
        # Hosts that are busy by chance do not make one of them alone better.
        server = serve(names, "--log", "--only-hosts", model=model)
        n = sum(int((h + ":1").split(":")[1]) for h in names.split(",")) + names.startswith("host1")
        until(3 * SLOWNESS, lambda: len(all_of("quern-stage", "rank")) == n, names, "has not", n, "stages")
        for body, a, b in zip(ASKS * 2, answers(server), wanted):
            check(a == b, model, names, body, a, b)
        cut = re.findall(r"stage (\d) on \S+: layers (\d) to (\d), (\d+\.\d+) ms each", server.stderr())
        check(len(cut) == n - names.startswith("host1") and cut[0][1] == "0" and float(cut[0][3]) > 0, cut, server.stderr())
        check(all(int(a[2]) + 1 == int(b[1]) for a, b in zip(cut, cut[1:])), cut)
        if ":" not in names and len(set(names.split(","))) == n - 1:  # a door has none of its host's memory
            memory = [float(m) for m in re.findall(r"stage .* has (\d+\.\d) MB", server.stderr())]
            check(len(memory) == n - 1 and max(memory) < 1.5 * min(memory), memory)
        end(server)


def test_the_memory_of_the_daemons_host_does_not_limit_stages_elsewhere():
    """Each stage keeps more than the daemon may take altogether, even if it has one layer: a busy CPU may get no more."""
    server = serve("host1,host2", "--log", "--memory", "200M", "--kv-tokens", "450000")
    check(server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200, server.stderr())
    kept = [float(m) for m in re.findall(r"stage .*KV cache (\d+\.\d)\)", server.stderr())]
    check(len(kept) == 2 and min(kept) > 200, kept, server.stderr())
    end(server)


def wait_for_the_end_of_others():
    """Stages of the case before may live for some seconds after their daemon."""
    until(5 * SLOWNESS, lambda: not all_of("orted") + all_of("quern-stage"), "some run on from the cases before")


def test_a_killed_stopped_or_cut_off_stage_is_replaced():
    wait_for_the_end_of_others()
    server = serve("host1,host2")
    stages = "quern-stage", "rank"
    for what, find in ((signal.SIGKILL, lambda: of_host("host2", *stages)),
                       (signal.SIGSTOP, lambda: of_host("host1", *stages)),
                       (signal.SIGSTOP, lambda: of_host("host2", *stages)),
                       (signal.SIGSTOP, lambda: [p for p in all_of(*stages) if p not in
                                                 of_host("host1", *stages) + of_host("host2", *stages)]),
                       (signal.SIGKILL, lambda: all_of("mpirun"))):
        old = all_of(*stages)
        victims = find()
        check(len(victims) == 1, what, victims)
        noticed, served = disturb(server, os.kill, victims[0], what)
        check(noticed <= 2 * SLOWNESS, "noticed late", what, noticed)
        check(served <= noticed + 5 * SLOWNESS, "served late", what, served)
        until(3 * SLOWNESS, lambda: not any(map(lives, old)), "stages stay after", what)
    end(server)


def test_without_a_cable_this_host_computes():
    server = serve("host1,host2")
    noticed, served = disturb(server, lambda: hosts[1].cut())
    check(noticed <= 2 * SLOWNESS and served <= noticed + 5 * SLOWNESS, noticed, served)
    check("this one computes the model" in server.stderr(), "no fallback")
    hosts[1].join()
    until(4 * SLOWNESS, lambda: not of_host("host2", "quern-stage"), "a stage stays on the host that was cut off")
    check(said(Streamed(server, BODY, lambda: None), True) == alone(), "another answer later")
    end(server)


def test_requests_are_refused_while_no_host_answers_and_served_when_they_do():
    server = serve("host1,host2", "--only-hosts")
    refused = Streamed(server, BODY, lambda: hosts[1].cut())
    check(b"hosts:" in refused.body and b"unavailable" in refused.body, refused.body[-500:])
    begin = time.monotonic()
    reply = server.post("/v1/completions", BODY | {"max_tokens": 3})
    check(reply.status == 503 and reply.headers["Retry-After"], reply.status, reply.body)
    check(time.monotonic() - begin < 1 * SLOWNESS, "refused only after", time.monotonic() - begin)
    hosts[1].join()
    until(15 * SLOWNESS, lambda: server.post("/v1/completions", BODY | {"max_tokens": 3}).status == 200, "never again")
    check(said(Streamed(server, BODY, lambda: None), True) == alone(), "another answer later")
    end(server)


def cuts(server):
    """Which stages have which layers, as the log says. Busy CPUs make it differ."""
    return re.findall(r"stage \d on \S+ layers \d+ to \d+", server.stderr())


def test_stages_on_other_hosts_keep_their_pages_on_disk():
    """Also after one was killed while an answer ran; MODELS[2] has recurrent states."""
    folder = path("pages")
    for model in MODELS[0], MODELS[2]:
        start = lambda: serve("host1,host2", "--only-hosts", "--log", "--cache-dir", folder, model=model)
        wait_for_the_end_of_others()
        server = start()
        victim = of_host("host2", "quern-stage", "rank")[0]
        first = Streamed(server, BODY, lambda: os.kill(victim, signal.SIGKILL))
        check(said(first, True) == alone(model), model, "another answer:", first.body[-300:])
        answers, where = [server.post("/v1/completions", BODY) for _ in range(2)], cuts(server)
        end(server)
        server = start()
        answers.append(server.post("/v1/completions", BODY))
        same = cuts(server) == where
        end(server)
        check(all(said(a, False) == alone(model) for a in answers), model, [a.body[-300:] for a in answers])
        cached = answers[-1].json["usage"]["prompt_tokens_details"]["cached_tokens"]
        check(cached > 0 or not same, model, "nothing came back from disk", answers[-1].body[-300:])
        print("    the layers are", "where they were" if same else "elsewhere, because the hosts seem faster or slower than before")


def test_nothing_stays_on_any_host_after_the_daemon():
    for how in signal.SIGTERM, signal.SIGKILL:
        wait_for_the_end_of_others()
        server = serve("host1,host2")
        old = all_of("quern-stage") + all_of("mpirun") + all_of("orted")
        check(len(old) >= 6, "not all is there:", [command(p) for p in old])
        server.process.send_signal(how)
        server.process.wait(LIMIT)
        until(3 * SLOWNESS, lambda: not any(map(lives, old)), "stay after", how, [command(p) for p in old if lives(p)])


def test_a_host_with_another_model_is_refused_by_name():
    other = os.path.abspath(MODELS[1])
    for names, says in ((f"host1,host2={other}", "stage 1 on host2"), (f"host1={other},host2", "stage 0 on host1"),
                        ("host1=/nowhere,host2", "'/nowhere'")):
        try:
            end(serve(names))
            check(False, names, "was taken")
        except RuntimeError as e:
            check(says in str(e), names, e)


def test_pull_brings_a_model_to_all_hosts():
    make_hosts()
    there = [path(f"there{k}", "x", "m.gguf") for k in (1, 2)]
    call = lambda *args: subprocess.run([QUERN, "pull", *args], capture_output=True, timeout=LIMIT,
                                        env=os.environ | {"RSYNC_RSH": AGENT})
    spec = f"localhost,host1={there[0]},host2={there[1]}"
    done = call(MODELS[0], "--hosts", spec)
    check(done.returncode == 0 and done.stdout.decode().strip() == MODELS[0], done)
    check(done.stderr.count(b"has the same bytes") == 2, done.stderr)
    for name in there:
        check(read(name) == read(MODELS[0]), name)
    with open(there[0], "r+b") as f:
        f.seek(-10, 2)
        f.write(b"x" * 10)
    check(call(MODELS[0], "--hosts", spec).returncode == 0 and read(there[0]) == read(MODELS[0]), "not mended")
    folder = path("folder")
    os.makedirs(folder)
    for name in "config.json", "b.safetensors":
        with open(os.path.join(folder, name), "w") as f:
            f.write(name)
    done = call(folder, "--hosts", f"host1={path('copy')}")
    check(done.returncode == 0 and sorted(os.listdir(path("copy"))) == sorted(os.listdir(folder)), done)
    hosts[1].cut()
    done = call(MODELS[0], "--hosts", "host2")
    hosts[1].join()
    check(done.returncode and b"host2" in done.stderr, done)


def pull_layers(layers, spec, model=MODELS[0]):
    return subprocess.run([QUERN, "pull", model, "--hosts", spec, "--layers", layers], capture_output=True, timeout=LIMIT,
                          env=os.environ | {"RSYNC_RSH": AGENT})


def test_pull_brings_hosts_their_layers_only():
    """Their files have holes, and no process takes one for the whole model. The stages keep to what they have."""
    make_hosts()
    there = [path(f"layers{k}", "m.gguf") for k in (1, 2)]
    spec = f"host1={there[0]},host2={there[1]}"
    done = pull_layers("even", spec)
    n_layer = int(re.findall(rb"has layers (\d+) to (\d+) of it", done.stderr)[1][1]) + 1
    half = n_layer // 2
    ranges = [f"layers 0 to {half - 1} of", f"layers {half} to {n_layer - 1} of"]
    check(done.returncode == 0 and all(r.encode() in done.stderr for r in ranges), done)
    size = os.stat(MODELS[0]).st_size
    for name, r in zip(there, ranges):
        check(size < os.stat(name).st_size < size + 1024, name)
        refused = subprocess.run([QUERN, "run", name, "x"], capture_output=True, timeout=LIMIT)
        check(refused.returncode == 65 and f"has the weights of {r[:-3]} only".encode() in refused.stderr, refused)
        refused = subprocess.run([QUERN, "check", name], capture_output=True, timeout=LIMIT)
        check(refused.returncode == 65 and b"'quern serve --hosts'" in refused.stderr, refused)
    check(not [n for n in os.listdir(os.path.dirname(MODELS[0])) if ".layers-" in n], "a file that was sent stays")
    # Beside the whole model, which has all layers, one of them decides.
    for names in spec, f"localhost,host2={there[1]}":
        server = serve(names, "--log", "--only-hosts")
        check(said(Streamed(server, BODY, lambda: None), True) == alone(), names)
        found = re.findall(r"stage (\d) on \S+: layers (\d+) to (\d+)", server.stderr())
        begin = int(found[1][1])  # of the second stage
        check(begin == half if "host1" in names else begin >= half, names, found)
        end(server)
    for names, says in ((f"host1={there[1]},host2={there[0]}", "stage 1 on host2 has a file with layers 0 to"),
                        (f"host1={there[1]},host2", "stage 0 on host1 has a file with layers"),
                        (f"host1:{half}={there[0]},host2={there[0]},host3", "the layers cannot be divided")):
        try:
            end(serve(names))
            check(False, names, "was taken")
        except RuntimeError as e:
            check(says in str(e), names, e)
    # What is there already is not sent again, and the whole model stays.
    before = os.stat(there[0]).st_mtime_ns
    check(pull_layers("even", spec).returncode == 0 and os.stat(there[0]).st_mtime_ns == before, "again")
    whole = path("whole.gguf")
    with open(whole, "wb") as f:
        f.write(read(MODELS[0]))
    done = pull_layers(f"0-{half},{half - 1}-{n_layer - 1}", f"host1={whole},host2={there[1]}")
    check(done.returncode == 0 and b"host1 has the whole model" in done.stderr and read(whole) == read(MODELS[0]), done)
    check(f"has layers {half - 1} to".encode() in done.stderr, done)
    last = n_layer - 1
    for layers, says in (("0-1", "not as many ranges as there are hosts (2)"), (f"0-1,2-{last},1", "not as many ranges"),
                         (f"0-{n_layer},0-1", f"has the layers 0-{last}"), (f"1-0,0-{last}", "layers 1-0"),
                         (f"-1,0-{last}", "'-1' is no range"), (f"0-,0-{last}", "'0-' is no range"), (f",0-{last}", "not as many"),
                         (f"0-99999999999999999999,0-{last}", f"has the layers 0-{last}"), ("", "not as many ranges"),
                         (f"1-{last},0-{last}", "do not have all layers"), ("0,0", "do not have all layers"),
                         (f"0x1,0-{last}", "'0x1' is no range")):
        done = pull_layers(layers, spec)
        check(done.returncode == 64 and says in done.stderr.decode(), layers, done)
    done = subprocess.run([QUERN, "pull", MODELS[0], "--layers", "even"], capture_output=True, timeout=LIMIT)
    check(done.returncode == 64 and b"--layers needs --hosts" in done.stderr, done)
    done = pull_layers("even", spec, path("folder") if os.path.isdir(path("folder")) else os.path.dirname(MODELS[0]))
    check(done.returncode == 64 and b"is a folder" in done.stderr, done)
    done = pull_layers("even", spec, there[0])
    check(done.returncode == 65 and b"has the weights of layers" in done.stderr, done)


def test_networks_nobody_chose_are_refused():
    nets_are_there = serve("host1")
    end(nets_are_there)
    nets.sh("ip link add pub type dummy 2> /dev/null || ip link add pub type veth peer name pub2; "
            "ip addr add 192.0.2.1/24 dev pub; ip link set pub up")
    for args, says in (((), "name the interface"), (("--interface", "nope"), "no interface 'nope'"),
                       (("--interface", "pub"), "public address 192.0.2.1"),
                       (("--interface", "br0", "--stage-ports", "80-90"), "is no range")):
        done = subprocess.run([QUERN, "serve", MODELS[0], "--hosts", "host1", *args], capture_output=True, timeout=LIMIT)
        check(done.returncode == 64 and says in done.stderr.decode(), args, done.returncode, done.stderr)


def test_only_chosen_ports_listen():
    wait_for_the_end_of_others()
    server = serve("host1,host2", "--stage-ports", "47700-47739")
    for host in None, "host1", "host2":
        text = subprocess.run((nets.inside(host) if host else []) + ["cat", "/proc/net/tcp"], capture_output=True,
                              check=True).stdout.decode()
        for line in text.splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            where, port = address.split(":")
            own = int(port, 16) == server.port or where == "0100007F"
            check(state != "0A" or own or 47700 <= int(port, 16) < 47740, host, "listens at", address)
            if state == "01" and where != "0100007F":
                check(where.endswith("004D0A"), host, "is connected at", address)
    end(server)


def test_a_slow_network_changes_no_byte_and_is_no_loss():
    close_all()
    try:
        if WHY_NOT:
            raise Skipped(WHY_NOT)
        hosts.append(nets.Host(1, slow=(100, 20)))
        hosts.append(nets.Host(2))
        hosts.append(nets.Host(3))
        server = serve("host1,host2")
        short = BODY | {"max_tokens": 40}
        begin = time.monotonic()
        got = said(Streamed(server, short, lambda: None), True)
        per_token = (time.monotonic() - begin) / 40
        print(f"    {1000 * per_token:.1f} ms a token")
        one = Server(MODELS[0], *SMALL)
        check(got == said(Streamed(one, short, lambda: None), True), "another answer")
        end(one)
        check(per_token >= 0.02, "the wire is not slow:", per_token)
        check("lost" not in server.stderr(), server.stderr())
        end(server)
    finally:
        close_all()


def test_a_token_takes_few_bytes_on_the_wire():
    """From one stage to the next: a header, the row's residuals, what tells the row's place, and how it is drawn."""
    n_embd, n_tokens = 896, 200
    wide = path("wide.gguf")
    subprocess.run([os.path.join(os.path.dirname(QUERN), "tools/make-model"), "qwen2-0.5b:q4_0", wide, "--layers", "3"],
                   check=True, capture_output=True)
    server = serve("host1,host2", model=wide)
    ask = lambda n: server.post("/v1/completions", BODY | {"prompt": "a", "max_tokens": n})
    ask(2)
    before, begin = hosts[0].count(), time.monotonic()
    ask(n_tokens)
    after, seconds = hosts[0].count(), time.monotonic() - begin
    header = 14 + 20 + 32  # of Ethernet, IP and TCP
    sent = (after[1] - before[1] - header * (after[3] - before[3])) / n_tokens
    print(f"    {sent:.0f} bytes a token, {4 * n_embd} of them residuals; {n_tokens / seconds:.0f} tokens a second")
    check(4 * n_embd < sent <= 1.05 * (24 + 4 * n_embd + 4), sent)
    end(server)


def test_busy_hosts_are_no_loss():
    server = serve("host1,host2")
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        check(said(Streamed(server, BODY, lambda: None), True) == alone(), "another answer")
        check("lost" not in server.stderr(), server.stderr())
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    end(server)


FOR_RELEASES = [test_without_a_cable_this_host_computes, test_nothing_stays_on_any_host_after_the_daemon,
                test_a_slow_network_changes_no_byte_and_is_no_loss, test_busy_hosts_are_no_loss]

if __name__ == "__main__":
    main({k: v for k, v in globals().items() if getattr(v, "__module__", None) == "__main__" and (ALL or v not in FOR_RELEASES)})
