# SPDX-License-Identifier: MIT
"""machine.py: the functions that start, memory and hog share: running quern, the page cache, control groups."""
import json
import os
import subprocess
import sys
from pathlib import Path

DEFAULT_QUERN = str(Path(__file__).resolve().parent.parent / "build" / "quern")


def quern_json(program, *args):
    return json.loads(subprocess.run([program, *args, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout)


def drop_from_cache(path):
    """Pages of the file that nobody has mapped leave the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class MemoryGroup:
    """A control group with a memory limit, v1 or v2. Making one needs root; OSError where it cannot be had."""

    V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

    def __init__(self, limit):
        v2 = (self.V2 / "cgroup.controllers").exists()
        self.dir = (self.V2 if v2 else self.V1) / f"quern-bench-{os.getpid()}"
        self.limit_file, self.peak_file = ("memory.max", "memory.peak") if v2 else (
            "memory.limit_in_bytes", "memory.max_usage_in_bytes")
        if v2:
            (self.V2 / "cgroup.subtree_control").write_text("+memory")
        self.dir.mkdir()
        try:
            (self.dir / self.limit_file).write_text(str(limit))
        except OSError:
            self.dir.rmdir()
            raise

    def enter(self):
        """For preexec_fn: what is started now lives in the group."""
        (self.dir / "cgroup.procs").write_text("0")

    def kills(self):
        """Processes of the group that the system has killed for its memory."""
        name = "memory.events" if self.limit_file == "memory.max" else "memory.oom_control"
        for line in (self.dir / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        raise OSError(f"{name} does not count kills")

    def peak(self):
        return int((self.dir / self.peak_file).read_text())

    def remove(self):
        self.dir.rmdir()


def report(result, lines, as_json):
    print(json.dumps(result) if as_json else "\n".join(lines))
    sys.stdout.flush()
