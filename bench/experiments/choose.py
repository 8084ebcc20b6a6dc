"""Choose a setting by cross-validation inside the training rows."""

from collections.abc import Callable

MOST_SWEEPS = 3


def search(
    axes: dict[str, tuple], first: dict, score: Callable[[dict], float]
) -> tuple[dict, float, int]:
    """Improve one axis at a time until a sweep over all axes changes nothing.

    Parameters
    ----------
    axes : dict
        Name -> values; all values of an axis are tried while the others stay.
    first : dict
        Where to begin.
    score : callable
        From a setting to the figure to be made large.

    Returns
    -------
    setting : dict
    best : float
        Its score.
    n_tried : int
        Distinct settings that were scored.
    """
    known = {}

    def scored(setting):
        key = tuple(setting.values())
        if key not in known:
            known[key] = score(setting)
        return known[key]

    setting, best = dict(first), scored(first)
    for _ in range(MOST_SWEEPS):
        before = dict(setting)
        for name, values in axes.items():
            for value in values:
                candidate = setting | {name: value}
                if scored(candidate) > best:
                    setting, best = candidate, scored(candidate)
        if setting == before:
            break
    return setting, best, len(known)
