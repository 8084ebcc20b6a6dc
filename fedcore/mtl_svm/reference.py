"""The clients of the multi-task SVM in plain Python: what csrc/fc_svm.c computes.

Oracle of the tests and baseline of the benchmarks. Names are those of math.md, section
1. Sums are taken in another order than in C, so the last digits differ; a local solve
passes over the rows until it is done, without the kernel's short cuts.
"""

import numpy as np
from scipy import sparse

WORD = 2**32
ROWS = 2  # FC_RNG_ROWS
SETTLED_MOST = 3
LEAST_VIOLATION = 1e-12  # of less is rounding


class ReferenceClients:
    """Clients of a cohort; does in loops what `SVMCohort` does in C.

    `clients` lists (X, y, weight), one entry a client: X (n, d), an array or CSR; y
    (n,), codes of classes or targets; weight (n,) or None. All else is as there.
    """

    def __init__(
        self,
        clients,
        *,
        loss,
        n_classes,
        C1,
        epsilon,
        bias,
        class_weight,
        absent,
        personal=None,
    ):
        self.tasks = []
        shape = len(clients), n_classes
        self.absent = np.zeros(shape, int) if absent is None else absent.astype(int)
        for X, y, weight in clients:
            rows, length = _rows(X, bias), X.shape[1] + (bias != 0)
            own = np.ones(length) if personal is None else np.asarray(personal, float)
            tasks = []
            for c in range(n_classes):
                upper = np.full(len(y), C1) * (1 if weight is None else weight)
                if not loss.endswith("hinge"):
                    tasks.append(_Task(rows, own, y, upper, loss, epsilon))
                    continue
                inside = y == (c if n_classes > 1 else 1)
                if class_weight is not None:
                    upper = upper * class_weight[c][inside.astype(int)]
                tasks.append(_Task(rows, own, 2.0 * inside - 1, upper, loss, 0))
            self.tasks.append(tasks)

    def update(self, active, step, w, *, coupling, passes, hand_on, **call):
        """Run passes at the active clients; w (C, length) moves along with `hand_on`.

        Returns the changes of s (n_active, C, length), whose sum the coordinator adds
        to w, and the figures of fc_svm_update (C, 3).
        """
        ds, figures = np.zeros((len(active), *w.shape)), np.zeros((len(w), 3))
        for m, c, task, inv, stream in self._visits(active, step, **call):
            task.b_before, task.s_before = task.b.copy(), task.s.copy()
            u, seen = w[c] + inv * task.own * task.s, 0.0
            q = coupling[c] + inv * task.own
            for number in range(passes):
                met = task.one_pass(u, q, random_words(*stream, number))
                seen = met if number == 0 else seen
            ds[m, c] = task.weighted_rows(task.b - task.b_before)
            task.s = task.s + ds[m, c]
            figures[c] += *task.terms_of_change(ds[m, c], inv), seen
            if hand_on:
                w[c] += coupling[c] * ds[m, c]
        return ds, figures

    def solve(self, active, step, w, *, tol, true_inv_C2, passes, renew=False, **call):
        """Solve the active clients' own duals at a fixed w, or measure (tol < 0).

        Returns s (n_active, C, length) and the figures of fc_svm_solve (C, 6).
        """
        s, figures = np.zeros((len(active), *w.shape)), np.zeros((len(w), 6))
        for m, c, task, inv, stream in self._visits(active, step, **call):
            if renew:
                task.s = task.weighted_rows(task.b)
            made = task.solve(w[c], inv, tol[c], passes, stream) if tol[c] >= 0 else 0
            s[m, c] = task.s
            true_inv = true_inv_C2[self.absent[active[m], c], c]
            figures[c] += (
                *task.values(w[c], inv),
                *task.values(w[c], true_inv)[1:],
                made,
            )
        return s, figures

    def gaps(self, active, step, w, *, inv_C2, working):
        """Measure the active clients at w: their gaps (n_active, C)."""
        gaps = np.zeros((len(active), len(w)))
        named = {"seed": 0, "exchange": 0, "first_client": 0}
        visits = self._visits(active, step, inv_C2=inv_C2, working=working, **named)
        for m, c, task, inv, _ in visits:
            gaps[m, c] = task.values(w[c], inv)[0]
        return gaps

    def _visits(self, active, step, *, inv_C2, working, seed, exchange, first_client):
        for m, k in enumerate(active):
            for c in np.flatnonzero(working):
                task = self.tasks[k][c]
                task.take_step(1 if step is None else step[m, c])
                stream = seed, exchange, first_client + int(k), int(c)
                yield m, c, task, inv_C2[self.absent[k, c], c], stream


