"""A model alone and in a wave has the same bits, whoever made the CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from walktalk import mkl

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
    """Pretends to be a CPU of this maker."""

    def be(maker: str) -> str | None:
        cpu(vendor_id=maker, flags="fpu sse")
        mkl.keep_the_same_bits()
        return os.environ.get(mkl.VARIABLE)

    return be


def test_intels_cpus_are_left_as_they_are(machine):
    assert machine("GenuineIntel") is None


def test_on_others_mkl_is_told(machine):
    assert machine("AuthenticAMD") == mkl.SAME_BITS


def test_a_users_value_stays(machine, monkeypatch):
    monkeypatch.setenv(mkl.VARIABLE, "COMPATIBLE")
    assert machine("AuthenticAMD") == "COMPATIBLE"


def test_products_of_a_wave_are_those_of_models_alone():
    environment = {key: value for key, value in os.environ.items() if key != mkl.VARIABLE} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", WAVES], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
