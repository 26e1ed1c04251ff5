"""What memory is looked at by garbage collections, and how soon the C library gives it back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""See mallopt(3)."""

KEPT_BYTES: Final = 64 << 20
"""Freed memory at the end of the heap that we keep: as much as 64 bodies of a megabyte that come at once."""
LARGEST_BLOCK: Final = 32 << 20
"""Larger blocks are asked of the system one by one. The C library takes no higher limit."""
OWN_WISHES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def leave_out_of_collections() -> None:
    """Have no garbage collection look at what is there now: modules, settings, whatever lives as long as the process.

    A collection of everything stops all turns meanwhile, for 70 ms after some load; half of the objects were these.
    """
    gc.collect()
    gc.freeze()


def keep_freed_memory() -> None:
    """Have bodies take memory that earlier ones have left, where the C library is glibc and the operator says nothing.

    By itself glibc gives all but a few megabytes back and gets it again, page by page and zeroed, with the next body:
    a tenth of what a request of a megabyte costs, or more.
    """
    if any(name in os.environ for name in OWN_WISHES):
        return
    with contextlib.suppress(OSError, AttributeError):  # other C libraries have no such function
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