class _Task:
    """One client in one class: its rows, and what it keeps between visits.

    A row of class y is a row of target y whose multiplier has the sign of y: then both
    kinds have the same gradient x . u - y + D b, and differ in the bounds of b. `own`
    (length,) is 1 for personal columns, 0 for those with a shared part alone.
    """

    def __init__(self, rows, own, y, upper, loss, epsilon):
        self.rows, self.own, self.y, self.epsilon = rows, own, y, epsilon
        self.counts = upper > 0
        self.classifies = loss.endswith("hinge")
        self.D, self.U = np.zeros(len(y)), upper
        if loss.startswith("squared"):
            self.D[self.counts] = 1 / (2 * upper[self.counts])
            self.U = np.full(len(y), np.inf)
        self.low = np.where(self.classifies & (y > 0), 0, -self.U)
        self.high = np.where(self.classifies & (y < 0), 0, self.U)
        self.b, self.s = np.zeros(len(y)), np.zeros(len(own))
        self.b_before, self.s_before = self.b, self.s
        self.rest, self.level = np.zeros(len(y), int), np.zeros(len(y), int)
        self.violation = np.inf

    def take_step(self, step):
        """Keep only a share of the last visit's change."""
        if step != 1:
            moved = self.b != self.b_before
            self.rest[moved] = self.level[moved] = 0
            self.b = self.b_before + step * (self.b - self.b_before)
            self.s = self.s_before + step * (self.s - self.s_before)

    def one_pass(self, u, q, words):
        """Visit the rows that do not rest; return the gap as seen on the way.

        q (length,) says how fast u moves along a row.
        """
        ready = [i for i in np.flatnonzero(self.counts) if not self.rest[i]]
        self.rest[self.rest > 0] -= 1
        seen, worst, firm = 0.0, 0.0, self.violation
        for i in shuffled(ready, words):
            columns, x = self.rows[i]
            a = x @ u[columns]
            seen += self.loss(i, a) + self.b[i] * a - self.dual(i)
            Q = x @ (q[columns] * x) + self.D[i]
            b, violation, settled = self.best(i, a, Q, firm)
            worst = max(worst, violation)
            self.level[i] = min(self.level[i] + 1, SETTLED_MOST) if settled else 0
            self.rest[i] = 2 ** self.level[i] - 1
            u[columns] += q[columns] * (b - self.b[i]) * x
            self.b[i] = b
        self.violation = max(worst, LEAST_VIOLATION)
        return seen

    def best(self, i, a, Q, firm):
        """Give b of row i at score a, how far it was off, and if it sits firmly."""
        b, low, high, epsilon = self.b[i], self.low[i], self.high[i], self.epsilon
        gradient = a - self.y[i] + self.D[i] * b
        # Slopes of the objective to the right and to the left: |b| has a kink at 0.
        right = gradient + (epsilon if b >= 0 else -epsilon)
        left = gradient + (epsilon if b > 0 else -epsilon)
        violation = max(0, -right if b < high else 0, left if b > low else 0)
        settled = (b >= high or right > firm) and (b <= low or left < -firm)
        best = 0.0  # at Q = 0 the objective is straight
        if gradient + epsilon < Q * b:
            best = b - (gradient + epsilon) / Q if Q > 0 else np.inf
        elif gradient - epsilon > Q * b:
            best = b - (gradient - epsilon) / Q if Q > 0 else -np.inf
        return min(max(best, low), high), violation, settled

    def loss(self, i, a):
        """Give the row's share of the primal when its score is a."""
        excess = 1 - self.y[i] * a if self.classifies else abs(a - self.y[i])
        h = max(0.0, excess - self.epsilon)
        return h * h / (2 * self.D[i]) if self.D[i] else self.U[i] * h

    def dual(self, i):
        """Give the row's share of the dual."""
        b = self.b[i]
        return self.y[i] * b - self.epsilon * abs(b) - self.D[i] * b * b / 2

    def values(self, w, inv):
        """Give gap, primal and dual; the dual at this w is dual - s . w."""
        v = inv * self.own * self.s
        u, bend = w + v, v @ self.s / 2
        primal, dual = bend, -bend
        for i in np.flatnonzero(self.counts):
            columns, x = self.rows[i]
            primal += self.loss(i, x @ u[columns])
            dual += self.dual(i)
        return primal - dual + w @ self.s, primal, dual

    def weighted_rows(self, b):
        """Add the rows up, b times each: X' b."""
        total = np.zeros(len(self.s))
        for i in np.flatnonzero(b):
            columns, x = self.rows[i]
            total[columns] += b[i] * x
        return total

    def terms_of_change(self, ds, inv):
        """Give linear and quadratic term of the line search."""
        before, db = self.b_before, self.b - self.b_before
        dv = inv * self.own * ds
        linear = self.y @ db - (self.D * before) @ db - self.s_before @ dv
        linear -= self.epsilon * (abs(self.b) - abs(before)).sum()
        return linear, dv @ ds + self.D @ db**2

    def solve(self, w, inv, tol, most_passes, stream):
        """Pass until the measured gap is at most tol; return the number of passes."""
        target, u = tol, w + inv * self.own * self.s
        for number in range(most_passes):
            seen = self.one_pass(u, inv * self.own, random_words(*stream, number))
            if seen > target and number + 1 < most_passes:
                continue
            self.s = self.weighted_rows(self.b)
            if self.values(w, inv)[0] <= tol:
                return number + 1
            u = w + inv * self.own * self.s
            self.rest[:] = self.level[:] = 0
            target /= 2
        return most_passes


def _rows(X, bias):
    """List (columns, values) of each row, with the constant column."""
    constant = np.full((X.shape[0], 1 if bias else 0), bias)
    if not sparse.issparse(X):
        return [(slice(None), x) for x in np.hstack([X.astype(float), constant])]
    X = sparse.csr_array(sparse.hstack([X.astype(float), constant]))
    rows = [slice(*X.indptr[i : i + 2]) for i in range(X.shape[0])]
    return [(X.indices[row], X.data[row]) for row in rows]


def philox(counter, key):
    """Philox-4x32-10, as in Salmon et al. (2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, WORD)
        high1, low1 = divmod(0xCD9E8D57 * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % WORD, (k1 + 0xBB67AE85) % WORD
    return c0, c1, c2, c3


def random_words(seed, exchange, client, label, number):
    """Yield the stream of one pass of one client in one class."""
    name = client, ROWS * 2**24 + exchange, label * 2**16 + number
    for block in range(WORD):
        yield from philox((block, *name), (seed % WORD, seed // WORD))


def shuffled(order, words):
    """Fisher-Yates, in place; fc_shuffle."""
    for k in range(len(order)):
        n = len(order) - k
        while (product := next(words) * n) % WORD < WORD % n:
            pass
        j = k + product // WORD
        order[k], order[j] = order[j], order[k]
    return order
