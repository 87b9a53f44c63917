# SPDX-License-Identifier: MIT
"""files.py: the temporary folder of a test, which is removed when it ends, and files in it."""
import os
import tempfile

from lib import cases  # starts a test again that is run by hand, before there is a folder

TMP = tempfile.TemporaryDirectory(prefix="quern-e2e-")


def path(*names):
    return os.path.join(TMP.name, *names)


def read(name):
    with open(name, "rb") as f:
        return f.read()


def written(name, data, mode=None):
    """The path of a new file in the folder. data: bytes or a text."""
    os.makedirs(os.path.dirname(path(name)), exist_ok=True)
    with open(path(name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    if mode is not None:
        os.chmod(path(name), mode)
    return path(name)


def linked(target):
    """A link to a file in the folder, whose path has no spaces: LD_PRELOAD and systemd's units would divide the path there."""
    link = path("linked-" + os.path.basename(target))
    if not os.path.islink(link):
        os.symlink(os.path.abspath(target), link)
    return link
