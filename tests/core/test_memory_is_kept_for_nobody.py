"""What runs have given up goes back to the system, and not only to the allocator."""

import platform

import pytest

from placet_server.loops.memory_trimmer import (
    GROWN_BYTES_MIN,
    MemoryTrimmer,
    malloc_trim,
    resident_bytes,
)


async def test_memory_that_is_free_is_given_back_once_there_may_be_much() -> None:
    asked: list[int] = []
    resident = [100, 100 + GROWN_BYTES_MIN - 1, 100 + GROWN_BYTES_MIN, 200, 200 + GROWN_BYTES_MIN - 1]
    trimmer = MemoryTrimmer(asked.append, lambda: resident.pop(0))
    for times in (0, 1, 1):
        assert not await trimmer.step()
        assert [0] * times == asked


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only that of glibc keeps it")
def test_the_allocator_here_can_be_asked() -> None:
    trim = malloc_trim()
    assert trim is not None
    trim(0)
    assert resident_bytes() > 2**20
