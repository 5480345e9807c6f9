/* `cold_archive BLOCKS SIZE` allocates and writes BLOCKS blocks of SIZE bytes for an archive, and as many for a cache, after the first
 * line. It touches the cache again and again until the second line, and the archive never. */
#include "ledger.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096ul

static size_t blocks, size;

__attribute__((noinline)) static char *archive_block(void) {
    char *block = malloc(size);
    if (block == NULL)
        abort();
    memset(block, 1, size);
    return block;
}

__attribute__((noinline)) static char *cache_block(void) {
    char *block = malloc(size);
    if (block == NULL)
        abort();
    memset(block, 2, size);
    return block;
}

static int has_line(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 1) > 0;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 1;
    blocks = strtoul(arguments[1], NULL, 10);
    size = strtoul(arguments[2], NULL, 10);
    char **cache = calloc(blocks, sizeof *cache), **archive = calloc(blocks, sizeof *archive);
    if (cache == NULL || archive == NULL)
        return 1;
    print_ready();
    if (!wait_for_harness())
        return 1;
    for (size_t block = 0; block < blocks; block++) {
        archive[block] = archive_block();
        cache[block] = cache_block();
    }
    print_ready();
    while (!has_line()) {
        for (size_t block = 0; block < blocks; block++) {
            for (size_t offset = 0; offset < size; offset += PAGE)
                *(volatile char *)(cache[block] + offset);
            *(volatile char *)(cache[block] + size - 1);
        }
    }
    return wait_for_harness() ? 0 : 1;
}
