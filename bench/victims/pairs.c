/* `pairs MODE PROCESSORS`: pairs of malloc and free without a pause.
 *
 *   loop     allocates a block and frees it
 *   live     replaces a random one of 20,000 live blocks
 *   threads  loop, in four threads
 *
 * It reads the number of pairs from each line of input and prints their duration. The stack of each malloc has five frames of
 * this program: main or the start function of the thread, three times `descend`, and the function with the loop. */
#include "victim.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define SIZE 64
#define BLOCKS 20000
#define THREADS 4
#define DESCENTS 3

typedef void work(unsigned long long pairs);

static void *blocks[BLOCKS];
static pthread_barrier_t start, done;
static unsigned long long share;

static void require(void *block) {
    if (!block)
        abort();
}

static __attribute__((noinline)) void loop(unsigned long long pairs) {
    for (unsigned long long i = 0; i < pairs; i++) {
        void *block = malloc(SIZE);
        require(block);
        free(block);
    }
}

/* Marsaglia, "Xorshift RNGs", 2003. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t some_size(uint64_t random) { return 16 + (random >> 32) % 1009; }

static __attribute__((noinline)) void replace(unsigned long long pairs) {
    static uint64_t state = 88172645463325252u;
    for (unsigned long long i = 0; i < pairs; i++) {
        uint64_t random = next_random(&state);
        void **block = &blocks[(random & 0xffffffff) % BLOCKS];
        free(*block);
        *block = malloc(some_size(random));
        require(*block);
    }
}

static __attribute__((noinline)) void fill(void) {
    uint64_t state = 1;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(some_size(next_random(&state)));
        require(blocks[i]);
    }
}

static __attribute__((noinline, noclone)) void descend(int descents, work *work, unsigned long long pairs) {
    if (descents > 1)
        descend(descents - 1, work, pairs);
    else
        work(pairs);
}

static __attribute__((noreturn)) void *run(void *argument) {
    (void)argument;
    for (;;) {
        pthread_barrier_wait(&start);
        descend(DESCENTS, loop, share);
        pthread_barrier_wait(&done);
    }
}

static void begin_threads(void) {
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&done, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, NULL) != 0)
            abort();
    }
}

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    int processors = set_affinity(arguments[2]);
    int is_live = strcmp(arguments[1], "live") == 0;
    int is_threads = strcmp(arguments[1], "threads") == 0;
    if (!is_live && !is_threads && strcmp(arguments[1], "loop") != 0)
        return 2;
    if (is_threads)
        begin_threads();
    ready();
    for (unsigned long long pairs; wait_line(&pairs);) {
        /* After the barrier, so that the tracer sees these blocks. */
        if (is_live && !blocks[0])
            fill();
        uint64_t start_time = nanoseconds(CLOCK_MONOTONIC);
        if (is_threads) {
            share = pairs / THREADS;
            pairs = share * THREADS;
            pthread_barrier_wait(&start);
            pthread_barrier_wait(&done);
        } else {
            descend(DESCENTS, is_live ? replace : loop, pairs);
        }
        uint64_t ns = nanoseconds(CLOCK_MONOTONIC) - start_time;
        int busy = is_threads && processors > 1 ? (processors < THREADS ? processors : THREADS) : 1;
        dprintf(STDOUT_FILENO, "{\"pairs\":%llu,\"ns\":%llu,\"processors\":%d}\n", pairs, (unsigned long long)ns,
                busy);
    }
    return 0;
}
