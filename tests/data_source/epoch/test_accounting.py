"""The accounting of an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch import reading
from batchup_ng.data_source.epoch.accounting import Accounting
from batchup_ng.faults.isolation import PartialBatch
from tests.messages import raises


def test_what_is_delivered_and_what_failed_is_what_was_planned() -> None:
    accounting = Accounting()
    accounting.record(0, 4, 4, 0, "memory")
    accounting.record(1, 4, 3, 1, "slots")
    accounting.record(2, 2, 0, 2, "")
    accounting.balance(3)
    assert (accounting.planned, accounting.delivered, accounting.failed) == (10, 7, 3)
    assert accounting.transports == {"slots": 1, "socket": 0, "store": 0, "message": 0, "memory": 1}


@pytest.mark.parametrize("entry", [(1, 4, 4, 0), (0, 4, 3, 0), (0, 4, 4, 1)])
def test_a_batch_out_of_turn_or_with_samples_missing_is_refused(entry: Any) -> None:
    with raises(bu.AccountingError):
        Accounting().record(*entry, "")


def test_counts_that_do_not_balance_are_refused() -> None:
    accounting = Accounting()
    accounting.record(0, 4, 4, 0, "")
    with raises(bu.AccountingError):
        accounting.balance(2)
    accounting.counts = (1, 4, 4, 1, 0)
    with raises(bu.AccountingError):
        accounting.balance(1)


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@pytest.mark.parametrize(
    "made",
    [
        PartialBatch((np.arange(3),), 3),
        PartialBatch((np.arange(3),), 4, {2: ValueError("no")}),
        PartialBatch((np.arange(3),), 2, {2: ValueError("no")}),
    ],
)
def test_what_loses_samples_would_be_found_out(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    def fails(x: Any) -> Any:
        if 6 in x:
            raise ValueError("no")
        return (x,)

    source = bu.ArrayDataSource([np.arange(12)]).map(fails)
    with bu.SerialPool() as pool:
        for each in (source, pool.parallel_data_source(source)):
            assert len(list(each.batch_iterator(4, on_error="skip"))) == 3
            with monkeypatch.context() as patch:
                patch.setattr(reading, "isolate", lambda *_: made)
                with pytest.raises(bu.AccountingError):
                    list(each.batch_iterator(4, on_error="skip"))
