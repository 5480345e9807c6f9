/* See ledger.h. Nothing here calls an allocator, nor any function that might. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct books own = {.max_size = SIZE_MAX};
struct books *books = &own;
static struct site *sites;

/* Lets the processor know that it waits. */
static void rest(void) {
#ifdef __aarch64__
    __asm__ volatile("yield");
#else
    __builtin_ia32_pause();
#endif
}

static void lock(void) {
    while (__atomic_exchange_n(&books->lock, 1, __ATOMIC_ACQUIRE))
        rest();
}

static void unlock(void) { __atomic_store_n(&books->lock, 0, __ATOMIC_RELEASE); }

static size_t home(uintptr_t block) { return (size_t)((block >> 4) * 0x9E3779B97F4A7C15u >> 32) % BOOKS_SLOTS; }

static struct slot *find(uintptr_t block) {
    for (size_t i = home(block), seen = 0; seen < BOOKS_SLOTS; i = (i + 1) % BOOKS_SLOTS, seen++) {
        if (books->slots[i].block == block)
            return &books->slots[i];
        if (books->slots[i].block == 0)
            return NULL;
    }
    return NULL;
}

static void insert(struct site *site, uintptr_t block, size_t size) {
    for (size_t i = home(block), seen = 0; seen < BOOKS_SLOTS; i = (i + 1) % BOOKS_SLOTS, seen++) {
        if (books->slots[i].block <= 1) {
            books->slots[i] = (struct slot){block, size, site};
            return;
        }
    }
    books->overflowed++;
}

static void register_site(struct site *site) {
    for (struct site *known = sites; known; known = known->next)
        if (known == site)
            return;
    site->next = sites;
    sites = site;
}

static void count_alloc(struct site *site, void *block, size_t size) {
    if (size < books->min_size || size > books->max_size) {
        books->filtered_bytes += size;
        books->filtered_count++;
        return;
    }
    insert(site, (uintptr_t)block, size);
    books->alloc_bytes += size;
    books->alloc_count++;
    uint64_t live = books->alloc_bytes - books->free_bytes;
    if (live > books->peak_bytes)
        books->peak_bytes = live;
    if (site) {
        register_site(site);
        site->alloc_bytes += size;
        site->alloc_count++;
    }
}

static void count_free(struct site *site, size_t size) {
    books->free_bytes += size;
    books->free_count++;
    if (site) {
        site->free_bytes += size;
        site->free_count++;
    }
}

static struct parked take(void *block) {
    struct parked parked = {.block = block};
    struct slot *slot = find((uintptr_t)block);
    if (slot) {
        parked.size = slot->size;
        parked.site = slot->site;
        parked.known = 1;
        slot->block = 1;
    }
    return parked;
}

void book_alloc(struct site *site, void *block, size_t size) {
    if (!block || !books->counting)
        return;
    lock();
    count_alloc(site, block, size);
    unlock();
}

void book_free(void *block) {
    if (!block || !books->counting)
        return;
    lock();
    struct parked parked = take(block);
    if (parked.known)
        count_free(parked.site, parked.size);
    else
        books->unmatched_frees++;
    unlock();
}

struct parked book_park(void *block) {
    struct parked parked = {.block = block};
    if (!block || !books->counting)
        return parked;
    lock();
    parked = take(block);
    unlock();
    return parked;
}

void book_realloc(struct site *site, struct parked old, void *block, size_t size) {
    if (!books->counting)
        return;
    lock();
    if (!block && size != 0) {
        if (old.known)
            insert(old.site, (uintptr_t)old.block, old.size);
    } else {
        if (old.known)
            count_free(old.site, old.size);
        else if (old.block)
            books->unmatched_frees++;
        if (block)
            count_alloc(site, block, size);
    }
    unlock();
}

void book_limits(size_t min, size_t max) {
    books->min_size = min;
    books->max_size = max;
}

static char line[1 << 14];
static size_t used;

static void put(const char *text) {
    size_t length = strlen(text);
    if (used + length < sizeof line) {
        memcpy(line + used, text, length);
        used += length;
    }
}

static void put_number(uint64_t number) {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put(digits + at);
}

static void put_member(const char *name, uint64_t number) {
    put("\"");
    put(name);
    put("\":");
    put_number(number);
    put(",");
}

static void put_four(uint64_t alloc_bytes, uint64_t alloc_count, uint64_t free_bytes, uint64_t free_count) {
    put_member("alloc_bytes", alloc_bytes);
    put_member("alloc_count", alloc_count);
    put_member("free_bytes", free_bytes);
    put_member("free_count", free_count);
    put_member("live_bytes", alloc_bytes - free_bytes);
    put_member("live_count", alloc_count - free_count);
}

static void flush(void) {
    for (size_t done = 0; done < used;) {
        ssize_t wrote = write(STDOUT_FILENO, line + done, used - done);
        if (wrote <= 0)
            _exit(101);
        done += (size_t)wrote;
    }
    used = 0;
}

void books_print(const char *extra) {
    if (books->overflowed)
        _exit(102);
    put("{");
    put(extra);
    put_four(books->alloc_bytes, books->alloc_count, books->free_bytes, books->free_count);
    put_member("unmatched_frees", books->unmatched_frees);
    put_member("filtered_bytes", books->filtered_bytes);
    put_member("filtered_count", books->filtered_count);
    put_member("peak_bytes", books->peak_bytes);
    put("\"sites\":[");
    for (struct site *site = sites; site; site = site->next) {
        put("{");
        put_four(site->alloc_bytes, site->alloc_count, site->free_bytes, site->free_count);
        put_member("line", (uint64_t)site->line);
        put("\"name\":\"");
        put(site->name);
        put(site->next ? "\"}," : "\"}");
    }
    put("]}\n");
    flush();
}

void say_ready(void) {
    put("ready ");
    put_number((uint64_t)getpid());
    put("\n");
    flush();
}

void books_begin(void) {
    say_ready();
    if (!gate_wait())
        _exit(103);
    books->counting = 1;
}

int gate_wait(void) {
    for (char byte = 0; byte != '\n';)
        if (read(STDIN_FILENO, &byte, 1) != 1)
            return 0;
    return 1;
}

void say(const char *text) {
    put(text);
    flush();
}
