/* Does one step of work per line from the harness and prints its totals after each. A step allocates twelve blocks, frees
 * some of them and some of each earlier step, and reallocates a block of the step before. Each step is a call site, which
 * has the totals of its blocks. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 8
#define BLOCKS 12

static struct site sites[STEPS] = {{.name = "step0"}, {.name = "step1"}, {.name = "step2"}, {.name = "step3"},
                                   {.name = "step4"}, {.name = "step5"}, {.name = "step6"}, {.name = "step7"}};
static void *blocks[STEPS][BLOCKS + 1];

static void release(int step, int block) {
    ledger_free(blocks[step][block]);
    free(blocks[step][block]);
    blocks[step][block] = NULL;
}

__attribute__((noinline)) static void work(int step) {
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = (size_t)(100 * (step + 1) + i);
        blocks[step][i] = malloc(size);
        ledger_alloc(&sites[step], blocks[step][i], size);
        memset(blocks[step][i], i, size);
    }
    release(step, 0);
    for (int earlier = 0; earlier < step; earlier++)
        release(earlier, step - earlier);
    if (step > 0) {
        void *old = blocks[step - 1][BLOCKS - 1];
        struct pending_realloc pending = ledger_begin_realloc(old);
        blocks[step][BLOCKS] = realloc(old, 5000);
        ledger_end_realloc(&sites[step], pending, blocks[step][BLOCKS], 5000);
        blocks[step - 1][BLOCKS - 1] = NULL;
    }
}

int main(void) {
    ledger_start();
    for (int step = 0; step < STEPS; step++) {
        work(step);
        ledger_print("");
        if (!wait_for_harness())
            return 0;
    }
    return 1;
}
