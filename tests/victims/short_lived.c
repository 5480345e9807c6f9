/* Allocates in a constructor and in main, prints its totals and exits at once. */
#include "ledger.h"

#include <stdlib.h>

__attribute__((noinline)) static void *keep(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

__attribute__((constructor)) static void before_main(void) {
    ledger->counting = 1;
    keep(123);
}

int main(int count, char **arguments) {
    for (size_t i = 1; i <= 10; i++)
        keep(i * 100);
    void *block = keep(4000);
    ledger_free(block);
    free(block);
    ledger_print("");
    return count > 1 ? atoi(arguments[1]) : 0;
}
