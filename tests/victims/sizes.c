/* `sizes MIN MAX` allocates blocks of sizes around two limits and records those from MIN to MAX. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>

static void *take(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

static void *recorded_realloc(void *block, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(block);
    void *result = realloc(block, size);
    ledger_end_realloc(NULL, pending, result, size);
    return result;
}

static void drop(void *block) {
    ledger_free(block);
    free(block);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    size_t min = strtoul(arguments[1], NULL, 10), max = strtoul(arguments[2], NULL, 10);
    ledger_set_size_limits(min, max);
    ledger_start();
    size_t sizes[] = {0, 1, min / 2, min - 1, min, min + 1, (min + max) / 2, max - 1, max, max + 1, max * 2};
    size_t many = sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < many; i++)
        for (size_t j = 0; j <= i; j++)
            take(sizes[i]);
    for (size_t i = 0; i < many; i++)
        drop(take(sizes[i]));
    /* From any size to any other: into, within and out of the limits. */
    for (size_t i = 0; i < many; i++)
        for (size_t j = 1; j < many; j++)
            recorded_realloc(take(sizes[i]), sizes[j]);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
