/* `ranges FILE` has memory of each kind, of sizes that the test knows. FILE is 16 MiB long. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define MIB ((size_t)1 << 20)

static pthread_barrier_t arrived, leave;

static char *map(size_t size, int flags, int file) {
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);
    if (start == MAP_FAILED)
        abort();
    /* A huge page would make more resident than is touched. Kernels without huge pages refuse the call. */
    madvise(start, size, MADV_NOHUGEPAGE);
    return start;
}

static int sized(int file, size_t size) {
    if (file < 0 || ftruncate(file, (off_t)size))
        abort();
    return file;
}

static void touch(char *start, size_t size) { memset(start, 1, size); }

static int read_pages(const volatile char *start, size_t size) {
    int sum = 0;
    for (size_t at = 0; at < size; at += 4096)
        sum += start[at];
    return sum;
}

static void *deep(void *unused) {
    volatile char frame[20 << 20];
    for (size_t at = 0; at < sizeof frame; at += 4096)
        frame[at] = 1;
    pthread_barrier_wait(&arrived);
    pthread_barrier_wait(&leave);
    return unused;
}

int main(int count, char **words) {
    if (count != 2)
        return 2;
    char *reserve = map(1024 * MIB, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, reserve, 1024 * MIB, "reserve");
    touch(reserve + 100 * MIB, 64 * MIB);

    /* In huge pages, if the kernel has any free. */
    char *huge = map(16 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    madvise(huge, 16 * MIB, MADV_HUGEPAGE);
    touch((char *)(((uintptr_t)huge + 2 * MIB - 1) / (2 * MIB) * (2 * MIB)), 8 * MIB);

    int file = open(words[1], O_RDWR);
    char *own = map(8 * MIB, MAP_PRIVATE, file);
    int sum = read_pages(own, 8 * MIB);
    touch(own, 3 * MIB);
    sum += read_pages(map(16 * MIB, MAP_SHARED, file), 6 * MIB);

    touch(map(16 * MIB, MAP_SHARED, sized(memfd_create("pool", 0), 16 * MIB)), 10 * MIB);
    touch(map(8 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1), 4 * MIB);

    pthread_barrier_init(&arrived, NULL, 2);
    pthread_barrier_init(&leave, NULL, 2);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 * MIB);
    if (pthread_create(&thread, &attributes, deep, &sum))
        return 2;
    pthread_barrier_wait(&arrived);
    print_ready();
    if (!wait_for_harness())
        return 1;
    pthread_barrier_wait(&leave);
    pthread_join(thread, NULL);
    return 0;
}
