/* `old_blocks BLOCKS`: allocates blocks before recording starts. At the first line from the harness, it frees each of them, and
 * allocates and frees another one. Prints its totals, and ends at the second line. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>

#define MOST_BLOCKS 1000
#define SIZE 100

static void *old[MOST_BLOCKS];

int main(int count, char **arguments) {
    size_t blocks = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
    if (blocks > MOST_BLOCKS)
        return 2;
    for (size_t i = 0; i < blocks; i++)
        old[i] = malloc(SIZE);
    ledger_start();
    for (size_t i = 0; i < blocks; i++) {
        ledger_free(old[i]);
        free(old[i]);
        void *block = malloc(SIZE);
        ledger_alloc(NULL, block, SIZE);
        ledger_free(block);
        free(block);
    }
    ledger_print("");
    wait_for_harness();
    return 0;
}
