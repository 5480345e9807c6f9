/* A library with an allocator whose functions share the prefix `mine_`. Each block is a mapping of its own. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define HEADER 4096

void *mine_malloc(size_t size) {
    char *map = mmap(NULL, size + HEADER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    memcpy(map, &size, sizeof size);
    return map + HEADER;
}

void mine_free(void *block) {
    size_t size;
    if (!block)
        return;
    memcpy(&size, (char *)block - HEADER, sizeof size);
    munmap((char *)block - HEADER, size + HEADER);
}

void *mine_calloc(size_t count, size_t size) {
    size_t product;
    return __builtin_mul_overflow(count, size, &product) ? NULL : mine_malloc(product);
}

void *mine_realloc(void *old, size_t size) {
    size_t before = 0;
    if (old && size == 0) {
        mine_free(old);
        return NULL;
    }
    if (old)
        memcpy(&before, (char *)old - HEADER, sizeof before);
    void *block = mine_malloc(size);
    if (block && old) {
        memcpy(block, old, before < size ? before : size);
        mine_free(old);
    }
    return block;
}

void *mine_aligned_alloc(size_t alignment, size_t size) { return alignment <= HEADER ? mine_malloc(size) : NULL; }

int mine_posix_memalign(void **out, size_t alignment, size_t size) {
    void *block = mine_aligned_alloc(alignment, size);
    if (!block)
        return 12;
    *out = block;
    return 0;
}
