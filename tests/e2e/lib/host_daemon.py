#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""host_daemon.py: what sshd and ssh are for the hosts of nets.py.

    host_daemon.py serve HOST       in the host's namespaces: runs the commands that come, none of them its caller's child
    host_daemon.py HOST COMMAND...  asks it to run a command, with this one's input and output, and takes its status

A command goes on when the one who asked for it is killed, as with ssh.
"""
import os
import signal
import socket
import subprocess
import sys
import threading


def run(connection):
    command, fds, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    child = subprocess.Popen(["sh", "-c", command.decode()], stdin=fds[0], stdout=fds[1], stderr=fds[2],
                             start_new_session=True)
    for fd in fds:
        os.close(fd)
    status = child.wait()
    try:
        connection.send(bytes([status % 256]))
    except OSError:
        pass
    connection.close()


def serve(name):
    socket.sethostname(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.path.exists(f"/run/host.{name}"):
        os.unlink(f"/run/host.{name}")
    listener.bind(f"/run/host.{name}")
    listener.listen(16)
    print("ready", flush=True)
    while True:
        threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()


def ask(name, command):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if os.path.exists(f"/run/down.{name}"):
        sys.exit(f"agent: {name} is down")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"/run/host.{name}")
    socket.send_fds(connection, [command.encode()], [0, 1, 2])
    return (connection.recv(1) or b"\xff")[0]


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2]) if sys.argv[1] == "serve" else ask(sys.argv[1], " ".join(sys.argv[2:])))
