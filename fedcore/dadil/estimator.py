"""DaDiL and FedDaDiL: dictionaries of labelled data sets, for domain adaptation."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.utils import check_scalar

from .._estimators import check_choice, check_engine
from .._rows import check_bool, check_n_jobs
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from ._base import DomainDictionary, Problem, Solution, is_auto
from .central import learn
from .deployed import DeployedDictionary
from .domains import join
from .protocol import Dictionary
from .start import sizes

SERVERS = ("random", "loss", "mean")


class DaDiL(DomainDictionary):
    """Dataset dictionary learning: labels for a domain that has none.

    Every domain is seen as a labelled point set between a few atoms, in the sense of
    optimal transport; atoms and coordinates are learnt so that the barycenters come
    near to the domains, where labels are known with these [1]_:

    ``min over atoms P_k, alpha_l of sum_l W(Q_l, B(alpha_l; P_1 .. P_K))``

    The barycenter at the target's coordinates has labels, and trains its classifier.

    Parameters
    ----------
    n_atoms : int, default=3
    atom_size : int or "auto", default="auto"
        Points of an atom. "auto": four batches, but no more than the largest domain
        has rows.
    batch_size : int, default=128
        Points of an atom, and rows of a domain, in a step; at most `atom_size`.
    label_weight : float or "auto", default="auto"
        Cost of another label against squared distance; "auto" as for
        `fedcore.ot.labelled_barycenter`.
    classifier : classifier of scikit-learn, default=None
        What learns from soft labels, as weights if it takes them. None: logistic
        regression with ``C = 10 / atom_size``.
    inference : {"reconstruct", "ensemble"}, default="reconstruct"
        "reconstruct": a classifier of the reconstructed domain. "ensemble": one
        classifier an atom, weighted by the domain's coordinates.
    target : hashable or list, default=None
        Identifiers of domains whose labels are not to be used. None: those all of
        whose labels are missing.
    step_size : float, default=0.1
        Of Adam.
    scaler : {"overall", "isotropic", "standard", "none"}, default="overall"
        What each domain does to its own rows first. "overall": it subtracts the mean
        and divides by the standard deviation of all their entries, which leaves
        differences between columns to the atoms. "isotropic": the mean of each column,
        and one standard deviation. "standard": those of each column, for columns in
        different units. "none": nothing.
    max_iter : int, default=400
        Steps, each over a batch of every domain. There is no other end.
    client_column : str or int, default=None
        Name or index of the column of X that holds the domains' identifiers.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    atoms_ : ndarray of shape (n_atoms, atom_size, n_features)
        Points, in scaled units.
    atom_labels_ : ndarray of shape (n_atoms, atom_size, n_classes)
        Their soft labels.
    weights_ : ndarray of shape (n_clients, n_atoms)
        Coordinates of each domain: not negative, summing to 1.
    domain_mean_, domain_scale_ : ndarray of shape (n_clients, n_features)
        By which each domain scales its rows.
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the domains, sorted if they can be.
    targets_ : ndarray
        Those among them that have no labels.
    classes_ : ndarray of shape (n_classes,)
    agreement_ : float
        Share of the targets' rows (without any, of all) to which both ways of inference
        give the same label: a score that needs no label.
    source_score_ : float
        Mean accuracy by which each source is labelled from its own reconstruction: how
        much the dictionary has learnt of labels. Where it is below the accuracy of a
        plain classifier on held-out sources, do not trust it with a target.
    objective_ : float
        Sum of the domains' losses, mean over the last tenth of the steps.
    n_iter_ : int
        Steps.
    history_ : dict of ndarray
        One entry a step: round, time, objective.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    .. [1] E. Montesuma et al., "Multi-Source Domain Adaptation through Dataset
       Dictionary Learning in Wasserstein Space", ECAI 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcore import DaDiL
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=300)
    >>> clients = np.repeat(["a", "b", "c"], 100)
    >>> X = rng.normal(size=(300, 2)) + 4 * y[:, None] + (clients == "c")[:, None]
    >>> model = DaDiL(target="c", max_iter=50, random_state=0).fit(X, y, clients)
    >>> bool(model.score(X[200:], y[200:]) > 0.95)
    True
    """

    _counted = "n_iter_"

    def __init__(
        self,
        n_atoms=3,
        atom_size="auto",
        *,
        batch_size=128,
        label_weight="auto",
        classifier=None,
        inference="reconstruct",
        target=None,
        step_size=0.1,
        scaler="overall",
        max_iter=400,
        client_column=None,
        random_state=None,
        verbose=0,
    ):
        self.n_atoms = n_atoms
        self.atom_size = atom_size
        self.batch_size = batch_size
        self.label_weight = label_weight
        self.classifier = classifier
        self.inference = inference
        self.target = target
        self.step_size = step_size
        self.scaler = scaler
        self.max_iter = max_iter
        self.client_column = client_column
        self.random_state = random_state
        self.verbose = verbose

    def _n_steps(self, n_rows, n_batch):
        return int(self.max_iter)

    def _check_method(self):
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)

    def _solve(self, problem: Problem, seed: int) -> Solution:
        cohort = problem.cohort
        domains = join(cohort, cohort.y, int(self.n_atoms), self.scaler)
        n, n_batch = sizes(
            *(_size(self.atom_size), int(self.batch_size)),
            *(np.diff(cohort.offsets), len(cohort.classes)),
        )
        learnt = learn(
            domains,
            (int(self.n_atoms), n, cohort.X.shape[1], len(cohort.classes)),
            n_batch,
            label_weight=self.label_weight,
            rate=float(self.step_size),
            max_iter=int(self.max_iter),
            seed=seed,
            on_step=_print_round if self.verbose else None,
        )
        objective = learnt.history["objective"]
        last = float(objective[-max(1, len(objective) // 10) :].mean())
        return Solution(
            *(learnt.X, learnt.logits, domains.alphas, domains.mean, domains.scale),
            *(learnt.history, last),
        )


class FedDaDiL(DeployedDictionary, DomainDictionary):
    """Federated dataset dictionary learning.

    The server draws a batch of each atom and sends it to the clients; each moves a copy
    of its own, and its coordinates, which never leave it; the server writes the mean of
    the versions back, or one of them [1]_. Rows, labels, scales and coordinates stay
    with the clients. The atoms are no rows of anybody: they start as noise, for whose
    moments clients add up their columns once.

    Parameters
    ----------
    n_atoms, atom_size, batch_size, label_weight, classifier, inference, target, \
