"""A site of the test, which can be told to be late."""

import time
from pathlib import Path

from federation import PEOPLE_PER_SITE, estimator, rows

from fedcore.federation.flower import client_app


def load_data(context):
    """Give the rows of this site; note the visit, and sleep if that was asked."""
    name, folder = context.node_config["name"], Path(context.run_config["folder"])
    visit = 1
    while (mark := folder / f"{name}-{visit}").exists():
        visit += 1
    mark.touch()
    for wish in (context.run_config["late"], context.run_config["held"]):
        if wish.startswith(f"{name} {visit} "):
            time.sleep(float(wish.split()[2]))
    X, y, clients = rows()
    place = context.node_config["partition-id"]
    own = clients // PEOPLE_PER_SITE == place
    return X[own], y[own], clients[own]


# Without a cache each message calls load_data.
app = client_app(
    estimator(),
    load_data,
    state_dir=lambda context: context.run_config["folder"],
    cache=False,
)
