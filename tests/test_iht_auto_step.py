"""step_size="auto": rounds that come near what is possible, though clients differ."""

import numpy as np
import pytest
from sklearn.linear_model import orthogonal_mp_gram

from fedcore import FedHT, FedIterHT
from fedcore.datasets import make_iht_simulation

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
TAU = 200


@pytest.fixture(scope="module")
def simulation():
    """Clients whose rows bend along directions of their own, and OMP's objective."""
    X, y, clients = make_iht_simulation(1, n_clients=30, random_state=0)
    x = orthogonal_mp_gram(X.T @ X, X.T @ y, n_nonzero_coefs=TAU)
    return X, y, clients, np.mean((y - X @ x) ** 2) / 2


@pytest.mark.parametrize("local_steps", [1, 5])
@pytest.mark.parametrize("control_variates", [False, True])
@pytest.mark.parametrize("estimator", [FedIterHT, FedHT])
def test_local_steps_come_near_pooled_omp(
    simulation, estimator, control_variates, local_steps
):
    X, y, clients, goal = simulation
    model = estimator(
        TAU,
        local_steps=local_steps,
        control_variates=control_variates,
        fit_intercept=False,
        max_rounds=100,
        tol=0,
    ).fit(X, y, clients)
    assert model.objective_ < 1.25 * goal
