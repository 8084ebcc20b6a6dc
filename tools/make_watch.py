"""Make fedcore/datasets/data/watch.npz from the recordings that seglearn ships.

    pip download seglearn==1.2.5 --no-deps && unzip seglearn-1.2.5-*.whl
    python tools/make_watch.py seglearn/data/watch_dataset.npy

The source is a pickled dictionary: run this only on the file of that package.
"""

import argparse
from pathlib import Path

import numpy as np

RATE = 50  # samples a second
WIDTH = 4 * RATE  # a window is four seconds; windows do not overlap
TARGET = Path(__file__).parents[1] / "fedcore" / "datasets" / "data" / "watch.npz"


def windows_of(recording):
    """Cut a (T, 6) recording into (n, 8, WIDTH) windows: six channels, two norms."""
    norms = [np.linalg.norm(recording[:, part], axis=1) for part in np.s_[:3, 3:]]
    signal = np.column_stack([recording, *norms])
    n = len(signal) // WIDTH
    return signal[: n * WIDTH].reshape(n, WIDTH, -1).transpose(0, 2, 1)


def features_of(windows, channels):
    """Return the (n, d) features of windows and the names of the columns."""
    mean, std = windows.mean(axis=2), windows.std(axis=2)
    centred = windows - mean[:, :, None]
    power = np.abs(np.fft.rfft(centred * np.hanning(WIDTH), axis=2)) ** 2
    frequency = np.fft.rfftfreq(WIDTH, 1 / RATE)
    by_channel = {"mean": mean, "std": std}
    for percent in (5, 25, 75, 95):
        by_channel[f"q{percent:02d}"] = np.percentile(windows, percent, axis=2)
    by_channel["step"] = np.abs(np.diff(windows, axis=2)).mean(axis=2)
    by_channel["freq"] = power @ frequency / power.sum(axis=2)

    unit = centred[:, :6] / std[:, :6, None]
    correlation = unit @ unit.transpose(0, 2, 1) / WIDTH
    first, second = np.triu_indices(6, 1)

    names = [f"{name}_{channel}" for name in by_channel for channel in channels]
    names += [
        f"corr_{channels[a]}_{channels[b]}" for a, b in zip(first, second, strict=True)
    ]
    return np.hstack([*by_channel.values(), correlation[:, first, second]]), names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="watch_dataset.npy of seglearn 1.2.5")
    parser.add_argument("target", type=Path, nargs="?", default=TARGET)
    args = parser.parse_args()

    source = np.load(args.source, allow_pickle=True).item()
    person, exercise = source["subject"], source["y"]
    # By person, arm and exercise; the windows of a recording stay in time order.
    order = np.lexsort((exercise, source["side"], person))
    cut = [windows_of(np.asarray(source["X"][i])) for i in order]
    recording = np.repeat(np.arange(len(cut)), [len(windows) for windows in cut])
    row = order[recording]

    channels = [*source["X_labels"], "anorm", "wnorm"]
    X, names = features_of(np.concatenate(cut), channels)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    np.savez_compressed(
        args.target,
        X=X.astype(np.float16),
        y=exercise[row].astype(np.int8),
        client=person[row].astype(np.int8),
        recording=recording.astype(np.uint8),
        features=np.array(names),
        exercises=np.array(source["y_labels"]),
    )
    print(f"{args.target}: {X.shape}, {args.target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
