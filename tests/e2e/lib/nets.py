# SPDX-License-Identifier: MIT
"""nets.py: several hosts on one machine, each a network namespace with a name of its own, joined by a bridge.

The program that imports it starts itself again in namespaces of users, networks, mounts and processes (unshare), so it
needs no rights, changes nothing outside, and everything is gone after it. Where that is not possible, impossible() says
why. Host k is called hostK and has the address 10.77.0.(k + 1); this process is on host0, with the interface br0.
"""
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

from lib.files import path

INSIDE = "QUERN_TEST_NETS"
SUBNET = "10.77.0"
LIB = os.path.dirname(os.path.abspath(__file__))
SLOW_WIRE, DAEMON = os.path.join(LIB, "slow_wire.py"), os.path.join(LIB, "host_daemon.py")
UNSHARE = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child",
           "--mount-proc")


def impossible():
    """Why there can be no hosts here; None: there can."""
    for program in "unshare", "ip", "nsenter":
        if not shutil.which(program):
            return f"there is no program {program}"
    probe = "mount -t tmpfs tmpfs /run && ip link add br0 type bridge && ip link add v type veth peer name w && " \
            "mkdir /run/netns && ip netns add a"
    done = subprocess.run([*UNSHARE, "sh", "-c", probe], capture_output=True)
    return f"namespaces do not work here: {done.stderr.decode().strip()}" if done.returncode else None


def enter(argv):
    """Starts this program again in namespaces. Returns only there."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, *argv])
    sh("mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/netns && hostname host0")
    names = path("hosts")
    with open(names, "w") as f:
        f.write("127.0.0.1 localhost\n" + "".join(f"{SUBNET}.{k + 1} host{k}\n" for k in range(5)))
    sh(f"mount --bind {names} /etc/hosts && ip link set lo up && ip link add br0 type bridge && "
       f"ip addr add {SUBNET}.1/24 dev br0 && ip link set br0 up")
    agent = path("agent")
    with open(agent, "w") as f:
        f.write(f'#!/bin/sh\nexec {sys.executable} {DAEMON} "$@"\n')
    os.chmod(agent, 0o755)
    return agent


def sh(command):
    subprocess.run(["sh", "-c", command], check=True)


def plain_frames(device):
    """The device passes frames as they are on a wire: whole checksums, and no larger than its MTU."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for what in 0x17, 0x1f, 0x23, 0x2c:  # ETHTOOL_STXCSUM, _STSO, _SGSO, _SGRO
            value = ctypes.create_string_buffer(struct.pack("II", what, 0))
            try:
                fcntl.ioctl(s, 0x8946, struct.pack("16sP8x", device.encode(), ctypes.addressof(value)))
            except OSError:
                pass


def inside(host, *command):
    return ["nsenter", f"--net=/run/netns/{host}", *command]


class Host:
    """hostK. slow: (Mbit/s, ms of a way and back): between it and the bridge is a relay that is so slow."""

    def __init__(self, k, slow=None):
        self.name = f"host{k}"
        self.wire = f"v{k}"
        self.relay = None
        sh(f"ip netns add {self.name} && ip link add v{k} type veth peer name eth0 netns {self.name} && "
           f"ip -n {self.name} link set lo up && ip -n {self.name} addr add {SUBNET}.{k + 1}/24 dev eth0 && "
           f"ip -n {self.name} link set eth0 up && ip link set v{k} up")
        self.daemon = subprocess.Popen(inside(self.name, "unshare", "--uts", sys.executable, DAEMON, "serve", self.name),
                                       stdout=subprocess.PIPE)
        self.daemon.stdout.readline()
        if not slow:
            sh(f"ip link set v{k} master br0")
            return
        sh(f"ip link add x{k} type veth peer name y{k} && ip link set x{k} up && ip link set y{k} master br0 up")
        for device in f"v{k}", f"x{k}", f"y{k}", "br0":
            plain_frames(device)
        subprocess.run(inside(self.name, sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); "
                              "from lib.nets import plain_frames; plain_frames('eth0')", os.path.dirname(LIB)), check=True)
        self.relay = subprocess.Popen([sys.executable, SLOW_WIRE, f"v{k}", f"x{k}", *map(str, slow)])

    def cut(self):
        """Pulls the cable. ssh would not get there either."""
        sh(f"touch /run/down.{self.name}; ip link set {self.wire} down")

    def join(self):
        sh(f"rm /run/down.{self.name}; ip link set {self.wire} up")

    def count(self):
        """Bytes received and sent, and frames received and sent. Each has 14 bytes of Ethernet, and headers of IP and TCP."""
        text = subprocess.run(inside(self.name, "cat", "/proc/net/dev"), capture_output=True, check=True).stdout
        words = next(line for line in text.decode().splitlines() if "eth0:" in line).split(":")[1].split()
        return int(words[0]), int(words[8]), int(words[1]), int(words[9])

    def close(self):
        for process in self.relay, self.daemon:
            if process:
                process.kill()
                process.wait()
        self.daemon.stdout.close()
        sh(f"rm -f /run/down.{self.name}; ip netns del {self.name}; ip link del {self.wire} 2> /dev/null || true")
        if self.relay:
            sh(f"ip link del x{self.name[4:]} 2> /dev/null || true")
