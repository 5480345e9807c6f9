/* `cold_archive BLOCKS SIZE [FOLDER]` allocates and writes BLOCKS blocks of SIZE bytes for an archive, and as many for a cache, after
 * the first line. It touches the cache again and again until the second line, and the archive never. With a folder, the blocks are
 * parts of two files in it, which are mapped one by one. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul

static size_t blocks, size;
static const char *folder;

static char *map_at_end(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    off_t end = lseek(file, 0, SEEK_END);
    if (file < 0 || end < 0 || ftruncate(file, end + (off_t)size) != 0)
        abort();
    char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, end);
    close(file);
    return block == MAP_FAILED ? NULL : block;
}

static char *new_block(const char *name, int value) {
    char *block = folder == NULL ? malloc(size) : map_at_end(name);
    if (block == NULL)
        abort();
    memset(block, value, size);
    return block;
}

__attribute__((noinline)) static char *archive_block(void) {
    return new_block("archive", 1);
}

__attribute__((noinline)) static char *cache_block(void) {
    return new_block("cache", 2);
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
    folder = count > 3 ? arguments[3] : NULL;
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
