/* A call to malloc in an inlined function. */
#include "ledger.h"

#include <stdlib.h>

static struct site inner = {.name = "inlined_inner"};

__attribute__((always_inline)) static inline void *inlined_inner(size_t size) {
    void *block = malloc(size); inner.line = __LINE__;
    ledger_alloc(&inner, block, size);
    return block;
}

__attribute__((noinline)) static void *real_outer(size_t size) {
    void *block = inlined_inner(size * 2);
    return block ? (char *)block + 1 : NULL;
}

int main(void) {
    ledger_start();
    for (size_t i = 1; i <= 5; i++)
        real_outer(i * 100);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
