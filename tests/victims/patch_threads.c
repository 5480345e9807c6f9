/* Threads that allocate, and free blocks of their neighbours.
 *
 * `patch_threads ring THREADS ROUNDS`: the threads exist before the first barrier. For each line, each thread allocates ROUNDS
 * blocks. All threads wait when the totals are printed.
 * `patch_threads short THREADS GENERATIONS`: for each line, creates THREADS threads and waits for their ends, GENERATIONS times.
 * `patch_threads loop THREADS BUSY`: BUSY threads allocate for ever, and the others wait for a signal. Prints `ok` again and again. */
#define _GNU_SOURCE
#include "patch.h"

#include <pthread.h>

#define MOST 256
#define DEPTH 32
#define BLOCKS_OF_SHORT 32
#define STACK_SIZE (64u << 10)

static pthread_barrier_t start, done;
static size_t threads, rounds;
/* Mailboxes: thread i puts blocks into box i, and thread i + 1 takes them out. */
static void *boxes[MOST][DEPTH];

static struct site of_ring = {.name = "take_in_ring"}, of_short = {.name = "take_in_short"};

static void *swap(void **place, void *block) { return __atomic_exchange_n(place, block, __ATOMIC_ACQ_REL); }

/* The size is in the block, which another thread frees. */
static void fill_sized(void *block, size_t size) {
    expect(block != NULL, "malloc has failed\n");
    fill(block, size, size);
    memcpy(block, &size, sizeof size);
}

static void release(void *block) {
    if (!block)
        return;
    size_t size;
    memcpy(&size, block, sizeof size);
    const unsigned char *bytes = block;
    expect(size >= 64 && size < 4096 && bytes[size / 2] == (unsigned char)size && bytes[size - 1] == (unsigned char)size,
           "the content of a block has changed\n");
    ledger_free(block);
    free(block);
}

NOINLINE static void *take_in_ring(size_t size) {
    void *block = malloc(size); of_ring.line = __LINE__;
    ledger_alloc(&of_ring, block, size);
    return block;
}

NOINLINE static void *take_in_short(size_t size) {
    void *block = malloc(size); of_short.line = __LINE__;
    ledger_alloc(&of_short, block, size);
    return block;
}

static void pass_blocks(size_t self, size_t count) {
    size_t neighbour = (self + threads - 1) % threads;
    for (size_t i = 0; i < count; i++) {
        size_t size = 64 + (self * 131 + i * 17) % 3000;
        void *block = take_in_ring(size);
        fill_sized(block, size);
        release(swap(&boxes[self][i % DEPTH], block));
        release(swap(&boxes[neighbour][i * 7 % DEPTH], NULL));
    }
}

static __attribute__((noreturn)) void *run_in_ring(void *argument) {
    for (;;) {
        pthread_barrier_wait(&start);
        pass_blocks((size_t)argument, rounds);
        pthread_barrier_wait(&done);
    }
}

static void *run_short(void *argument) {
    void *blocks[BLOCKS_OF_SHORT];
    for (size_t i = 0; i < BLOCKS_OF_SHORT; i++) {
        size_t size = 64 + ((size_t)argument * 131 + i * 17) % 3000;
        blocks[i] = take_in_short(size);
        fill_sized(blocks[i], size);
    }
    for (size_t i = 0; i < BLOCKS_OF_SHORT; i++)
        release(blocks[i]);
    return NULL;
}

static void create(pthread_t *thread, void *(*run)(void *), size_t argument) {
    static pthread_attr_t small;
    static int is_set;
    if (!is_set) {
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, STACK_SIZE);
        is_set = 1;
    }
    expect(pthread_create(thread, &small, run, (void *)argument) == 0, "no thread\n");
}

static void clear(void) {
    static struct site *const all[] = {&of_ring, &of_short};
    for (size_t i = 0; i < MOST; i++)
        for (size_t j = 0; j < DEPTH; j++)
            release(swap(&boxes[i][j], NULL));
    clear_ledger();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->alloc_bytes = all[i]->alloc_count = all[i]->free_bytes = all[i]->free_count = 0;
}

static void run_generations(size_t generations) {
    pthread_t all[MOST];
    for (size_t generation = 0; generation < generations; generation++) {
        for (size_t i = 0; i < threads; i++)
            create(&all[i], run_short, generation * threads + i);
        for (size_t i = 0; i < threads; i++)
            pthread_join(all[i], NULL);
    }
}

static __attribute__((noreturn)) void *run_busy(void *argument) {
    for (;;)
        pass_blocks((size_t)argument, 1000);
}

static __attribute__((noreturn)) void *run_idle(void *argument) {
    (void)argument;
    for (;;)
        pause();
}

static __attribute__((noreturn)) void loop(size_t busy) {
    pthread_t thread;
    for (size_t i = 1; i < threads; i++)
        create(&thread, i < busy ? run_busy : run_idle, i);
    for (;;) {
        pass_blocks(0, busy ? 20000 : 1);
        print_text("ok\n");
        if (!busy)
            usleep(20000);
    }
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    threads = strtoul(arguments[2], NULL, 10);
    size_t number = strtoul(arguments[3], NULL, 10);
    if (threads == 0 || threads > MOST)
        return 2;
    if (strcmp(arguments[1], "loop") == 0)
        loop(number);
    int is_ring = strcmp(arguments[1], "ring") == 0;
    rounds = number;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&done, NULL, (unsigned)threads + 1);
    for (size_t i = 0; is_ring && i < threads; i++) {
        pthread_t thread;
        create(&thread, run_in_ring, i);
    }
    print_ready();
    char line[LINE_SIZE];
    while (read_line(line)) {
        clear();
        if (is_ring) {
            pthread_barrier_wait(&start);
            pthread_barrier_wait(&done);
        } else {
            run_generations(number);
        }
        ledger_print("");
    }
    return 0;
}
