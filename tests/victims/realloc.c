/* Every way in which a realloc can go. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdint.h>
#include <stdlib.h>

/* Volatile, so that the compiler does not foresee the failures. */
static volatile size_t huge = (size_t)PTRDIFF_MAX + 4096;

static void *again(void *block, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(block);
    void *result = realloc(block, size);
    ledger_end_realloc(NULL, pending, result, size);
    return result;
}

static void *array(void *block, size_t count, size_t size) {
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

static void expect(int right) {
    if (!right)
        abort();
}

static int in_place, moved;

static void *grow(void *block, size_t size) {
    uintptr_t before = (uintptr_t)block;
    void *result = again(block, size);
    if ((uintptr_t)result == before)
        in_place++;
    else
        moved++;
    return result;
}

int main(void) {
    void *early = malloc(100), *early_kept = malloc(200), *early_to_zero = malloc(300), *early_failing = malloc(400);
    ledger_start();

    void *block = again(NULL, 10);
    for (size_t size = 20; size < 3000; size += 13)
        block = grow(block, size);
    /* A block behind it forbids growing in place. */
    for (size_t size = 4000; size < 300000; size += 9000) {
        void *fence = again(NULL, 64);
        block = grow(block, size);
        release(fence);
    }
    for (size_t size = 290000; size > 7500; size -= 7000)
        block = grow(block, size);
    expect(in_place > 0 && moved > 0);

    /* A failure leaves the block as it was, whoever allocated it. */
    expect(again(block, huge) == NULL);
    expect(again(early_failing, huge) == NULL);
    expect(again(NULL, huge) == NULL);
    expect(array(block, SIZE_MAX / 4, 8) == NULL);
    expect(array(early_failing, SIZE_MAX / 4, 8) == NULL);
    expect(array(NULL, SIZE_MAX, SIZE_MAX) == NULL);

    void *table = array(NULL, 10, 12);
    table = array(table, 1000, 12);
    table = array(table, 3, 12);

    /* To 0: glibc frees and returns null, musl returns a block of no bytes. */
    void *gone = again(again(NULL, 77), 0);
    void *gone_array = array(array(NULL, 7, 11), 0, 11);
    void *empty = again(NULL, 0);

    void *grown_early = again(early, 5000);
    void *zeroed_early = again(early_to_zero, 0);
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
