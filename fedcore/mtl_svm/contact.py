"""What a client knows of its own gap, for the bound when others are silent.

See `certificate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def last_gaps(cs: Any, active: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Add up the gaps that the clients had after the step of their last contact."""
    before, after = cs.met[:, active]
    return ((1 - step) * before + step * after).sum(axis=0)


def meet(cs: Any, when: int, active, step, message: dict) -> np.ndarray:
    """Measure and remember the gaps at the broadcast w; give their sum."""
    gaps = np.zeros((len(active), cs.n_classes))
    cs.kernel.gaps(
        *(active, step, message["w"], gaps),
        inv_C2=cs.inv_C2,
        working=message["working"],
    )
    cs.met[when, active] = gaps
    return gaps.sum(axis=0)


def take_steps(cs: Any, message: dict) -> None:
    """Take the step of each client's last visit."""
    everybody = np.arange(len(cs.starts) - 1, dtype=np.int32)
    meet(cs, 1, everybody, np.ascontiguousarray(message["step"]), message)


def stay(cs: Any, v: Any, message: dict) -> Any:
    """Shift v so that w + v is what it was at the w that a client last heard."""
    table, contact = message["contact_w"] - message["w"], message["contact"]
    if cs.columns is None:
        return v + table[contact]
    row = np.repeat(np.arange(v.shape[0]), np.diff(v.indptr))
    client, label = np.divmod(row, cs.n_classes)
    v.data += table[contact[client], label, v.indices]
    return v
