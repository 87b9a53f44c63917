# SPDX-License-Identifier: MIT
"""daemon.py: runs `quern serve` for session, load, serve and mix, sends requests to it, and times the pieces of streams.

The clients share the CPUs with the daemon, so they are made cheap. One thread reads all streams, and only notes the
bytes and their time. They are parsed when the stream is over.
"""
import bisect
import hashlib
import http.client
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import time

import lib

LIMIT = 600  # seconds for one answer


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT)
        self.path = path

    def connect(self):
        self.sock = unix(self.path)


def unix(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT)
    s.connect(path)
    return s


def tcp(port):
    return socket.create_connection(("127.0.0.1", port), LIMIT)


class Server:
    """A process that answers over HTTP: `with Server(...) as s:`; ends with SIGTERM, and waits for what is done then."""

    def start(self, command, **popen):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(c) for c in command], stdout=self.log, stderr=self.log, **popen)

    def __enter__(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.is_up():
                    return self
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.005)
        status = self.process.poll()
        self.process.kill()
        lib.fail(f"{self.process.args[0]} does not answer (status {status}): {self.messages()[-500:]}")

    def __exit__(self, *what):
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)
        self.stop_s = time.monotonic() - start
        self.log.close()

    def messages(self):
        """What it has written so far; read apart from its own place in the file."""
        with open(f"/proc/self/fd/{self.log.fileno()}") as f:
            return f.read()

    def is_up(self):
        c = self.connect()
        c.request("GET", "/health")
        return c.getresponse().status == 200


