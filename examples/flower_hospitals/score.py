"""Test what the hospitals hold after four runs: the multi-task row of the demo."""

import sys
from pathlib import Path

import numpy as np
from hospitals import rows

import fedcore
from fedcore import demo


def account(folder: Path, split: int, n_hospitals: int = 3) -> demo.Account:
    """Let each hospital test its people with its own models; add up what they tell."""
    wrong, n_rows, by_person, names = 0, 0, [], 0
    for hospital in range(n_hospitals):
        _, (X, y, clients) = rows(hospital, n_hospitals, split)
        own = folder / f"hospital-{hospital}" / f"split-{split}"
        model = fedcore.load(own / f"hospital-{hospital}.npz")
        errs = model.predict(X, clients) != y
        wrong, n_rows = wrong + np.count_nonzero(errs), n_rows + len(y)
        for person in model.clients_:
            own_errs = errs[clients == person]
            by_person.append(100 * np.count_nonzero(own_errs) / len(own_errs))
        names += len(model.clients_)
    shared = fedcore.load(folder / "server" / f"split-{split}" / "model.npz")
    up, down = (shared.history_[f"bytes_{way}"].sum() / names for way in ("up", "down"))
    return demo.Account(
        arm=demo.MULTI,
        error=100 * wrong / n_rows,
        by_person=np.array(by_person),
        rounds=shared.n_rounds_,
        kb_up=up / 1e3,
        kb_down=down / 1e3,
        gap=shared.dual_gap_,
        seconds=float(shared.history_["time"][-1]),
    )


if __name__ == "__main__":
    print(demo.HEAD)
    print(demo.row([account(Path(sys.argv[1]), split) for split in range(1, 5)]))
