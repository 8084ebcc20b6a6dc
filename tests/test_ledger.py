"""The ledger: sums by round, and columns of equal length."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcore.federation.ledger import Ledger

COSTS = ["bytes_down", "bytes_up", "n_active", "n_late", "n_dropped", "n_refused"]
COUNTS = ["round", "n_exchanges", *COSTS]
EXCHANGES = st.lists(
    st.fixed_dictionaries(
        {name: st.integers(0, 2**40) for name in COSTS}
        | {"seconds": st.floats(0, 1e6), "more": st.booleans()}
    ),
    min_size=1,
)


def spend(ledger, round, **changes):
    cost = dict.fromkeys(COSTS, 1) | {"seconds": 0.5} | changes
    ledger.exchange(round, **cost)


@given(EXCHANGES)
def test_a_line_is_the_sum_of_its_exchanges(exchanges):
    ledger, round, rows = Ledger(), 1, []
    for exchange in exchanges:
        cost = dict(exchange)
        round += cost.pop("more")
        ledger.exchange(round, **cost)
        rows.append(cost | {"round": round, "n_exchanges": 1})
    history = pd.DataFrame(ledger.history())
    table = pd.DataFrame(rows, columns=[*COUNTS, "seconds"])
    lines = table.groupby("round", as_index=False).sum()
    assert_array_equal(history[COUNTS], lines[COUNTS])
    assert_allclose(history["time"], lines["seconds"].cumsum())


def test_columns_are_int64_or_float64_of_equal_length():
    for n_rounds in (0, 3):
        ledger = Ledger()
        for round in range(1, n_rounds + 1):
            spend(ledger, round, bytes_up=np.int32(2**31 - 1))
            spend(ledger, round, bytes_up=2**53)
            ledger.report({"objective": np.float32(2)})
        history = ledger.history()
        for name, column in history.items():
            assert column.shape == (n_rounds,)
            assert column.dtype == (np.int64 if name in COUNTS else np.float64)
        assert_array_equal(history["bytes_up"], np.full(n_rounds, 2**53 + 2**31 - 1))


def test_figures_are_nan_where_they_were_not_measured():
    ledger = Ledger()
    spend(ledger, 1)
    ledger.report({"objective": 3.0})
    spend(ledger, 2)
    ledger.report({"gap": 0.5})
    ledger.report({"objective": 2.0, "gap": 0.25})
    spend(ledger, 3)
    history = ledger.history()
    assert list(history)[-2:] == ["objective", "gap"]
    assert_array_equal(history["objective"], [3.0, 2.0, np.nan])
    assert_array_equal(history["gap"], [np.nan, 0.25, np.nan])


def test_history_is_a_copy():
    ledger = Ledger()
    spend(ledger, 1)
    ledger.history()["time"][:] = 9
    spend(ledger, 1)
    assert_array_equal(ledger.history()["time"], [1.0])


def test_rounds_start_at_one_and_never_go_back():
    ledger = Ledger()
    with pytest.raises(ValueError, match="round is 0, expected at least 1"):
        spend(ledger, 0)
    spend(ledger, 4)
    with pytest.raises(ValueError, match="round is 3, expected at least 4"):
        spend(ledger, 3)
    assert_array_equal(ledger.history()["round"], [4])


def test_figures_need_a_round_and_names_of_their_own():
    ledger = Ledger()
    with pytest.raises(ValueError, match="report before the first exchange"):
        ledger.report({"gap": 1.0})
    spend(ledger, 1)
    with pytest.raises(ValueError, match=r"figures has \['time'\]"):
        ledger.report({"gap": 1.0, "time": 3.0})
    assert "gap" not in ledger.history()
