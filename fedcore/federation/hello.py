"""What participants say of themselves, held against each other."""

from __future__ import annotations

from .contract import Refused


def check_alike(hellos: list[dict], *names: str) -> int:
    """Count the clients; raise `Refused` for the first that differs from client 0.

    Parameters
    ----------
    hellos : list of dict
        Each with `n_rows` (K,), one number a client of that participant.
    *names : str
        What all must say alike.
    """
    client = 0
    for hello in hellos:
        for name in names:
            if hello[name] != hellos[0][name]:
                raise Refused(
                    client,
                    f"its rows have {name}={hello[name]}, "
                    f"those of client 0 have {hellos[0][name]}",
                )
        client += len(hello["n_rows"])
    return client
