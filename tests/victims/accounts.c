/* Threads whose blocks other threads free, with counters and water marks of each thread and of all.
 *
 * All calls of the allocator are made under one lock, so that their order is that of the counters. Each phase starts with
 * new marks. Prints the counters after each phase, as one line of JSON. */
#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 8
#define PHASES 2
#define STEPS 4000
#define SLOTS 512
#define BUFFER 8192

struct amount {
    uint64_t bytes, count;
};

struct account {
    struct amount alloc, free, by_others, low, high;
};

struct block {
    void *address;
    size_t size;
    size_t owner;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begin, end;
static struct account accounts[THREADS], all;
static struct block blocks[SLOTS];
static int tids[THREADS];
/* Not constant, since compilers refuse such a size. */
static volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;

static struct amount current(const struct account *account) {
    return (struct amount){account->alloc.bytes - account->free.bytes, account->alloc.count - account->free.count};
}

static void mark(struct account *account) {
    struct amount now = current(account);
    if (now.bytes < account->low.bytes)
        account->low.bytes = now.bytes;
    if (now.count < account->low.count)
        account->low.count = now.count;
    if (now.bytes > account->high.bytes)
        account->high.bytes = now.bytes;
    if (now.count > account->high.count)
        account->high.count = now.count;
}

static void add(struct amount *amount, size_t size) {
    amount->bytes += size;
    amount->count++;
}

static void count_alloc(struct account *account, size_t size) {
    add(&account->alloc, size);
    mark(account);
}

static void count_free(struct account *account, size_t size, int by_other) {
    add(&account->free, size);
    if (by_other)
        add(&account->by_others, size);
    mark(account);
}

/* Frees the block in a slot, by the thread `self`. */
static void release(struct block *block, size_t self) {
    count_free(&accounts[block->owner], block->size, block->owner != self);
    count_free(&all, block->size, block->owner != self);
    free(block->address);
    block->address = NULL;
}

static void step(size_t self, uint32_t random) {
    struct block *block = &blocks[random % SLOTS];
    if (block->address && random % 61 == 0) {
        /* It fails, so the block remains. */
        if (realloc(block->address, too_large) != NULL)
            abort();
        return;
    }
    if (block->address && random >> 16 & 1) {
        release(block, self);
        return;
    }
    size_t size = 1 + (random >> 8) % 5000;
    if (block->address && block->owner == self) {
        /* A realloc frees the old block, and allocates the new one. */
        count_free(&accounts[self], block->size, 0);
        count_free(&all, block->size, 0);
        block->address = realloc(block->address, size);
    } else {
        if (block->address)
            release(block, self);
        block->address = malloc(size);
    }
    block->size = size;
    block->owner = self;
    count_alloc(&accounts[self], size);
    count_alloc(&all, size);
}

static void *run(void *argument) {
    size_t self = (size_t)argument;
    uint32_t random = 12345 + 977 * (uint32_t)self;
    char name[16];
    snprintf(name, sizeof name, "worker-%zu", self);
    pthread_setname_np(pthread_self(), name);
    tids[self] = gettid();
    pthread_barrier_wait(&begin);
    for (int phase = 0; phase < PHASES; phase++) {
        pthread_barrier_wait(&begin);
        for (int i = 0; i < STEPS; i++) {
            random = random * 1664525 + 1013904223;
            pthread_mutex_lock(&lock);
            step(self, random);
            pthread_mutex_unlock(&lock);
        }
        pthread_barrier_wait(&end);
    }
    pthread_barrier_wait(&end);
    return NULL;
}

static int print_account(char *text, size_t room, int tid, const struct account *account) {
    const struct amount *amounts[] = {&account->alloc, &account->free, &account->by_others, &account->low, &account->high};
    int length = snprintf(text, room, "[%d", tid);
    for (int i = 0; i < 5; i++)
        length += snprintf(text + length, room - (size_t)length, ",%lu,%lu", amounts[i]->bytes, amounts[i]->count);
    return length + snprintf(text + length, room - (size_t)length, "]");
}

static void print_accounts(void) {
    static char text[BUFFER];
    int length = snprintf(text, BUFFER, "[");
    for (size_t i = 0; i < THREADS; i++) {
        length += print_account(text + length, BUFFER - (size_t)length, tids[i], &accounts[i]);
        length += snprintf(text + length, BUFFER - (size_t)length, ",");
    }
    length += print_account(text + length, BUFFER - (size_t)length, 0, &all);
    snprintf(text + length, BUFFER - (size_t)length, "]\n");
    print_text(text);
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, run, (void *)i) != 0)
            abort();
    pthread_barrier_wait(&begin);
    ledger_start();
    for (int phase = 0; phase < PHASES; phase++) {
        if (phase > 0 && !wait_for_harness())
            return 1;
        for (size_t i = 0; i < THREADS; i++)
            accounts[i].low = accounts[i].high = current(&accounts[i]);
        all.low = all.high = current(&all);
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
        print_accounts();
    }
    if (!wait_for_harness())
        return 1;
    pthread_barrier_wait(&end);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
