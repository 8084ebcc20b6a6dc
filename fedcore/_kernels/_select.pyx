"""Calls into csrc/fc_select.c: lengths are checked here, values by the callers."""
from cython cimport floating
from libc.stdint cimport int32_t


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


def top(const floating[::1] x, int32_t tau, int32_t[::1] out, int32_t[:, ::1] work,
        int32_t hint=0, const int32_t[::1] place=None):
    """Fill out with the places of the tau largest; return (how many, hint)."""
    cdef int32_t n = <int32_t>x.shape[0]
    cdef int32_t m
    cdef fc_select_work space
    cdef const int32_t *place_p = NULL
    if not (x.shape[0] < 2**31 and out.shape[0] >= min(x.shape[0], tau)
            and work.shape[0] == 4 and work.shape[1] >= x.shape[0]
            and (place is None or place.shape[0] == x.shape[0])):
        raise ValueError("top: array lengths disagree")
    if n == 0 or tau <= 0:
        return 0, hint
    if place is not None:
        place_p = &place[0]
    space.key, space.band = &work[0, 0], &work[1, 0]
    space.at, space.tie = &work[2, 0], &work[3, 0]
    with nogil:
        if floating is double:
            m = fc_top_f64(n, &x[0], place_p, tau, &hint, &out[0], NULL, &space)
        else:
            m = fc_top_f32(n, &x[0], place_p, tau, &hint, &out[0], NULL, &space)
    return m, hint
