# SPDX-License-Identifier: MIT
"""websocket.py: a WebSocket's client for tests, which can send what no client should.

    w = WebSocket(connected_socket, "/path")     # does the opening handshake; .status is its answer's
    w.send_text(...); w.frame(...); w.raw(...)
    w.message()                                  # the next text message; answers pings
    w.close_code()                               # reads up to the close frame
"""
import base64
import hashlib
import os
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(opcode, payload=b"", fin=True, mask=b"\x12\x34\x56\x78", rsv=0, length=None):
    """The bytes of a client's frame. mask None: without; length: 7, 16 or 64 bits, the shortest if None."""
    n = len(payload)
    if length is None:
        length = 7 if n < 126 else 16 if n < 65536 else 64
    first, bit = 0x80 * fin | rsv << 4 | opcode, 0x80 * (mask is not None)
    if length == 7:
        head = struct.pack(">BB", first, bit | n)
    elif length == 16:
        head = struct.pack(">BBH", first, bit | 126, n)
    else:
        head = struct.pack(">BBQ", first, bit | 127, n)
    if mask is None:
        return head + payload
    whole = int.from_bytes(payload, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")
    return head + mask + whole.to_bytes(n, "big")


class Closed(Exception):
    """The connection has ended; args: the close frame's code, or None."""


class WebSocket:
    def __init__(self, sock, path, headers="", key=None, upgrade=True):
        self.sock, self.buffer, self.pongs, self.n_pings = sock, b"", [], 0
        self.key = key or base64.b64encode(os.urandom(16)).decode()
        fixed = ("Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                 f"Sec-WebSocket-Key: {self.key}\r\n") if upgrade else ""
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fixed}{headers}\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = sock.recv(1)
            if not byte:
                break
            head += byte
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0] else 0
        self.headers = {k.lower(): v for k, _, v in (l.partition(": ") for l in lines[1:])}

    def is_proven(self):
        text = (self.key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()
        return self.headers.get("sec-websocket-accept") == base64.b64encode(hashlib.sha1(text).digest()).decode()

    def raw(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what the server has said before can still be read
        return self

    def send_text(self, text, **more):
        return self.raw(frame(TEXT, text.encode() if isinstance(text, str) else text, **more))

    def read(self, n):
        while len(self.buffer) < n:
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed(None)
            self.buffer += piece
        taken, self.buffer = self.buffer[:n], self.buffer[n:]
        return taken

    def next_frame(self):
        first, n = self.read(2)
        if first & 0x70 or n & 0x80 or not first & 0x80:
            raise ValueError(f"a server's frame begins with {first:02x} {n:02x}")
        if n == 126:
            (n,) = struct.unpack(">H", self.read(2))
        elif n == 127:
            (n,) = struct.unpack(">Q", self.read(8))
        return first & 0x0F, self.read(n)

    def message(self):
        """The next text. Raises Closed at the close frame, or at the connection's end."""
        while True:
            opcode, payload = self.next_frame()
            if opcode == TEXT:
                return payload.decode()
            if opcode == CLOSE:
                raise Closed(struct.unpack(">H", payload)[0])
            if opcode == PING:
                self.n_pings += 1
                self.raw(frame(PONG, payload))
            elif opcode == PONG:
                self.pongs.append(payload)
            else:
                raise ValueError(f"opcode {opcode}")

    def close_code(self):
        try:
            while True:
                self.message()
        except Closed as end:
            return end.args[0]

    def close(self):
        """The closing handshake; returns the server's code."""
        self.raw(frame(CLOSE, struct.pack(">H", 1000)))
        code = self.close_code()
        self.sock.close()
        return code
