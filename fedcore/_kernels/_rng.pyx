"""Calls into csrc/fc_rng.c: lengths and limits are checked here."""
from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef extern from "fc_rng.h" nogil:
    const uint32_t FC_RNG_MAX_ROUND
    const uint32_t FC_RNG_MAX_PURPOSE
    int FC_RNG_SAMPLING
    int FC_RNG_CLIENTS
    int FC_RNG_ROWS
    int FC_RNG_DELAYS
    int FC_RNG_DROPOUTS
    int FC_RNG_FOLDS

    void fc_rng_uniform(uint64_t seed, uint32_t round, uint32_t purpose,
                        uint32_t first, int32_t n, double *out)
    void fc_rng_permutation(uint64_t seed, uint32_t round, uint32_t purpose,
                            uint32_t client, int32_t n, int32_t *out)


MAX_ROUND = FC_RNG_MAX_ROUND
SAMPLING = FC_RNG_SAMPLING
CLIENTS = FC_RNG_CLIENTS
ROWS = FC_RNG_ROWS
DELAYS = FC_RNG_DELAYS
DROPOUTS = FC_RNG_DROPOUTS
FOLDS = FC_RNG_FOLDS


cdef int check(uint32_t round, uint32_t purpose, Py_ssize_t end) except -1:
    if round > FC_RNG_MAX_ROUND:
        raise ValueError(f"round is {round}, must be at most {FC_RNG_MAX_ROUND}")
    if purpose > FC_RNG_MAX_PURPOSE:
        raise ValueError(f"purpose is {purpose}, must be at most {FC_RNG_MAX_PURPOSE}")
    if end > 2**31:
        raise ValueError(f"out ends at number {end}, must end at 2**31 or before")
    return 0


def uniform(uint64_t seed, uint32_t round, uint32_t purpose, uint32_t first,
            double[::1] out):
    """Fill `out` with one draw from [0, 1) for each of the clients from `first` on."""
    check(round, purpose, <Py_ssize_t>first + out.shape[0])
    if out.shape[0] == 0:
        return
    with nogil:
        fc_rng_uniform(seed, round, purpose, first, <int32_t>out.shape[0], &out[0])


def permutation(uint64_t seed, uint32_t round, uint32_t purpose, uint32_t client,
                int32_t[::1] out):
    """Fill `out` (n,) with 0 .. n - 1 in random order."""
    check(round, purpose, out.shape[0] + 1)
    if out.shape[0] == 0:
        return
    with nogil:
        fc_rng_permutation(seed, round, purpose, client, <int32_t>out.shape[0], &out[0])
