"""DaDiL and FedDaDiL: scikit-learn's contract, and what labels may not do."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import DaDiL, FedDaDiL


@parametrize_with_checks(
    [
        DaDiL(max_epochs=10, batch_size=32, random_state=0),
        FedDaDiL(max_rounds=10, batch_size=32, random_state=0),
        DaDiL(inference="ensemble", max_epochs=5, batch_size=32, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