class Daemon(Server):
    """quern serve. keys: names of API keys, for clients on a TCP port, which the system chooses."""

    def __init__(self, program, model, *options, keys=(), **popen):
        self.dir = tempfile.TemporaryDirectory(prefix="quern-bench-")
        self.sock = os.path.join(self.dir.name, "sock")
        listen = ["--listen", self.sock]
        if keys:
            path = os.path.join(self.dir.name, "keys")
            with open(path, "w") as f:
                f.writelines(f"{hashlib.sha256(name.encode()).hexdigest()} {name}\n" for name in keys)
            listen += ["--listen", "127.0.0.1:0", "--api-keys", path]
        self.start([program, "serve", model, *listen, *options], **popen)

    def __exit__(self, *what):
        super().__exit__(*what)
        self.dir.cleanup()

    def is_up(self):
        """It also says where it listens."""
        said = re.search(r"quern: serving .*\n", self.messages())
        at = said and re.search(r"http://127\.0\.0\.1:(\d+)", said[0])
        self.port = at and int(at[1])
        return bool(said) and super().is_up()

    def open(self, key=None):
        return tcp(self.port) if key else unix(self.sock)

    # ---- requests ----

    def connect(self):
        return UnixConnection(self.sock)

    def ask(self, method, path, body=None, connection=None):
        """connection: one that is kept; the daemon may have closed it after a long time without a request."""
        c = connection or self.connect()
        what = [method, path] if body is None else [method, path, json.dumps(body), {"Content-Type": "application/json"}]
        try:
            c.request(*what)
            r = c.getresponse()
        except ConnectionError:
            if not connection:
                raise
            c.close()
            c.request(*what)
            r = c.getresponse()
        data = r.read()
        if r.status != 200:
            lib.fail(f"{path}: status {r.status}: {data[:500].decode()}")
        return data

    def call(self, *what, **more):
        return json.loads(self.ask(*what, **more))

    def metric(self, name):
        text = self.ask("GET", "/metrics").decode()
        return float(re.search(rf"^quern_{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)[1])

    def tokens(self, text):
        return self.call("POST", "/tokenize", {"content": text})["tokens"]

    def prompt(self, n, seed=0):
        """n tokens of text, others for each seed from the first one on."""
        some = "time river stone light water paper green house winter table music story garden window".split()
        return self.tokens(f"{seed} " + " ".join(some[(i * 7 + i // 14 * 3 + seed) % len(some)] for i in range(n)))[:n]

    def one_token(self):
        """Sampling that gives the same whole word each time: then each token is a piece of the stream. Without drafts, all of
        which would be right, each token is also a step."""
        return {"logit_bias": {str(self.word()): 100}, "ignore_eos": True, "temperature": 0, "draft": "off"}

    def word(self):
        return self.tokens(" time")[-1]

    def stream(self, prompt, n, **more):
        """Completes a prompt by n tokens, and returns the Stream when it is over."""
        s = Stream(self, prompt, n, **more)
        gather([s])
        return s

    # ---- the process ----

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return 1024 * int(re.search(r"VmRSS:\s*(\d+)", f.read())[1])

    def cpu_seconds(self, without=()):
        """Of all its threads, but for those whose names begin like one of `without`, and those that end meanwhile."""
        return self.schedule_s(0, without)

    def waited_s(self):
        """For how long its threads were ready to run while the CPUs did something else; the sum of all threads."""
        return self.schedule_s(1, ())

    def schedule_s(self, field, without):
        ns, tasks = 0, f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            try:
                with open(f"{tasks}/{task}/comm") as name, open(f"{tasks}/{task}/schedstat") as stat:
                    if not name.read().startswith(tuple(without)):
                        ns += int(stat.read().split()[field])
            except (FileNotFoundError, ProcessLookupError):
                pass
        return 1e-9 * ns


class Stream:
    """A streamed completion on a connection of its own. key: the name of an API key, over TCP. Times: time.monotonic()."""

    def __init__(self, d, prompt, n, key=None, **more):
        body = json.dumps({"prompt": prompt, "max_tokens": n, "stream": True, "stream_options": {"include_usage": True}} | more)
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        self.pieces, self.is_whole = [], False
        self.started = time.monotonic()
        self.sock = d.open(key)
        self.sock.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{bearer}"
                           f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())

    def fileno(self):
        return self.sock.fileno()

    def take(self):
        """Notes what has come; whether more may come."""
        data = self.sock.recv(1 << 18)
        self.pieces.append((time.monotonic(), data))
        self.is_whole = not data
        return bool(data)

    def close(self):
        self.sock.close()

    def events(self):
        """[(time, object)] of those that are whole."""
        raw = b"".join(data for _, data in self.pieces)
        ends, n = [], 0
        for _, data in self.pieces:
            n += len(data)
            ends.append(n)
        head, _, _ = raw.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            lib.fail(f"a stream was refused: {raw[:500].decode()}")
        text, marks, at = bytearray(), [], len(head) + 4
        while (line := raw.find(b"\r\n", at)) >= 0 and (size := int(raw[at:line], 16)):
            at = line + 2 + size + 2
            text += raw[line + 2:at - 2]
            marks.append((len(text), min(at, len(raw))))
        events, at = [], 0
        while (end := text.find(b"\n\n", at)) >= 0:
            if text.startswith(b"data: {", at):
                _, raw_end = marks[bisect.bisect_left(marks, (end + 2,))]
                events.append((self.pieces[bisect.bisect_left(ends, raw_end)][0], json.loads(text[at + 6:end])))
            at = end + 2
        return events

    def read(self):
        """Fills text, times (of the pieces of text), counts (of their tokens, if logprobs were asked for), usage and quern,
        and returns itself."""
        self.text, self.times, self.counts, self.usage, self.quern = "", [], [], None, None
        for when, e in self.events():
            if "error" in e:
                lib.fail(f"a stream ended with {e['error']}")
            self.usage = e.get("usage") or self.usage
            self.quern = e.get("quern") or self.quern
            if e["choices"] and e["choices"][0]["text"]:
                self.times.append(when)
                self.counts.append(len((e["choices"][0].get("logprobs") or {}).get("tokens", [0])))
                self.text += e["choices"][0]["text"]
        if self.is_whole and not self.usage:
            lib.fail(f"a stream ended before its answer did, after {len(self.times)} pieces of text")
        return self

    def moments(self):
        """The times without repetition: tokens that waited for the reader came together."""
        return sorted(set(self.times))

    def first_s(self):
        return self.times[0] - self.started


def gather(streams, at_least_s=0, until=None, on_end=None):
    """Reads streams until all are over. With until, only until this holds and at_least_s have passed. on_end(stream): one is
    over; it may return another one. Otherwise what has come is parsed at the end: a long stream takes some 20 ms, which
    would be a gap in the others."""
    over, begin = [], time.monotonic()
    with selectors.DefaultSelector() as s:
        for x in streams:
            s.register(x, selectors.EVENT_READ)
        while s.get_map():
            passed = time.monotonic() - begin
            if until and passed >= at_least_s and until():
                break
            if passed >= at_least_s + LIMIT:
                lib.fail(f"{len(s.get_map())} streams are not over after {passed:.0f} s")
            for key, _ in s.select(at_least_s - passed if passed < at_least_s else at_least_s + LIMIT - passed):
                if key.fileobj.take():
                    continue
                s.unregister(key.fileobj)
                key.fileobj.close()
                over.append(key.fileobj)
                more = on_end and on_end(key.fileobj.read())
                if more:
                    s.register(more, selectors.EVENT_READ)
    for x in over if not on_end else []:
        x.read()


def main(parser, sections, apart=()):
    """The targets of the functions that --rows names, each given args; args.engine: what all programs are given. apart:
    functions that are only called when an option with their name asks for them, and then by themselves."""
    parser.add_argument("--rows", metavar="LIST", default=",".join(sections), help="default: all")
    parser.add_argument("--threads", metavar="N", type=int, help="of the engine (default: all CPUs)")
    for f in apart:
        parser.add_argument(f"--{f.__name__}", action="store_true", help="instead of --rows")
    lib.add_csv(parser)
    args = lib.parse(parser)
    [args.model] = args.models
    args.engine = ["--threads", str(args.threads)] if args.threads else []
    chosen = [f for f in apart if getattr(args, f.__name__)]
    for name in args.rows.split(","):
        if name not in sections:
            lib.fail(f"there are no rows '{name}', but {', '.join(sections)}")
    return lib.conclude(args, [r for f in chosen or map(sections.get, args.rows.split(",")) for r in f(args)])
