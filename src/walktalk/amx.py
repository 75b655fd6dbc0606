"""Keeps oneDNN, torch's library for CPUs, away from AMX where the machine only claims to have it.

Some virtual machines advertise AMX (CPUID leaf 7) but hide how large its tiles are (leaf 0x1D is all zeros; the kernel
gives permission nevertheless). oneDNN believes the first and configures empty tiles from the second, and the first
product of two 16-bit matrices ends the process with an illegal instruction (oneDNN 3.12, torch 2.13).
"""

from __future__ import annotations

import os

from walktalk.cpuinfo import cpu_says

VARIABLE = "ONEDNN_MAX_CPU_ISA"
BELOW_AMX = "AVX512_CORE_FP16"  # everything that oneDNN knows of such a CPU, but for AMX
_TILE_LEAF = 0x1D
# push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; mov [r8], eax … mov [r8 + 12], edx; pop rbx; ret
_CPUID = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")


def avoid_broken_amx() -> None:
    """Set ``ONEDNN_MAX_CPU_ISA`` for this process and its children where AMX is advertised but has no tiles.

    oneDNN reads the variable once, when it is first used, so this runs when walktalk is imported. A value that is there
    already stays. Where the CPU does not speak of AMX this costs the first lines of ``/proc/cpuinfo``.
    """
    if VARIABLE not in os.environ and "amx_tile" in cpu_says("flags").split() and not _has_tiles():
        os.environ[VARIABLE] = BELOW_AMX


def _has_tiles() -> bool:
    """Whether palette 1, the one that is used, has tiles of more than no bytes."""
    try:
        highest, *_ = cpuid(0, 0)
        if highest < _TILE_LEAF:
            return False
        palettes, *_ = cpuid(_TILE_LEAF, 0)
        tile_bytes, *_ = cpuid(_TILE_LEAF, 1)
    except OSError:  # no memory may be executed here: nobody can tell
        return False
    return palettes >= 1 and tile_bytes >> 16 > 0


def cpuid(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
    """What an x86-64 CPU says of itself: the registers EAX, EBX, ECX and EDX after ``cpuid``.

    leaf: which question is asked (EAX before). subleaf: which part of the answer is wanted (ECX before).
    """
    import ctypes
    import mmap

    code = mmap.mmap(-1, len(_CPUID), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_CPUID)
    answer = (ctypes.c_uint32 * 4)()
    call = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
    call(ctypes.addressof(ctypes.c_char.from_buffer(code)))(leaf, subleaf, ctypes.addressof(answer))
    eax, ebx, ecx, edx = answer
    return eax, ebx, ecx, edx
