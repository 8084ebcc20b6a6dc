"""A hospital: its rows and its people's own weights stay in its folder."""

from hospitals import estimator, rows

from fedcore.federation.flower import client_app


def load_data(context):
    """Give this hospital's rows; a real one would read its own files."""
    hospital = context.node_config["partition-id"]
    n_hospitals = context.node_config["num-partitions"]
    train, _ = rows(hospital, n_hospitals, context.run_config["split"])
    return train


def folder(context):
    """Name a folder of this hospital's for this run."""
    return f"{context.node_config['folder']}/split-{context.run_config['split']}"


app = client_app(estimator(), load_data, state_dir=folder)
