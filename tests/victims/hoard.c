/* Holds many small blocks and some large ones, so that it fills the ledger of memtrace. A line from the harness starts
 * the next step. Two steps allocate blocks, the third one frees them all. Prints its totals after each step.
 *
 * Arguments: numbers of small and of large blocks in a step. */
#include "ledger.h"

#include <stdlib.h>

#define NOINLINE __attribute__((noinline))
#define STEPS 2
#define SMALL 16
#define LARGE 4096

static struct site small = {.name = "allocate_small"}, large = {.name = "allocate_large"};

NOINLINE static void *allocate_small(void) {
    void *block = malloc(SMALL); small.line = __LINE__;
    ledger_alloc(&small, block, SMALL);
    return block;
}

NOINLINE static void *allocate_large(void) {
    void *block = malloc(LARGE); large.line = __LINE__;
    ledger_alloc(&large, block, LARGE);
    return block;
}

static int end_step(void) {
    ledger_print("");
    return wait_for_harness();
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t count_small = strtoul(argv[1], NULL, 10), count_large = strtoul(argv[2], NULL, 10);
    size_t count = STEPS * (count_small + count_large), used = 0;
    void **blocks = calloc(count, sizeof *blocks);
    if (blocks == NULL)
        return 3;
    ledger_start();
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < count_large; i++)
            blocks[used++] = allocate_large();
        for (size_t i = 0; i < count_small; i++)
            blocks[used++] = allocate_small();
        if (!end_step())
            return 0;
    }
    for (size_t i = 0; i < used; i++) {
        ledger_free(blocks[i]);
        free(blocks[i]);
    }
    end_step();
    return 0;
}
