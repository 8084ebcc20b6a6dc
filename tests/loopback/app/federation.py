"""What coordinator and sites of the test have in common."""

from fedcore import FedMTLSVC
from fedcore.datasets import make_mtl_classification

N_SITES, PEOPLE_PER_SITE = 3, 2


def estimator():
    """Give a model that stops after a few rounds."""
    return FedMTLSVC(aggregation="line_search", tol=1e-9, max_rounds=3, random_state=3)


def rows():
    """Give the rows of all sites."""
    return make_mtl_classification(
        N_SITES * PEOPLE_PER_SITE, 25, 8, heterogeneity=0.3, random_state=1
    )[:3]
