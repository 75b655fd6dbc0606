"""Lets MKL, torch's library for products on CPUs, give the same bits for a model alone and in a wave, on any CPU.

On CPUs that are not Intel's, MKL takes another kernel for one small product than for several at once: on an AMD EPYC
[5, 32] times [32, 6] has other last bits alone (MKL 2024.2, torch 2.13). The bytes of a study would then depend on
which runs are computed together. With `MKL_CBWR=AUTO` they do not, at no cost that we could measure.
"""

from __future__ import annotations

import os

from walktalk.cpuinfo import cpu_says

VARIABLE = "MKL_CBWR"
SAME_BITS = "AUTO"
INTEL = "GenuineIntel"


def keep_the_same_bits() -> None:
    """Set ``MKL_CBWR`` for this process and its children where the CPU is not Intel's.

    MKL reads it once, when it is first used, so this runs when walktalk is imported. A value that is there already
    stays. On Intel's CPUs waves have the same bits without it; where nobody tells whose it is, the variable is set.
    """
    if VARIABLE not in os.environ and cpu_says("vendor_id") != INTEL:
        os.environ[VARIABLE] = SAME_BITS
