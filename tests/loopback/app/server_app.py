"""The coordinator of the test."""

from federation import N_SITES, estimator

from fedcore.federation.flower import server_app

app = server_app(
    estimator(),
    sites=N_SITES,
    deadline=lambda context: context.run_config["deadline"],
    patience=lambda context: 5 * context.run_config["deadline"],
    out=lambda context: f"{context.run_config['folder']}/server",
)
