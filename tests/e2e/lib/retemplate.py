# SPDX-License-Identifier: MIT
"""retemplate.py: writes a copy of a GGUF file with another chat template."""
import struct

KEY = b"tokenizer.chat_template"


def retemplate(source, target, template):
    with open(source, "rb") as f:
        data = f.read()
    _, n_tensors, n_keys = struct.unpack_from("<IQQ", data, 4)
    at = data.index(struct.pack("<Q", len(KEY)) + KEY + struct.pack("<I", 8)) + 8 + len(KEY) + 4
    old = struct.unpack_from("<Q", data, at)[0]
    end = tensors_at(data, n_keys)  # of the keys
    for _ in range(n_tensors):
        end += 8 + struct.unpack_from("<Q", data, end)[0]
        end += 4 + 8 * struct.unpack_from("<I", data, end)[0] + 12
    text = template.encode()
    head = data[:at] + struct.pack("<Q", len(text)) + text + data[at + 8 + old:end]
    begin = (end + 31) // 32 * 32  # of the tensors' data
    with open(target, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data[begin:])


def tensors_at(data, n_keys):
    """Where the list of tensors begins."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def skip(at, kind):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != 9:
            return at + sizes[kind]
        of, n = struct.unpack_from("<IQ", data, at)
        at += 12
        if of in sizes:
            return at + n * sizes[of]
        for _ in range(n):
            at = skip(at, of)
        return at

    at = 24
    for _ in range(n_keys):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at = skip(at + 4, struct.unpack_from("<I", data, at)[0])
    return at
