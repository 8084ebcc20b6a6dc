"""Flower carries the messages of a deployed run (flwr >= 1.42)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .deploy import Deployable, check_deployable
from .deployment import coordinate, save_model
from .remote import RemoteEngine
from .site import Site
from .site_file import SiteFile
from .site_rows import SiteRows
from .transport import NoAnswer

RECORD = "fedcore"
POLL = 0.2  # seconds between two looks for answers
MOST_OPEN = 1000  # messages whose answers are still looked for


def server_app(estimator: Deployable, *, out: Any = None, **options: Any) -> Any:
    """Make the ServerApp of a run.

    Parameters
    ----------
    estimator : estimator
        Unfitted, such as ``FedMTLSVC(C2=10.0, random_state=0)``; the sites must have
        one with the same parameters.
    out : path-like, default=None
        Folder for what the run leaves: the shared model (``model.npz``) and the record
        of who answered (``record.json``).
    **options
        Of `RemoteEngine`: `sites` (required), `deadline`, `patience`, `min_clients`,
        `checkpoint`, `every`, `resume`. Any of these may also be a function of
        Flower's context, which gives the value: ``lambda c: c.run_config["sites"]``.

    Returns
    -------
    flwr.serverapp.ServerApp
        After a run its `fitted` is the fitted estimator.

    Raises
    ------
    ImportError
        If flwr is not installed.
    TypeError
        If the estimator is not one that runs over sites.
    """
    check_deployable(estimator)
    app = _flwr("serverapp").ServerApp()
    app.fitted = None

    @app.main()
    def main(grid: Any, context: Any) -> None:
        chosen = {name: _value(option, context) for name, option in options.items()}
        engine = RemoteEngine(GridTransport(grid), estimator, **chosen)
        app.fitted = coordinate(estimator, engine, out=_value(out, context))

    return app


def client_app(
    estimator: Deployable,
    load_data: Callable[[Any], tuple],
    *,
    state_dir: Any,
    out: Any = None,
    cache: bool = True,
) -> Any:
    """Make the ClientApp of a site.

    Parameters
    ----------
    estimator : estimator
        Unfitted, with the parameters of the server's.
    load_data : callable
        ``load_data(context)`` gives ``(X, y)``, or ``(X, y, clients)`` when the site
        holds several clients. Otherwise its client has the site's name: that is `name`
        of Flower's node config, or its `partition-id`.
    state_dir : path-like, or function of the context
        Folder that outlives the site's process; sites on one machine may share it.
    out : path-like, or function of the context, default=None
        Folder for the site's models, ``NAME.npz``; None: `state_dir`.
    cache : bool, default=True
        Flower starts a process for each message. With a cache `load_data` is called at
        the start of a run alone; afterwards its validated rows are read, mapped into
        memory, from `state_dir`.

    Returns
    -------
    flwr.clientapp.ClientApp
    """
    check_deployable(estimator)
    app = _flwr("clientapp").ClientApp()

    @app.train()
    def train(message: Any, context: Any) -> Any:
        config = context.node_config
        name = str(config.get("name", config.get("partition-id", context.node_id)))
        if not name:
            raise ValueError("name of the node config is empty, expected a site's name")
        folder = Path(_value(state_dir, context))
        target = Path(folder if out is None else _value(out, context))
        rows = SiteRows(
            estimator, name, lambda: load_data(context), folder if cache else None
        )

        def keep(fitted: Any) -> None:
            target.mkdir(parents=True, exist_ok=True)
            save_model(target / f"{quote(name, safe='')}.npz", fitted)

        site = Site(estimator, name, rows, SiteFile(folder, name), keep)
        reply = site.answer(_bytes(message.content))
        return _flwr("app").Message(_record(reply), reply_to=message)

    return app


class GridTransport:
    """Messages by way of a Flower Grid; an address is a node id."""

    def __init__(self, grid: Any):
        self._grid = grid
        self._open: dict[str, int] = {}  # node by message

    def addresses(self) -> Iterable[int]:
        """Name the nodes that are connected."""
        return list(self._grid.get_node_ids())

    def send(self, messages: Mapping[int, bytes], number: int, seconds: float) -> None:
        """Push one message to each node."""
        make = _flwr("app").Message
        # An answer that is late is still told from one that never came.
        ready = [
            make(
                _record(data), node, "train", ttl=2 * seconds + 60, group_id=str(number)
            )
            for node, data in messages.items()
        ]
        if ready:
            ids = self._grid.push_messages(ready)
            self._open.update(zip(ids, messages, strict=True))
        while len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def receive(self, seconds: float) -> Iterable[tuple[int, bytes | NoAnswer]]:
        """Pull until something comes or time is up."""
        until = time.monotonic() + seconds
        while True:
            replies = list(self._grid.pull_messages(list(self._open)))
            for reply in replies:
                node = self._open.get(reply.metadata.reply_to_message_id)
                if node is not None:
                    yield node, _content(reply)
            for reply in replies:
                self._open.pop(reply.metadata.reply_to_message_id, None)
            left = until - time.monotonic()
            if replies or left <= 0:
                return
            time.sleep(min(POLL, left))


def _content(reply: Any) -> bytes | NoAnswer:
    if reply.has_error():
        return NoAnswer(f"{reply.error.reason} (Flower's code {reply.error.code})")
    try:
        return _bytes(reply.content)
    except (LookupError, AttributeError, TypeError):
        return b""  # which no message is


def _record(data: bytes) -> Any:
    app = _flwr("app")
    array = app.Array("uint8", (len(data),), "fedcore", data)
    return app.RecordDict({RECORD: app.ArrayRecord({"message": array})})


def _bytes(content: Any) -> bytes:
    return content[RECORD]["message"].data


def _value(option: Any, context: Any) -> Any:
    return option(context) if callable(option) else option


def _flwr(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"flwr.{module}")
    except ImportError as error:
        raise ImportError(
            "flwr is not installed: pip install fedcore-learn[flower]"
        ) from error
