#include "fc_compact.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    fc_idx x = *(const fc_idx *)a, y = *(const fc_idx *)b;
    return (x > y) - (x < y);
}

/* A list that is long for its range is sorted by a walk over a bit map. */
static void sort_columns(fc_idx *list, int64_t len, fc_idx n_columns, uint64_t *bits)
{
    if (len < 2)
        return;
    if (len < n_columns / 512) {
        qsort(list, (size_t)len, sizeof *list, compare);
        return;
    }
    for (int64_t j = 0; j < len; j++)
        bits[list[j] >> 6] |= UINT64_C(1) << (list[j] & 63);
    int64_t next = 0;
    for (fc_idx word = 0; next < len; word++)
        for (uint64_t rest = bits[word]; rest; rest &= rest - 1)
            list[next++] = word * 64 + (fc_idx)__builtin_ctzll(rest);
    for (int64_t j = 0; j < len; j++)
        bits[list[j] >> 6] = 0;
}

int64_t fc_compact(fc_idx n_clients, fc_idx n_columns, const int64_t *offsets,
                   const fc_idx *indptr, const fc_idx *indices, bool constant,
                   fc_idx *place, uint64_t *bits, fc_idx *local, fc_idx *columns,
                   int64_t *starts)
{
    int64_t end = 0;

    for (fc_idx j = 0; j < n_columns; j++)
        place[j] = -1;
    for (fc_idx k = 0; k < n_clients; k++) {
        fc_idx first = indptr[offsets[k]], last = indptr[offsets[k + 1]];
        starts[k] = end;
        for (fc_idx p = first; p < last; p++) {
            if (place[indices[p]] < 0) {
                place[indices[p]] = 0;
                columns[end++] = indices[p];
            }
        }
        fc_idx *list = columns + starts[k];
        int64_t len = end - starts[k];
        sort_columns(list, len, n_columns, bits);
        for (int64_t j = 0; j < len; j++)
            place[list[j]] = (fc_idx)j;
        for (fc_idx p = first; p < last; p++)
            local[p] = place[indices[p]];
        for (int64_t j = 0; j < len; j++)
            place[list[j]] = -1;
        if (constant)
            columns[end++] = n_columns;
    }
    starts[n_clients] = end;
    return end;
}
