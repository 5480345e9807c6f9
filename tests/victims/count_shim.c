/* Wraps glibc's allocator and records every call of the executable, its libraries and the dynamic linker in the ledger
 * in the shared file COUNT_SHIM_FILE: reference totals for executables without a ledger. Preload it, or link it first.
 *
 * It sees calls through the public names of the allocator. Direct calls inside glibc (freeing the tcache of an exiting
 * thread) bypass it. */
#define _GNU_SOURCE
#include "ledger.h"
#include "shared_file.h"

#include <errno.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t);
void *__libc_pvalloc(size_t);

/* The ledger's functions stay hidden, so that they do not replace those of a victim. */
#define PUBLIC __attribute__((visibility("default")))

static int opened;

static void open_ledger(void) {
    if (!__atomic_exchange_n(&opened, 1, __ATOMIC_ACQ_REL))
        ledger = shared_file("COUNT_SHIM_FILE=", sizeof(struct ledger));
}

PUBLIC void *malloc(size_t size) {
    open_ledger();
    void *block = __libc_malloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

PUBLIC void *calloc(size_t count, size_t size) {
    open_ledger();
    void *block = __libc_calloc(count, size);
    ledger_alloc(NULL, block, count * size);
    return block;
}

PUBLIC void *realloc(void *old, size_t size) {
    open_ledger();
    struct pending_realloc pending = ledger_begin_realloc(old);
    void *block = __libc_realloc(old, size);
    ledger_end_realloc(NULL, pending, block, size);
    return block;
}

PUBLIC void *reallocarray(void *old, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, bytes);
}

PUBLIC void free(void *block) {
    open_ledger();
    ledger_free(block);
    __libc_free(block);
}

PUBLIC void *memalign(size_t alignment, size_t size) {
    open_ledger();
    void *block = __libc_memalign(alignment, size);
    ledger_alloc(NULL, block, size);
    return block;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

PUBLIC int posix_memalign(void **place, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
        return EINVAL;
    void *block = memalign(alignment, size);
    if (!block)
        return ENOMEM;
    *place = block;
    return 0;
}

PUBLIC void *valloc(size_t size) {
    open_ledger();
    void *block = __libc_valloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}

PUBLIC void *pvalloc(size_t size) {
    open_ledger();
    void *block = __libc_pvalloc(size);
    ledger_alloc(NULL, block, size);
    return block;
}
