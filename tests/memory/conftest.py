"""A budget for each test of memory."""

from __future__ import annotations

import pytest

from batchup_ng.accessors import cached, shared_rows
from batchup_ng.accessors.storage import arrow_column, chunk_cache, chunks
from batchup_ng.memory import budget as budgets
from batchup_ng.memory import leases
from batchup_ng.memory.budget import Living, MemoryBudget
from batchup_ng.work_pool import prefetch_buffer
from batchup_ng.work_pool.processes import pool as pools_of_processes
from batchup_ng.work_pool.processes import shared_arrays, shared_memory

ASKING = (
    arrow_column, budgets, cached, chunk_cache, chunks, leases, pools_of_processes, prefetch_buffer, shared_arrays,
    shared_memory, shared_rows,
)  # fmt: skip
"""The modules that ask the budget of the program."""


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> MemoryBudget:
    """A budget of this test's own, without a limit, for all that is made from now on."""
    made = MemoryBudget()
    made.set_limit(None)
    for module in ASKING:
        monkeypatch.setattr(module, "BUDGET", made)
    monkeypatch.setattr(chunk_cache, "_caches", Living())
    monkeypatch.setattr(chunks, "_wholes", Living())
    return made
