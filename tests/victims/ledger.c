/* See ledger.h. Nothing here calls an allocator or a function that might. */
#define _GNU_SOURCE
#include "ledger.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ledger own = {.max_size = SIZE_MAX};
struct ledger *ledger = &own;
static struct site *sites;

static void spin_hint(void) {
#ifdef __aarch64__
    __asm__ volatile("yield");
#else
    __builtin_ia32_pause();
#endif
}

static void lock(void) {
    while (__atomic_exchange_n(&ledger->lock, 1, __ATOMIC_ACQUIRE))
        spin_hint();
}

static void unlock(void) { __atomic_store_n(&ledger->lock, 0, __ATOMIC_RELEASE); }

static size_t home(uintptr_t block) { return (size_t)((block >> 4) * 0x9E3779B97F4A7C15u >> 32) % LEDGER_SLOTS; }

static struct slot *find(uintptr_t block) {
    for (size_t i = home(block), seen = 0; seen < LEDGER_SLOTS; i = (i + 1) % LEDGER_SLOTS, seen++) {
        if (ledger->slots[i].block == block)
            return &ledger->slots[i];
        if (ledger->slots[i].block == 0)
            return NULL;
    }
    return NULL;
}

static void insert(struct site *site, uintptr_t block, size_t size) {
    for (size_t i = home(block), seen = 0; seen < LEDGER_SLOTS; i = (i + 1) % LEDGER_SLOTS, seen++) {
        if (ledger->slots[i].block <= 1) {
            ledger->slots[i] = (struct slot){block, size, site};
            return;
        }
    }
    ledger->overflowed++;
}

static void register_site(struct site *site) {
    for (struct site *other = sites; other; other = other->next)
        if (other == site)
            return;
    site->next = sites;
    sites = site;
}

static void count_alloc(struct site *site, void *block, size_t size) {
    if (size < ledger->min_size || size > ledger->max_size) {
        ledger->filtered_bytes += size;
        ledger->filtered_count++;
        return;
    }
    insert(site, (uintptr_t)block, size);
    ledger->alloc_bytes += size;
    ledger->alloc_count++;
    uint64_t live = ledger->alloc_bytes - ledger->free_bytes;
    if (live > ledger->peak_bytes)
        ledger->peak_bytes = live;
    if (site) {
        register_site(site);
        site->alloc_bytes += size;
        site->alloc_count++;
    }
}

static void count_free(struct site *site, size_t size) {
    ledger->free_bytes += size;
    ledger->free_count++;
    if (site) {
        site->free_bytes += size;
        site->free_count++;
    }
}

static struct pending_realloc remove_block(void *block) {
    struct pending_realloc pending = {.block = block};
    struct slot *slot = find((uintptr_t)block);
    if (slot) {
        pending.size = slot->size;
        pending.site = slot->site;
        pending.tracked = 1;
        slot->block = 1;
    }
    return pending;
}

void ledger_alloc(struct site *site, void *block, size_t size) {
    if (!block || !ledger->counting)
        return;
    lock();
    count_alloc(site, block, size);
    unlock();
}

void ledger_free(void *block) {
    if (!block || !ledger->counting)
        return;
    lock();
    struct pending_realloc pending = remove_block(block);
    if (pending.tracked)
        count_free(pending.site, pending.size);
    else
        ledger->unmatched_frees++;
    unlock();
}

struct pending_realloc ledger_begin_realloc(void *block) {
    struct pending_realloc pending = {.block = block};
    if (!block || !ledger->counting)
        return pending;
    lock();
    pending = remove_block(block);
    unlock();
    return pending;
}

void ledger_end_realloc(struct site *site, struct pending_realloc old, void *block, size_t size) {
    if (!ledger->counting)
        return;
    lock();
    if (!block && size != 0) {
        if (old.tracked)
            insert(old.site, (uintptr_t)old.block, old.size);
    } else {
        if (old.tracked)
            count_free(old.site, old.size);
        else if (old.block)
            ledger->unmatched_frees++;
        if (block)
            count_alloc(site, block, size);
    }
    unlock();
}

void ledger_set_size_limits(size_t min, size_t max) {
    ledger->min_size = min;
    ledger->max_size = max;
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

void ledger_print(const char *extra) {
    if (ledger->overflowed)
        _exit(102);
    put("{");
    put(extra);
    put_four(ledger->alloc_bytes, ledger->alloc_count, ledger->free_bytes, ledger->free_count);
    put_member("unmatched_frees", ledger->unmatched_frees);
    put_member("filtered_bytes", ledger->filtered_bytes);
    put_member("filtered_count", ledger->filtered_count);
    put_member("peak_bytes", ledger->peak_bytes);
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

void print_ready(void) {
    put("ready ");
    put_number((uint64_t)getpid());
    put("\n");
    flush();
}

void ledger_start(void) {
    print_ready();
    if (!wait_for_harness())
        _exit(103);
    ledger->counting = 1;
}

int wait_for_harness(void) {
    for (char byte = 0; byte != '\n';)
        if (read(STDIN_FILENO, &byte, 1) != 1)
            return 0;
    return 1;
}

void print_text(const char *text) {
    put(text);
    flush();
}
