# SPDX-License-Identifier: MIT
"""gguf: writes GGUF files, version 3, with tensors in F32 and Q8_0. numpy is all it needs."""
import struct

import numpy as np

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_Q8_0 = 0, 8
ALIGNMENT = 32


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    """A metadata value with its type; a list has elements of one type, strings or integers."""
    if isinstance(v, bool):
        return struct.pack("<I?", BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, str):
        return struct.pack("<I", STR) + string(v)
    items = [string(x) if isinstance(x, str) else struct.pack("<i", x) for x in v]
    return struct.pack("<IIQ", ARR, STR if isinstance(v[0], str) else I32, len(v)) + b"".join(items)


def q8_0(x):
    """A matrix as blocks of 32: the scale in float16, and 32 times round(x / scale), at most 127 in size."""
    blocks = x.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / 127
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    codes = np.rint(blocks * inverse).astype(np.int8)
    return np.concatenate([scale.astype("<f2").view(np.uint8), codes.view(np.uint8)], 1).tobytes()


def widened(x):
    """The float32 values that a reader gets from q8_0(x)."""
    data = np.frombuffer(q8_0(x), np.uint8).reshape(-1, 34)
    scale = data[:, :2].copy().view("<f2").astype(np.float32)
    return (scale * data[:, 2:].copy().view(np.int8)).reshape(x.shape)


def is_matrix(x):
    """Is the tensor stored in Q8_0? Those of a convolution and of a few rows are not."""
    return x.ndim == 2 and x.shape[1] % 32 == 0 and x.shape[0] >= 32


def write(path, keys, tensors, exact=False):
    """tensors: {name: array of one or two dimensions}, rows first; exact: all of them are stored in F32."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(string(k) + value(v) for k, v in keys.items())
    data = bytearray()
    for name, x in tensors.items():
        kind = TYPE_Q8_0 if is_matrix(x) and not exact else TYPE_F32
        content = q8_0(x) if kind == TYPE_Q8_0 else x.astype("<f4").tobytes()
        dims = x.shape[::-1]
        head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += content + bytes(-len(content) % ALIGNMENT)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT) + data)
