"""A slow link between two network namespaces, in user space, where a machine has no netem: a delay, both ways.

    ip netns add ca; ip netns add il
    python benchmarks/slow_link.py ca 10.1.0.1 il 10.1.0.2 --delay-ms 20 --seconds 60

Each namespace gets a TAP device `w0` with its address, and every frame is handed over after the delay. It says `up`
when the devices are. A sixth of a core at 85 Mbit/s. Needs root and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import time
from collections import deque
from contextlib import suppress

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
QUEUED = 2000  # frames at most, as in a router's buffer: what comes on top is dropped
FRAME, AT_ONCE = 70_000, 64  # bytes of a frame at most; frames that are read before others get their turn


def enter(namespace: int) -> None:
    """Let this process live in a namespace from now on, which is given as a file that is open."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def open_tap(namespace: str, address: str, home: int) -> int:
    """The device of one side, as a file; this process stays where it was."""
    there = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    enter(there)
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"w0", IFF_TAP | IFF_NO_PI))
    finally:
        enter(home)
        os.close(there)
    for command in (f"ip addr add {address}/24 dev w0", "ip link set w0 mtu 1500 up"):
        subprocess.run(["ip", "netns", "exec", namespace, *command.split()], check=True)
    return tap


def hand_over(side: int, frames: deque[tuple[float, bytes]]) -> None:
    """Give one side the frames whose time has come."""
    while frames and frames[0][0] <= time.monotonic():
        try:
            os.write(side, frames[0][1])
        except BlockingIOError:
            return
        except OSError:
            pass  # the device went down: the frame is lost, as on a wire
        frames.popleft()


def take_in(side: int, delay: float, frames: deque[tuple[float, bytes]]) -> None:
    """Read what one side sends, until nothing is there."""
    with suppress(BlockingIOError):
        for _ in range(AT_ONCE):
            frame = os.read(side, FRAME)
            if len(frames) < QUEUED:
                frames.append((time.monotonic() + delay, frame))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("namespace_a", "address_a", "namespace_b", "address_b"):
        parser.add_argument(name)
    parser.add_argument("--delay-ms", type=float, default=20.0, help="one way")
    parser.add_argument("--seconds", type=float, default=60.0, help="until it ends")
    args = parser.parse_args()
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    a, b = open_tap(args.namespace_a, args.address_a, home), open_tap(args.namespace_b, args.address_b, home)
    waiting: dict[int, deque[tuple[float, bytes]]] = {a: deque(), b: deque()}  # frames by the side they go to
    end = time.monotonic() + args.seconds
    print("up", flush=True)
    while (now := time.monotonic()) < end:
        for side, frames in waiting.items():
            hand_over(side, frames)
        wake = min([now + 0.2, *(frames[0][0] for frames in waiting.values() if frames)])
        for side in select.select([a, b], [], [], max(0.0, wake - time.monotonic()))[0]:
            take_in(side, args.delay_ms / 1e3, waiting[b if side == a else a])


if __name__ == "__main__":
    main()
