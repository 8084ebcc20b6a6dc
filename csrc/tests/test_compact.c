#include "check.h"
#include "fc_compact.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, CLIENTS = 4, MOST = 12 };

/* Clients of 2, 0, 2 and 1 rows; the last row is empty. */
static const int64_t OFFSETS[CLIENTS + 1] = {0, 2, 2, 4, 5};
static const fc_idx INDPTR[ROWS + 1] = {0, 3, 4, 7, 9, 9};

typedef struct {
    fc_idx local[MOST], columns[MOST + CLIENTS];
    int64_t starts[CLIENTS + 1], length;
} lists;

static lists run(const fc_idx *indices, fc_idx n_columns, bool constant)
{
    lists out;
    fc_idx *place = malloc(((size_t)n_columns + 1) * sizeof *place);
    size_t n_words = (size_t)n_columns / 64 + 1;
    uint64_t *bits = calloc(n_words, sizeof *bits), left = 0;
    if (!place || !bits)
        abort();
    memset(&out, 0x55, sizeof out);
    out.length = fc_compact(CLIENTS, n_columns, OFFSETS, INDPTR, indices, constant,
                            place, bits, out.local, out.columns, out.starts);
    for (size_t i = 0; i < n_words; i++)
        left |= bits[i];
    CHECK(left == 0);
    free(place);
    free(bits);
    return out;
}

/* Each list ascends, and each entry finds its column in it, however the lists are
 * sorted: by a bit map when n_columns is small, by comparison when it is large. */
static void test_entries_find_their_columns(fc_idx n_columns)
{
    const fc_idx top = n_columns - 1;
    const fc_idx indices[] = {top, 1, 4, 1, /* client 2: */ 0, top, 2, 2, 0};

    for (int constant = 0; constant < 2; constant++) {
        lists out = run(indices, n_columns, constant);
        CHECK(out.length == 3 + 3 + (constant ? CLIENTS : 0));
        CHECK(out.starts[0] == 0 && out.starts[CLIENTS] == out.length);
        CHECK(out.starts[2] - out.starts[1] == constant);
        for (fc_idx k = 0; k < CLIENTS; k++) {
            const fc_idx *list = out.columns + out.starts[k];
            int64_t len = out.starts[k + 1] - out.starts[k];
            for (int64_t j = 1; j < len; j++)
                CHECK(list[j - 1] < list[j]);
            for (fc_idx p = INDPTR[OFFSETS[k]]; p < INDPTR[OFFSETS[k + 1]]; p++)
                CHECK(out.local[p] < len && list[out.local[p]] == indices[p]);
            if (constant)
                CHECK(list[len - 1] == n_columns);
        }
    }
}

static void test_nothing_to_list(void)
{
    const int64_t offsets[] = {0, 0, 1};
    const fc_idx indptr[] = {0, 0};
    fc_idx place[3], columns[2];
    uint64_t bits[1] = {0};
    int64_t starts[3];

    CHECK(fc_compact(2, 3, offsets, indptr, NULL, true, place, bits, NULL, columns,
                     starts) == 2);
    CHECK(columns[0] == 3 && columns[1] == 3);
    CHECK(fc_compact(2, 3, offsets, indptr, NULL, false, place, bits, NULL, columns,
                     starts) == 0);
    CHECK(fc_compact(0, 3, offsets, indptr, NULL, true, place, bits, NULL, columns,
                     starts) == 0);
    CHECK(starts[0] == 0);
}

int main(void)
{
    static const fc_idx sizes[] = {6, 64, 65, 1000, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        test_entries_find_their_columns(sizes[i]);
    test_nothing_to_list();
    return check_summary();
}
