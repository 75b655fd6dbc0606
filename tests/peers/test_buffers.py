"""Heartbeats do not wait behind models: what the system buffers fits the link."""

from __future__ import annotations

import socket

import pytest

import walktalk.runtimes.peers.relay.streams as buffers
from walktalk.runtimes.peers.relay.streams import LARGEST, SMALLEST, first_size, fit_buffers, wanted
from walktalk.runtimes.peers.wire.session import Endpoint, settings


@pytest.mark.parametrize(
    ("rate", "round_trip", "size"),
    [(1e6, 0.02, SMALLEST), (125e6, 0.01, 2_500_000), (125e6, 0.1, LARGEST), (0.0, 0.0, SMALLEST)],
)
def test_twice_what_can_be_on_the_wire_within_bounds(rate: float, round_trip: float, size: int) -> None:
    assert wanted(rate, round_trip) == size


def test_connections_to_other_machines_begin_small() -> None:
    assert first_size("127.0.0.1:7447") == first_size("localhost:0") == first_size("[::1]:7447") == LARGEST
    assert first_size("10.0.1.1:7447") == first_size("0.0.0.0:7447") == first_size("ca-1.example:7447") == SMALLEST
    assert settings(Endpoint("test", "a", 0, "10.0.1.1:7447"))["transport/link/tcp/so_sndbuf"] == SMALLEST


def test_open_connections_are_fitted_by_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "is_here", lambda host: False)  # as if it went to another machine
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as sender, server.accept()[0] as receiver:
            for _ in range(20):
                sender.sendall(b"x" * 60_000)
                left = 60_000
                while left:
                    left -= len(receiver.recv(left))
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
            before = sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            assert fit_buffers([port + 1]) == 0
            assert sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
            assert fit_buffers([port]) == 2  # both ends are here
            assert sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= SMALLEST > before
