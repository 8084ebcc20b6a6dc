/* Four doubles at once, for the scans of fc_assign: the same operations, so the same
 * bits, with AVX2 and without. */
#ifndef FC_ASSIGN_LANES_H
#define FC_ASSIGN_LANES_H

#include "fc_config.h"

enum { WIDTH = 4, GROUPS = 2, LANES = WIDTH * GROUPS };

#if defined(__GNUC__) && defined(__x86_64__) && !defined(__clang_analyzer__)
#define FC_AVX2 1
#include <immintrin.h>

/* target_clones makes scalar code of selects, three times slower than these. */
#define WITH_AVX2 __attribute__((target("avx2")))
#define OP_AVX2 WITH_AVX2 static inline __attribute__((always_inline))

typedef __m256d wide_avx2;

OP_AVX2 wide_avx2 all_avx2(double x) { return _mm256_set1_pd(x); }
OP_AVX2 wide_avx2 load_f64_avx2(const double *x) { return _mm256_loadu_pd(x); }
OP_AVX2 wide_avx2 load_f32_avx2(const float *x)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(x));
}
OP_AVX2 void store_avx2(double *x, wide_avx2 a) { _mm256_storeu_pd(x, a); }
OP_AVX2 wide_avx2 add_avx2(wide_avx2 a, wide_avx2 b) { return _mm256_add_pd(a, b); }
OP_AVX2 wide_avx2 sub_avx2(wide_avx2 a, wide_avx2 b) { return _mm256_sub_pd(a, b); }
OP_AVX2 wide_avx2 min_avx2(wide_avx2 a, wide_avx2 b) { return _mm256_min_pd(a, b); }
OP_AVX2 wide_avx2 max_avx2(wide_avx2 a, wide_avx2 b) { return _mm256_max_pd(a, b); }
/* yes where a < b, else no */
OP_AVX2 wide_avx2 pick_avx2(wide_avx2 a, wide_avx2 b, wide_avx2 yes, wide_avx2 no)
{
    return _mm256_blendv_pd(no, yes, _mm256_cmp_pd(a, b, _CMP_LT_OQ));
}
/* lanes 2 3 0 1, and 1 0 3 2 */
OP_AVX2 wide_avx2 far_avx2(wide_avx2 a) { return _mm256_permute2f128_pd(a, a, 1); }
OP_AVX2 wide_avx2 near_avx2(wide_avx2 a) { return _mm256_permute_pd(a, 5); }
OP_AVX2 double first_avx2(wide_avx2 a) { return _mm256_cvtsd_f64(a); }
#endif

typedef struct {
    double x[WIDTH];
} wide_any;

#define OP_ANY static inline
#define EACH(expression)            \
    wide_any r;                     \
    for (int l = 0; l < WIDTH; l++) \
        r.x[l] = (expression);      \
    return r

OP_ANY wide_any all_any(double x) { EACH(x); }
OP_ANY wide_any load_f64_any(const double *x) { EACH(x[l]); }
OP_ANY wide_any load_f32_any(const float *x) { EACH(x[l]); }
OP_ANY void store_any(double *x, wide_any a)
{
    for (int l = 0; l < WIDTH; l++)
        x[l] = a.x[l];
}
OP_ANY wide_any add_any(wide_any a, wide_any b) { EACH(a.x[l] + b.x[l]); }
OP_ANY wide_any sub_any(wide_any a, wide_any b) { EACH(a.x[l] - b.x[l]); }
OP_ANY wide_any min_any(wide_any a, wide_any b)
{
    EACH(a.x[l] < b.x[l] ? a.x[l] : b.x[l]);
}
OP_ANY wide_any max_any(wide_any a, wide_any b)
{
    EACH(a.x[l] > b.x[l] ? a.x[l] : b.x[l]);
}
OP_ANY wide_any pick_any(wide_any a, wide_any b, wide_any yes, wide_any no)
{
    EACH(a.x[l] < b.x[l] ? yes.x[l] : no.x[l]);
}
OP_ANY wide_any far_any(wide_any a) { EACH(a.x[l ^ 2]); }
OP_ANY wide_any near_any(wide_any a) { EACH(a.x[l ^ 1]); }
OP_ANY double first_any(wide_any a) { return a.x[0]; }
#undef EACH

#endif /* FC_ASSIGN_LANES_H */
