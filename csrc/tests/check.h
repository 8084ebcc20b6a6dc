/* A test program: CHECK what should hold, end main with `return check_summary();`. */
#ifndef FC_CHECK_H
#define FC_CHECK_H

#include <stdio.h>

static int check_passed, check_failed;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (condition) {                                                          \
            check_passed++;                                                       \
        } else {                                                                  \
            check_failed++;                                                       \
            printf("%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                         \
    } while (0)

/* Print the closing line; return the exit status. */
static inline int check_summary(void)
{
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed != 0;
}

#endif /* FC_CHECK_H */
