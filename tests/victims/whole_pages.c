/* Allocates whole pages by pvalloc and valloc. The requested sizes are no multiples of a page. */
#define _GNU_SOURCE
#include "ledger.h"

#include <malloc.h>
#include <stdlib.h>

#define BLOCKS 50

int main(void) {
    void *blocks[2 * BLOCKS];
    ledger_start();
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 1 + i * 977;
        ledger_alloc(NULL, blocks[2 * i] = pvalloc(size), size);
        ledger_alloc(NULL, blocks[2 * i + 1] = valloc(size), size);
    }
    for (size_t i = 0; i < 2 * BLOCKS; i += 3) {
        ledger_free(blocks[i]);
        free(blocks[i]);
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
