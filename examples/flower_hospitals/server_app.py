"""The coordinator: it sees sums over each hospital's people, and no row."""

from hospitals import estimator

from fedcore.federation.flower import server_app

app = server_app(
    estimator(),
    sites=3,
    out=lambda context: (
        f"{context.run_config['out']}/split-{context.run_config['split']}"
    ),
)
