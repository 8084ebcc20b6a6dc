"""Shamir's secret sharing: any `threshold` shares tell a secret, fewer tell nothing.

A. Shamir, "How to share a secret", 1979, over the integers modulo a prime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

PRIME = 2**256 + 297  # the smallest above all secrets of 32 bytes
SHARE_BYTES = 33


def split(secret: bytes, coefficients: bytes, places: Iterable[int]) -> list[bytes]:
    """Cut a secret into shares.

    Parameters
    ----------
    secret : bytes
        32 of them.
    coefficients : bytes
        48 random bytes for each share that it takes beyond the first to tell the
        secret.
    places : iterable of int
        Of the holders of the shares, from 1, distinct.

    Returns
    -------
    list of bytes
        A share for each place.
    """
    # 48 bytes modulo the prime are uniform to within 2**-127.
    polynomial = [int.from_bytes(secret, "big")]
    for start in range(0, len(coefficients), 48):
        polynomial.append(int.from_bytes(coefficients[start : start + 48], "big"))
    shares = []
    for x in places:
        value = 0
        for coefficient in reversed(polynomial):
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "big"))
    return shares


def weights(places: Sequence[int]) -> list[int]:
    """Give Lagrange's weights, by which the shares at these places add up at 0."""
    result = []
    for x in places:
        above = below = 1
        for other in places:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        result.append(above * pow(below, -1, PRIME) % PRIME)
    return result


def join(shares: Mapping[int, bytes], lagrange: Sequence[int] | None = None) -> bytes:
    """Put a secret together again.

    Parameters
    ----------
    shares : mapping of int to bytes
        Place -> share; exactly as many as the threshold.
    lagrange : sequence of int, optional
        `weights` of these places, if they are known already.

    Raises
    ------
    ValueError
        If the shares are not of one secret of 32 bytes.
    """
    lagrange = weights(list(shares)) if lagrange is None else lagrange
    values = [int.from_bytes(share, "big") for share in shares.values()]
    secret = sum(w * v for w, v in zip(lagrange, values, strict=True)) % PRIME
    if secret >= 2**256:
        raise ValueError("the shares are not of one secret of 32 bytes")
    return secret.to_bytes(32, "big")
