/* Uses more memory than its memory cgroup allows. `memcg_limit read FILE TIMES` reads a file repeatedly. `memcg_limit
 * eat BYTES FILE` allocates and writes blocks of BYTES until it is killed, and keeps the number of blocks in FILE.
 * `memcg_limit swap BYTES SECONDS` writes to BYTES of memory repeatedly for SECONDS. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 20];

__attribute__((noinline)) static void read_all(const char *path) {
    int file = open(path, O_RDONLY);
    if (file < 0)
        exit(3);
    while (read(file, buffer, sizeof buffer) > 0)
        ;
    close(file);
}

/* A counter in a file. Existing mappings are locked, so that no page is charged, and no OOM kill can come, between a
 * malloc and its count. */
static uint64_t *count_in(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(uint64_t)) != 0)
        exit(3);
    uint64_t *count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (count == MAP_FAILED || mlockall(MCL_CURRENT) != 0)
        exit(6);
    return count;
}

__attribute__((noinline)) static void eat(size_t size, volatile uint64_t *count) {
    for (;;) {
        unsigned char *block = malloc(size);
        if (!block)
            exit(4);
        *count += 1;
        memset(block, 1, size);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static void write_again(size_t bytes, int seconds) {
    unsigned char *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        exit(6);
    for (double end = now() + seconds; now() < end;)
        memset(all, 1, bytes);
    munmap(all, bytes);
}

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    int eats = strcmp(arguments[1], "eat") == 0;
    uint64_t *eaten = eats ? count_in(arguments[3]) : NULL;
    ledger_start();
    if (eats)
        eat(strtoul(arguments[2], NULL, 10), eaten);
    int swaps = strcmp(arguments[1], "swap") == 0;
    if (swaps)
        write_again(strtoul(arguments[2], NULL, 10), atoi(arguments[3]));
    for (int times = swaps ? 0 : atoi(arguments[3]); times > 0; times--)
        read_all(arguments[2]);
    ledger_print("");
    wait_for_harness();
    return 0;
}
