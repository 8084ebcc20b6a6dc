"""Calls into csrc/fc_select.c: lengths are checked here, values by the callers."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc


cdef extern from "fc_select.h" nogil:
    ctypedef struct fc_select_work:
        int32_t *key
        int32_t *band
        int32_t *at
        int32_t *tie

    int32_t fc_top_f64(int32_t, const double *, const int32_t *, int32_t, int32_t *,
                       int32_t *, void *, const fc_select_work *)
    int32_t fc_top_f32(int32_t, const float *, const int32_t *, int32_t, int32_t *,
                       int32_t *, void *, const fc_select_work *)


# Two functions, for to tell the types apart takes as long as 1000 entries.
cdef fc_select_work prepare(int64_t n, int64_t n_out, int32_t tau,
                            const int32_t[::1] place) except *:
    cdef fc_select_work work
    if not (n < 2**31 and n_out >= min(n, tau)
            and (place is None or place.shape[0] == n)):
        raise ValueError("top: array lengths disagree")
    work.key = <int32_t *>malloc(4 * <size_t>n * sizeof(int32_t) + 1)
    if work.key == NULL:
        raise MemoryError
    work.band, work.at = work.key + n, work.key + 2 * n
    work.tie = work.key + 3 * n
    return work


def top_f64(const double[::1] x, int32_t tau, int32_t[::1] out, int32_t hint=0,
            const int32_t[::1] place=None):
    """Fill out with the places of the tau largest; return how many."""
    cdef int32_t m = 0, n = <int32_t>x.shape[0]
    cdef fc_select_work work = prepare(x.shape[0], out.shape[0], tau, place)
    if n > 0 and tau > 0:
        with nogil:
            m = fc_top_f64(n, &x[0], &place[0] if place is not None else NULL, tau,
                           &hint, &out[0], NULL, &work)
    free(work.key)
    return m


def top_f32(const float[::1] x, int32_t tau, int32_t[::1] out, int32_t hint=0,
            const int32_t[::1] place=None):
    """Fill out with the places of the tau largest; return how many."""
    cdef int32_t m = 0, n = <int32_t>x.shape[0]
    cdef fc_select_work work = prepare(x.shape[0], out.shape[0], tau, place)
    if n > 0 and tau > 0:
        with nogil:
            m = fc_top_f32(n, &x[0], &place[0] if place is not None else NULL, tau,
                           &hint, &out[0], NULL, &work)
    free(work.key)
    return m
