"""What Linux says of the CPU, and two settings of torch's libraries that follow from it; both are made at import.

`MKL_CBWR`: on CPUs that are not Intel's, MKL takes another kernel for one small product than for several at once: on an
AMD EPYC [5, 32] times [32, 6] has other last bits alone (MKL 2024.2, torch 2.13). The bytes of a study would then
depend on which runs are computed together. With `AUTO` they do not, at no cost that we could measure.

`ONEDNN_MAX_CPU_ISA`: some virtual machines advertise AMX but hide how large its tiles are. oneDNN believes the first
and configures empty tiles, and the first product of two 16-bit matrices ends the process with an illegal instruction
(oneDNN 3.12, torch 2.13). Linux does not tell whether the tiles are there, so no virtual machine uses them. Only
training in 16 bits on a CPU could be faster with AMX; where it is known to work, set
`ONEDNN_MAX_CPU_ISA=AVX512_CORE_AMX`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FILE = Path("/proc/cpuinfo")
MKL_VARIABLE = "MKL_CBWR"
SAME_BITS = "AUTO"
INTEL = "GenuineIntel"
ONEDNN_VARIABLE = "ONEDNN_MAX_CPU_ISA"
BELOW_AMX = "AVX512_CORE_FP16"  # everything that oneDNN knows of such a CPU, but for AMX


def cpu_says(key: str) -> str:
    """Reads what stands behind this word in /proc/cpuinfo, in the first line that begins with it; "" if nothing does.

    key: such as `vendor_id` or `flags`.
    """
    if not sys.platform.startswith("linux"):
        return ""
    try:
        with FILE.open() as lines:
            found = next((line for line in lines if line.startswith(key)), "")
    except OSError:
        return ""
    return found.partition(":")[2].strip()


def set_up_libraries() -> None:
    """Set both variables for this process and its children where this CPU needs them; a value of the user's stays.

    MKL and oneDNN read them once, when they are first used, so this runs when walktalk is imported. Where nobody tells
    whose the CPU is, MKL is told, too.
    """
    if MKL_VARIABLE not in os.environ and cpu_says("vendor_id") != INTEL:
        os.environ[MKL_VARIABLE] = SAME_BITS
    if ONEDNN_VARIABLE not in os.environ and {"amx_tile", "hypervisor"} <= set(cpu_says("flags").split()):
        os.environ[ONEDNN_VARIABLE] = BELOW_AMX
