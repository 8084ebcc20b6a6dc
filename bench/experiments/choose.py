"""Choose a setting by cross-validation inside the training rows."""

from collections.abc import Callable

MOST_SWEEPS = 3
PATIENCE = 2  # values without gain after which an axis is left in that direction


def search(
    axes: dict[str, tuple], first: dict, score: Callable[[dict], float]
) -> tuple[dict, float, int]:
    """Walk along one axis at a time until a sweep over all axes changes nothing.

    Parameters
    ----------
    axes : dict
        Name -> values in their order. From the current value the walk goes up and
        down the axis, each way until `PATIENCE` values in a row brought no gain.
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
            begin = values.index(setting[name])
            for way in (values[begin + 1 :], values[:begin][::-1]):
                idle = 0
                for value in way:
                    candidate = setting | {name: value}
                    idle += 1
                    if scored(candidate) > best:
                        setting, best, idle = candidate, scored(candidate), 0
                    if idle == PATIENCE:
                        break
        if setting == before:
            break
    return setting, best, len(known)
