"""Calls into csrc/fc_compact.c: lengths are checked here, values by the callers."""
from libc.stdint cimport int32_t, int64_t, uint64_t


cdef extern from "fc_compact.h" nogil:
    int64_t fc_compact(int32_t, int32_t, const int64_t *, const int32_t *,
                       const int32_t *, bint, int32_t *, uint64_t *, int32_t *,
                       int32_t *, int64_t *)


def compact(const int64_t[::1] offsets, const int32_t[::1] indptr,
            const int32_t[::1] indices, int32_t n_columns, bint constant,
            int32_t[::1] place, uint64_t[::1] bits, int32_t[::1] local,
            int32_t[::1] columns, int64_t[::1] starts):
    """List each client's columns and renumber its entries; return the total length."""
    cdef int64_t n_clients = offsets.shape[0] - 1
    cdef int64_t length = 0
    cdef int64_t nnz = indices.shape[0]
    if not (n_clients >= 0 and starts.shape[0] == n_clients + 1
            and indptr.shape[0] == offsets[n_clients] + 1
            and indptr[indptr.shape[0] - 1] == nnz == local.shape[0]
            and columns.shape[0] >= nnz + constant * n_clients
            and place.shape[0] >= n_columns and bits.shape[0] > n_columns // 64):
        raise ValueError("compact: array lengths disagree")
    # &view[0] of an empty view is out of bounds: an all-zero matrix passes NULL.
    cdef const int32_t *indices_p = &indices[0] if nnz else NULL
    cdef int32_t *local_p = &local[0] if nnz else NULL
    cdef int32_t *columns_p = &columns[0] if columns.shape[0] else NULL
    cdef int32_t *place_p = &place[0] if place.shape[0] else NULL
    with nogil:
        length = fc_compact(<int32_t>n_clients, n_columns, &offsets[0], &indptr[0],
                            indices_p, constant, place_p, &bits[0], local_p, columns_p,
                            &starts[0])
    return length