step_size, scaler
        As for `DaDiL`.
    local_epochs : int, default=1
        Passes of a client over its rows in a round.
    server : {"mean", "random", "loss"}, default="mean"
        What the server writes back: the mean of all versions; one client's, drawn, as
        published; that of the least loss, which is most often a target's, for those
        pay no label.
    keep_moments : bool, default=True
        Whether a client keeps Adam's moments of the atoms from round to round, in
        memory of its own, `2 n_atoms atom_size (n_features + n_classes)` numbers.
        False: as published, they begin anew in each round.
    max_rounds : int, default=150
        There is no other end.
    client_column : str or int, default=None
        Name or index of the column of X that holds the clients' identifiers.
    engine : LocalEngine, default=None
        Where the federation runs.
    n_jobs : int, default=None
        Threads. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0

    Attributes
    ----------
    atoms_, atom_labels_, weights_, domain_mean_, domain_scale_, clients_, targets_, \
classes_, agreement_, source_score_, n_features_in_, feature_names_in_
        As for `DaDiL`.
    objective_ : float
        Sum of the clients' losses, mean over their steps of the last round.
    n_rounds_ : int
    history_ : dict of ndarray
        One entry a round: objective, drift (root mean square distance between two
        clients' versions of a point and its logits), bytes_up, bytes_down and more.

    References
    ----------
    .. [1] F. Castellon et al., "Federated Dataset Dictionary Learning for Multi-Source
       Domain Adaptation", ICASSP 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcore import FedDaDiL
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=300)
    >>> clients = np.repeat(["a", "b", "c"], 100)
    >>> X = rng.normal(size=(300, 2)) + 4 * y[:, None] + (clients == "c")[:, None]
    >>> y[clients == "c"] = -1  # nobody knows
    >>> model = FedDaDiL(max_rounds=10, random_state=0).fit(X, y, clients)
    >>> model.targets_, model.predict(X[200:]).shape
    (array(['c'], dtype='<U1'), (100,))
    """

    def __init__(
        self,
        n_atoms=3,
        atom_size="auto",
        *,
        batch_size=128,
        local_epochs=1,
        label_weight="auto",
        classifier=None,
        inference="reconstruct",
        server="mean",
        keep_moments=True,
        target=None,
        step_size=0.1,
        scaler="overall",
        max_rounds=150,
        client_column=None,
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_atoms = n_atoms
        self.atom_size = atom_size
        self.batch_size = batch_size
        self.local_epochs = local_epochs
        self.label_weight = label_weight
        self.classifier = classifier
        self.inference = inference
        self.server = server
        self.keep_moments = keep_moments
        self.target = target
        self.step_size = step_size
        self.scaler = scaler
        self.max_rounds = max_rounds
        self.client_column = client_column
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _n_steps(self, n_rows, n_batch):
        return int(self.max_rounds) * max(1, int(self.local_epochs) * n_rows // n_batch)

    def _check_method(self):
        check_scalar(self.local_epochs, "local_epochs", Integral, min_val=1)
        check_scalar(self.max_rounds, "max_rounds", Integral, min_val=1)
        check_choice("server", self.server, SERVERS)
        check_bool(self.keep_moments, "keep_moments")
        check_engine(self.engine)
        check_n_jobs(self.n_jobs)

    def _algorithm(self) -> Dictionary:
        auto = is_auto(self.label_weight)
        return Dictionary(
            n_atoms=int(self.n_atoms),
            atom_size=_size(self.atom_size),
            batch_size=int(self.batch_size),
            local_epochs=int(self.local_epochs),
            label_weight="auto" if auto else float(self.label_weight),
            step_size=float(self.step_size),
            server=self.server,
            keep_moments=bool(self.keep_moments),
            scaler=self.scaler,
            max_rounds=int(self.max_rounds),
        )

    def _solve(self, problem: Problem, seed: int) -> Solution:
        algorithm = self._algorithm()
        engine = LocalEngine() if self.engine is None else self.engine
        try:
            outcome = run(
                algorithm,
                engine,
                problem.cohort,
                seed=seed,
                n_jobs=self.n_jobs,
                any_seed=self.random_state is None,
                on_round=_print_round if self.verbose else None,
            )
        except MessageError as error:
            raise ValueError(
                f"the fit overflowed ({error}): scale the columns of X, or lower "
                f"step_size"
            ) from error
        own = outcome.personal
        return Solution(
            *(outcome.state["X"], outcome.state["logits"]),
            *(own["alphas"], own["mean"], own["scale"], outcome.history),
            float(outcome.state["objective"]),
        )


def _size(atom_size) -> int:
    return 0 if is_auto(atom_size) else int(atom_size)


def _print_round(round: int, figures: dict[str, float]) -> None:
    told = ", ".join(f"{name} {value:.6g}" for name, value in figures.items())
    print(f"[fedcore] round {round}, {told}")
