/* Aligned allocation functions, and calls that fail. */
#define _GNU_SOURCE
#include "ledger.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

/* Volatile, so that the compiler cannot predict the failures. */
static volatile size_t huge = (size_t)PTRDIFF_MAX + 4096, most = SIZE_MAX;

static void expect(int condition) {
    if (!condition)
        abort();
}

static void *recorded(void *block, size_t size) {
    ledger_alloc(NULL, block, size);
    return block;
}

static void release(void *block) {
    ledger_free(block);
    free(block);
}

static void *posix(size_t alignment, size_t size, int expected) {
    void *block = NULL;
    expect(posix_memalign(&block, alignment, size) == expected);
    if (expected == 0)
        ledger_alloc(NULL, block, size);
    return block;
}

int main(void) {
    ledger_start();
    for (size_t alignment = 8; alignment <= 65536; alignment *= 2) {
        void *first = posix(alignment, alignment * 3 + 1, 0);
        void *second = recorded(aligned_alloc(alignment, alignment * 2), alignment * 2);
        void *third = recorded(memalign(alignment, 33), 33);
        expect(first && second && third);
        expect((uintptr_t)first % alignment == 0 && (uintptr_t)second % alignment == 0);
        if (alignment % 3 == 1)
            release(first);
        release(third);
    }
    /* A failed posix_memalign leaves the variable unchanged: its old pointer is not a new block. */
    void *stale = recorded(malloc(11), 11);
    void *same = stale;
    expect(posix_memalign(&stale, 3, 100) == EINVAL && stale == same);
    expect(posix_memalign(&stale, 4, 100) == EINVAL && stale == same);
    expect(posix_memalign(&stale, 16, huge) == ENOMEM);
    posix(7, 100, EINVAL);
    posix(24, 100, EINVAL);
    posix(64, 0, 0);

    expect(recorded(valloc(5000), 5000) != NULL);
#ifdef __GLIBC__
    expect(recorded(pvalloc(5000), 5000) != NULL);
    expect(pvalloc(huge) == NULL);
#endif
    expect(valloc(huge) == NULL);
    expect(memalign(64, huge) == NULL);
    expect(aligned_alloc(64, huge) == NULL);
    expect(malloc(huge) == NULL);
    expect(calloc(most / 2, 4) == NULL);
    expect(calloc(most, most) == NULL);
    /* The product overflows to a small number. */
    expect(calloc(3, most / 3 + 2) == NULL);
    expect(recorded(calloc(0, 8), 0) != NULL);
    expect(recorded(calloc(33, 3), 99) != NULL);
    expect(recorded(malloc(0), 0) != NULL);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
