"""The demo's section on sparse models: its table says what the fits did."""

import numpy as np
import pytest

from fedcore import demo_sparse

SPARSE = ("FedBestSubset", "FedIterHT", "FedHT", "DistributedIHT")


@pytest.fixture(scope="module")
def shown():
    lines = []
    results = demo_sparse.run(n_splits=2, seed=2**32 - 1, say=lines.append)
    return results, lines


def test_every_model_has_its_row(shown):
    results, lines = shown
    heads = [i for i, line in enumerate(lines) if line == demo_sparse.HEAD]
    assert len(heads) == len(results) == 2
    for head, (_, splits) in zip(heads, results.items(), strict=True):
        for line, name in zip(lines[head + 1 :], splits[0], strict=False):
            assert line.startswith(name)
            figures = line[len(name) :].replace("+-", "").split()
            of_model = [split[name] for split in splits]
            error = np.mean([m.error for m in of_model])
            assert float(figures[0]) == pytest.approx(error, abs=0.051)
            assert len(figures) == 7


def test_sparse_models_keep_to_their_number_and_learn(shown):
    results, _ = shown
    for task in demo_sparse.TASKS:
        for split in results[task.name]:
            assert tuple(split) == (demo_sparse.DENSE, *SPARSE)
            for name in SPARSE:
                assert 0 < split[name].n_nonzero <= task.n_nonzero
                assert split[name].error < 15
                assert split[name].kb_up > 0 < split[name].kb_down


def test_pooling_counts_the_rows_that_leave(shown):
    results, _ = shown
    row_kb = {"breast cancer": 426 * 30 * 8 / 1e4, "digits": 1347 * 64 * 8 / 1e4}
    for name, splits in results.items():
        pooled = splits[0][demo_sparse.DENSE]
        assert (pooled.kb_up, pooled.kb_down) == (row_kb[name], 0)
