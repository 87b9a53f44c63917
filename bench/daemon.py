# SPDX-License-Identifier: MIT
"""daemon.py: a running `quern serve` for session and load: a Unix socket of its own, requests over it, streams timed."""
import http.client
import json
import os
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
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)


class Daemon:
    """`with Daemon(program, model, *options) as d:`; ends with SIGTERM, and waits for what is saved then."""

    def __init__(self, program, model, *options, listen=(), **popen):
        self.dir = tempfile.TemporaryDirectory(prefix="quern-bench-")
        self.sock = os.path.join(self.dir.name, "sock")
        self.process = subprocess.Popen([program, "serve", model, "--listen", self.sock, *listen, *map(str, options)], **popen)

    def __enter__(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.call("GET", "/health")
                return self
            except OSError:
                time.sleep(0.005)
        lib.fail(f"quern serve does not answer (status {self.process.poll()})")

    def __exit__(self, *what):
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)
        self.stop_s = time.monotonic() - start
        self.dir.cleanup()

    def send(self, method, path, body=None, key=None):
        c = UnixConnection(self.sock)
        c.request(method, path, json.dumps(body) if body is not None else None,
                  {"Content-Type": "application/json"} if body is not None else {})
        r = c.getresponse()
        if r.status != 200:
            lib.fail(f"{path}: status {r.status}: {r.read(500).decode()}")
        return r

    def call(self, method, path, body=None):
        with self.send(method, path, body) as r:
            return json.loads(r.read())

    def tokens(self, text):
        return self.call("POST", "/tokenize", {"content": text})["tokens"]

    def stream(self, prompt, n, seed=1):
        """Completes a prompt by n tokens: text, the times at which pieces came (seconds from sending), the usage."""
        start = time.monotonic()
        times, text, usage = [], "", None
        body = {"prompt": prompt, "max_tokens": n, "stream": True, "stream_options": {"include_usage": True},
                "ignore_eos": True, "temperature": 1, "seed": seed}
        with self.send("POST", "/v1/completions", body) as r:
            for line in r:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                if event["choices"] and event["choices"][0]["finish_reason"] is None:
                    times.append(time.monotonic() - start)
                    text += event["choices"][0]["text"]
        return text, times, usage
