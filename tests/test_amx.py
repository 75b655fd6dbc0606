"""A CPU that claims AMX but hides its tiles: 16-bit products must not end the process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from walktalk import amx

X86_LINUX = sys.platform.startswith("linux") and platform.machine() == "x86_64"
PRODUCT = """
import walktalk, torch
square = torch.ones(256, 256, dtype=torch.bfloat16)
assert float((square @ square)[0, 0]) == 256.0
"""


@pytest.fixture
def machine(cpu, monkeypatch):
    """Pretends to be a CPU with these flags, and these first registers of its answers to ``cpuid``."""

    def be(flags: str, answers: dict[tuple[int, int], int]) -> str | None:
        cpu(flags=f"fpu {flags} sse")
        monkeypatch.setattr(amx, "cpuid", lambda leaf, subleaf: (answers[leaf, subleaf], 0, 0, 0))
        amx.avoid_broken_amx()
        return os.environ.get(amx.VARIABLE)

    return be


def test_tiles_that_are_hidden(machine):
    assert machine("amx_tile amx_bf16", {(0, 0): 0x1C}) == amx.BELOW_AMX


def test_a_palette_without_bytes(machine):
    assert machine("amx_tile", {(0, 0): 0x20, (0x1D, 0): 1, (0x1D, 1): 0}) == amx.BELOW_AMX


def test_whole_amx_is_used(machine):
    assert machine("amx_tile", {(0, 0): 0x20, (0x1D, 0): 1, (0x1D, 1): (1024 << 16) | 8192}) is None


def test_nothing_is_asked_of_a_cpu_without_amx(machine):
    assert machine("avx512f", {}) is None  # a question would be a KeyError


def test_a_users_value_stays(machine, monkeypatch):
    monkeypatch.setenv(amx.VARIABLE, "AVX2")
    assert machine("amx_tile", {(0, 0): 0x1C}) == "AVX2"


@pytest.mark.skipif(not X86_LINUX, reason="asks the CPU itself")
def test_the_cpus_own_name():
    _, *name = amx.cpuid(0, 0)
    letters = b"".join(name[k].to_bytes(4, "little") for k in (0, 2, 1)).decode()
    with open("/proc/cpuinfo") as lines:
        assert f": {letters}" in next(line for line in lines if line.startswith("vendor_id"))


def test_sixteen_bit_products_in_a_process_of_its_own():
    """Dies of SIGILL without the change on a machine of this kind; nothing is set from outside."""
    environment = {key: value for key, value in os.environ.items() if key != amx.VARIABLE}
    done = subprocess.run([sys.executable, "-c", PRODUCT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
