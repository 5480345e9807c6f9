/* Every outcome of realloc: growth in place, moves, shrinking, failure, size 0, and null. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdint.h>
#include <stdlib.h>

/* Volatile, so that the compiler cannot predict the failures. */
static volatile size_t huge = (size_t)PTRDIFF_MAX + 4096;

static void *recorded_realloc(void *block, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(block);
    void *result = realloc(block, size);
    ledger_end_realloc(NULL, pending, result, size);
    return result;
}

static void *recorded_reallocarray(void *block, size_t count, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(block);
    void *result = reallocarray(block, count, size);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    ledger_end_realloc(NULL, pending, result, bytes);
    return result;
}

static void release(void *block) {
    ledger_free(block);
    free(block);
}

static void expect(int condition) {
    if (!condition)
        abort();
}

static int in_place, moved;

static void *grow(void *block, size_t size) {
    uintptr_t before = (uintptr_t)block;
    void *result = recorded_realloc(block, size);
    if ((uintptr_t)result == before)
        in_place++;
    else
        moved++;
    return result;
}

int main(void) {
    void *early = malloc(100), *early_kept = malloc(200), *early_to_zero = malloc(300), *early_failing = malloc(400);
    ledger_start();

    void *block = recorded_realloc(NULL, 10);
    for (size_t size = 20; size < 3000; size += 13)
        block = grow(block, size);
    /* The block after it prevents growth in place. */
    for (size_t size = 4000; size < 300000; size += 9000) {
        void *fence = recorded_realloc(NULL, 64);
        block = grow(block, size);
        release(fence);
    }
    for (size_t size = 290000; size > 7500; size -= 7000)
        block = grow(block, size);
    expect(in_place > 0 && moved > 0);

    /* A failure leaves the block unchanged, whether the ledger knows it or not. */
    expect(recorded_realloc(block, huge) == NULL);
    expect(recorded_realloc(early_failing, huge) == NULL);
    expect(recorded_realloc(NULL, huge) == NULL);
    expect(recorded_reallocarray(block, SIZE_MAX / 4, 8) == NULL);
    expect(recorded_reallocarray(early_failing, SIZE_MAX / 4, 8) == NULL);
    expect(recorded_reallocarray(NULL, SIZE_MAX, SIZE_MAX) == NULL);

    void *table = recorded_reallocarray(NULL, 10, 12);
    table = recorded_reallocarray(table, 1000, 12);
    table = recorded_reallocarray(table, 3, 12);

    /* Size 0: glibc frees and returns null, musl returns an empty block. */
    void *gone = recorded_realloc(recorded_realloc(NULL, 77), 0);
    void *gone_array = recorded_reallocarray(recorded_reallocarray(NULL, 7, 11), 0, 11);
    void *empty = recorded_realloc(NULL, 0);

    void *grown_early = recorded_realloc(early, 5000);
    void *zeroed_early = recorded_realloc(early_to_zero, 0);
    release(early_failing);
    release(NULL);
    release(gone);
    release(gone_array);
    release(empty);
    release(grown_early);
    release(zeroed_early);
    (void)early_kept;
    (void)table;
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
