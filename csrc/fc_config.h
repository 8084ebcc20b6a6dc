/* Types and compiler differences that every kernel shares. */
#ifndef FC_CONFIG_H
#define FC_CONFIG_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t fc_idx; /* rows, columns, clients; a size is size_t before it grows */

/* 0: fine.  > 0: a usable result with a remark.  < 0: no usable result. */
typedef int fc_status;

#if defined(_MSC_VER) && !defined(__clang__)
#define FC_RESTRICT __restrict
#else
#define FC_RESTRICT restrict
#endif

/* Builds a `static` function once for each vector width and picks one at load time;
 * its sums must fix their order by explicit lanes, then every choice gives the same
 * bits. musl has no such pick, and the analyzer would read each body three times. */
#if defined(__GNUC__) && defined(__GLIBC__) && defined(__x86_64__) && \
    !defined(__clang_analyzer__)
#define FC_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FC_CLONES
#endif

#if defined(__GNUC__)
#define FC_PREFETCH(address) __builtin_prefetch(address)
#else
#define FC_PREFETCH(address) ((void)(address))
#endif

#endif /* FC_CONFIG_H */
