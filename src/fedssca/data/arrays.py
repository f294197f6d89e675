"""Arrays at addresses where compiled programs can read them without a copy."""

from __future__ import annotations

import numpy as np

__all__ = ["aligned"]

LINE = 64
"""Compiled programs read an array in place if its address is a multiple of this many bytes."""


def aligned(array: np.ndarray) -> np.ndarray:
    """Return the array itself if programs can read it in place, else an aligned copy.

    Memory-mapped NPY files are aligned already.
    """
    if not array.size or (array.flags.c_contiguous and array.ctypes.data % LINE == 0):
        return array
    room = np.empty(array.nbytes + LINE, np.uint8)
    skip = -room.ctypes.data % LINE
    copy = room[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
