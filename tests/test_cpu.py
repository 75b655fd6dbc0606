"""What is set for torch's libraries on a CPU that needs it: the same bits in every wave, and no broken AMX."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from walktalk.core.cpu import BELOW_AMX, MKL_VARIABLE, ONEDNN_VARIABLE, SAME_BITS, cpu_says, set_up_libraries

PRODUCT = """
import walktalk, torch
square = torch.ones(256, 256, dtype=torch.bfloat16)
assert float((square @ square)[0, 0]) == 256.0
"""
WAVES = """
import walktalk, torch
numbers = torch.Generator().manual_seed(0)
for high, deep, wide in ((5, 32, 6), (6, 32, 3), (32, 64, 10), (30, 5, 6), (64, 32, 10)):
    a, b = torch.randn(4, high, deep, generator=numbers), torch.randn(4, deep, wide, generator=numbers)
    alone = [torch.bmm(a[k : k + 1], b[k : k + 1]) for k in range(4)]
    assert torch.equal(torch.bmm(a, b), torch.cat(alone)), (high, deep, wide)
"""


@pytest.fixture
def machine(cpu):
    """Pretends to be a CPU of this maker with these flags, and gives what is set for MKL and for oneDNN."""

    def be(maker: str, flags: str = "") -> tuple[str | None, str | None]:
        cpu(vendor_id=maker, flags=f"fpu {flags} sse")
        set_up_libraries()
        return os.environ.get(MKL_VARIABLE), os.environ.get(ONEDNN_VARIABLE)

    return be


def test_intels_cpus_are_left_as_they_are(machine):
    assert machine("GenuineIntel") == (None, None)


def test_on_others_mkl_is_told(machine):
    assert machine("AuthenticAMD") == (SAME_BITS, None)


def test_amx_of_a_virtual_machine_is_not_used(machine):
    assert machine("GenuineIntel", "hypervisor amx_tile amx_bf16") == (None, BELOW_AMX)


def test_amx_of_a_machine_of_its_own_is_used(machine):
    assert machine("GenuineIntel", "amx_tile amx_bf16") == (None, None)


def test_a_virtual_machine_without_amx_is_left_as_it_is(machine):
    assert machine("GenuineIntel", "avx512f hypervisor") == (None, None)


def test_a_users_values_stay(machine, monkeypatch):
    monkeypatch.setenv(MKL_VARIABLE, "COMPATIBLE")
    monkeypatch.setenv(ONEDNN_VARIABLE, "AVX2")
    assert machine("AuthenticAMD", "hypervisor amx_tile") == ("COMPATIBLE", "AVX2")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells")
def test_the_cpu_itself_is_asked():
    said = cpu_says("processor")
    assert said == "0"
    assert cpu_says("no such word") == ""


@pytest.mark.parametrize(("code", "threads"), [(PRODUCT, {}), (WAVES, {"OMP_NUM_THREADS": "1"})])
def test_in_a_process_of_its_own(code, threads):
    """Products in 16 bits end it, and a model alone has other bits than in a wave, on machines that need a setting."""
    environment = {key: value for key, value in os.environ.items() if key not in (MKL_VARIABLE, ONEDNN_VARIABLE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment | threads, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
