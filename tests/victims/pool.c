/* A memory pool on top of malloc, and direct calls of malloc. The pool's functions have other signatures than those of
 * a C library, and its blocks follow a header, at addresses that malloc never returned. */
#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#define HEADER 32

struct pool {
    const char *name;
};

/* Each block has a header in front of it. */
__attribute__((noinline)) void *pool_take(struct pool *pool, size_t size) {
    char *chunk = malloc(size + HEADER);
    memcpy(chunk, &pool, sizeof pool);
    return chunk + HEADER;
}

__attribute__((noinline)) void *pool_array(struct pool *pool, size_t count, size_t size) {
    return pool_take(pool, count * size);
}

__attribute__((noinline)) int pool_make(struct pool *pool, size_t size, void **out) {
    if (size > 10000)
        return 1;
    *out = pool_take(pool, size);
    return 0;
}

__attribute__((noinline)) void *pool_grow(struct pool *pool, void *block, size_t size) {
    char *chunk = realloc((char *)block - HEADER, size + HEADER);
    memcpy(chunk, &pool, sizeof pool);
    return chunk + HEADER;
}

__attribute__((noinline)) void pool_give(struct pool *pool, void *block) {
    (void)pool;
    if (block)
        free((char *)block - HEADER);
}

static void *kept[64];

int main(void) {
    struct pool pool = {"victim"};
    free(malloc(16));
    ledger_start();
    for (size_t i = 0; i < 2000; i++) {
        void **at = &kept[i * 7 % 64], *block = NULL;
        size_t size = i * 37 % 5000 + 1;
        ledger_free(*at);
        pool_give(&pool, *at);
        *at = NULL;
        switch (i % 5) {
        case 0:
            block = pool_take(&pool, size);
            ledger_alloc(NULL, block, size);
            break;
        case 1:
            block = pool_array(&pool, 3, size);
            ledger_alloc(NULL, block, 3 * size);
            break;
        case 2:
            if (pool_make(&pool, size * 4, &block) != 0)
                block = NULL;
            ledger_alloc(NULL, block, size * 4);
            break;
        case 3: {
            block = pool_take(&pool, size);
            ledger_alloc(NULL, block, size);
            struct pending_realloc pending = ledger_begin_realloc(block);
            block = pool_grow(&pool, block, size * 2);
            ledger_end_realloc(NULL, pending, block, size * 2);
            break;
        }
        default: {
            void *own = malloc(size);
            ledger_alloc(NULL, own, size);
            if (i % 3) {
                ledger_free(own);
                free(own);
            }
        }
        }
        *at = block;
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
