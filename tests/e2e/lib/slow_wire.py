#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""slow_wire.py: a wire between two network devices with a bandwidth and a delay.

    slow_wire.py DEVICE DEVICE MBIT_PER_SECOND ROUND_TRIP_MS

Takes Ethernet frames from each device and sends them from the other, later: after half of the round trip, and not
before the frame before it has been sent at that bandwidth.
"""
import collections
import select
import socket
import sys
import time

ALL, OUTGOING = 0x0003, 4
ROOM = 4 << 20  # bytes on the way; more are lost, as in a switch


def main(devices, mbit, round_trip_ms):
    ends = []
    for device in devices:
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        s.bind((device, 0))
        s.setblocking(False)
        ends.append(s)
    queues = [collections.deque(), collections.deque()]
    held, free = [0, 0], [0.0, 0.0]
    while True:
        now = time.monotonic()
        first = min((q[0][0] for q in queues if q), default=now + 1)
        ready, _, _ = select.select(ends, [], [], max(0, first - now))
        for s in ready:
            way = ends.index(s)
            for _ in range(64):
                try:
                    frame, about = s.recvfrom(1 << 16)
                except BlockingIOError:
                    break
                if about[2] == OUTGOING or held[way] > ROOM:
                    continue
                free[way] = max(free[way], time.monotonic()) + len(frame) * 8e-6 / mbit
                queues[way].append((free[way] + round_trip_ms / 2000, frame))
                held[way] += len(frame)
        now = time.monotonic()
        for way, q in enumerate(queues):
            while q and q[0][0] <= now:
                frame = q.popleft()[1]
                held[way] -= len(frame)
                try:
                    ends[1 - way].send(frame)
                except OSError:
                    pass  # the cable is cut


if __name__ == "__main__":
    main(sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4]))
