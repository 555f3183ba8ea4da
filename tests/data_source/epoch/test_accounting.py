"""The accounting of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch.accounting import Accounting
from batchup_ng.work_pool import epoch_runner


def test_what_is_delivered_and_what_failed_is_what_was_planned() -> None:
    accounting = Accounting()
    accounting.settle(0, 4, 4, 0, "memory")
    accounting.settle(1, 4, 3, 1, "slots")
    accounting.settle(2, 2, 0, 2, "")
    accounting.balance(3)
    assert (accounting.planned, accounting.delivered, accounting.failed) == (10, 7, 3)
    assert accounting.transports == {"slots": 1, "pipe": 0, "inline": 0, "memory": 1}


@pytest.mark.parametrize("entry", [(1, 4, 4, 0), (0, 4, 3, 0), (0, 4, 4, 1)])
def test_a_batch_out_of_turn_or_with_samples_missing_is_refused(entry: Any) -> None:
    with pytest.raises(bu.AccountingError, match="this is a bug of the library"):
        Accounting().settle(*entry, "")


def test_counts_that_do_not_balance_are_refused() -> None:
    accounting = Accounting()
    accounting.settle(0, 4, 4, 0, "")
    with pytest.raises(bu.AccountingError, match="2 batches were planned for this epoch and 1 were delivered"):
        accounting.balance(2)
    accounting.failed += 1
    with pytest.raises(bu.AccountingError, match="4 samples were planned for this epoch, 4 delivered and 1"):
        accounting.balance(1)


def loses(verdict: epoch_runner.Verdict) -> Any:
    """Return a generator function in the place of `repair` that comes to this verdict whatever happened."""

    def repair(case: Any) -> Any:
        yield from ()
        return verdict

    return repair


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@pytest.mark.parametrize(
    "verdict",
    [
        epoch_runner.Verdict(made=True, batch=(np.arange(3),), kept=3),
        epoch_runner.Verdict(made=True, batch=(np.arange(3),), kept=4, bad={2: ValueError("no")}),
        epoch_runner.Verdict(),
    ],
)
def test_a_pool_that_lost_samples_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch, verdict: epoch_runner.Verdict
) -> None:
    def fails(x: Any) -> Any:
        if 6 in x:
            raise ValueError("no")
        return (x,)

    with bu.SerialPool() as pool:
        source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(12)]).map(fails), on_error="skip")
        assert len(list(source.batch_iterator(4))) == 3
        monkeypatch.setattr(epoch_runner, "repair", loses(verdict))
        with pytest.raises(bu.AccountingError):
            list(source.batch_iterator(4))
