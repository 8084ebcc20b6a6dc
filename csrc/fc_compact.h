/* A client's own columns: CSR rows renumbered into compact local vectors. */
#ifndef FC_COMPACT_H
#define FC_COMPACT_H

#include "fc_config.h"
#include <stdbool.h>

/* List the columns that each client uses, ascending, and renumber its entries by
 * their place in that list, so that work and memory follow a client's own columns.
 *
 *   n_clients, n_columns
 *   offsets  (n_clients + 1)    rows of client k: offsets[k] .. offsets[k + 1]
 *   indptr   (n + 1)            CSR, every index below n_columns
 *   indices  (nnz)
 *   place    (n_columns)        work
 *   bits     (n_columns / 64 + 1) work, all zero on entry and on return
 *   local    (nnz)              out: place of each entry in its client's list
 *   constant                    each list ends with the column n_columns
 *   columns  (nnz + n_clients)  out: the lists, one after another
 *   starts   (n_clients + 1)    out: list of client k: starts[k] .. starts[k + 1]
 *
 * Returns the length of all lists together. Allocates nothing, cannot fail. */
int64_t fc_compact(fc_idx n_clients, fc_idx n_columns, const int64_t *offsets,
                   const fc_idx *indptr, const fc_idx *indices, bool constant,
                   fc_idx *place, uint64_t *bits, fc_idx *local, fc_idx *columns,
                   int64_t *starts);

#endif /* FC_COMPACT_H */
