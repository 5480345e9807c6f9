/* `pages SCENARIO` maps and touches memory in one of several ways and prints the resident and mapped pages that it
 * expects for each of its functions. */
#define _GNU_SOURCE
#include "ledger.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOIPA __attribute__((noipa))
#define PAGE 4096ul
#define MIB (1ul << 20)
#define HUGE (2 * MIB)

static char line[1024];

/* Adds the expected pages of a function to the output line. */
static void expect_pages(const char *function, unsigned long resident, unsigned long mapped) {
    size_t length = strlen(line);
    snprintf(line + length, sizeof line - length, "%s\"%s\":{\"resident\":%lu,\"mapped\":%lu}", length ? "," : "",
             function, resident, mapped);
}

static void *checked(void *mapped) {
    if (mapped == MAP_FAILED)
        abort();
    return mapped;
}

static char *map(size_t bytes) {
    return checked(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

static void write_to(char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        from[at] = 1;
}

static void read_from(const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        (void)*(const volatile char *)(from + at);
}

/* The start of the next huge page: a touch of one may bring in more than one small page. */
static char *aligned(char *at) { return (char *)(((uintptr_t)at + HUGE - 1) / HUGE * HUGE); }

NOIPA static void reserve_and_touch(void) {
    char *all = map(1024 * MIB);
    write_to(aligned(all + 512 * MIB), 64 * MIB);
    expect_pages("reserve_and_touch", 64 * MIB / PAGE, 1024 * MIB / PAGE);
}

/* Transparent huge pages are disabled, so that each page faults separately. */
static void reserve_by_pages(void) {
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
        abort();
    reserve_and_touch();
}

NOIPA static char *only_read(void) {
    char *all = map(16 * MIB);
    read_from(all, 16 * MIB);
    return all;
}

NOIPA static void write_half(char *all) { write_to(all, 8 * MIB); }

/* Reads map the shared zero page, which counts for no process. */
static void reads(void) {
    char *all = only_read();
    write_half(all);
    expect_pages("only_read", 0, 16 * MIB / PAGE);
    expect_pages("write_half", 8 * MIB / PAGE, 0);
}

NOIPA static void huge_written(void) {
    char *all = map(10 * MIB);
    char *begin = aligned(all);
    if (madvise(begin, 8 * MIB, MADV_HUGEPAGE))
        abort();
    for (int i = 0; i < 4; i++)
        begin[i * HUGE + 77 * PAGE] = 1;
    expect_pages("huge_written", 8 * MIB / PAGE, 10 * MIB / PAGE);
}

NOIPA static void huge_read(void) {
    char *all = map(10 * MIB);
    char *begin = aligned(all);
    if (madvise(begin, 8 * MIB, MADV_HUGEPAGE))
        abort();
    read_from(begin, 8 * MIB);
    expect_pages("huge_read", 0, 10 * MIB / PAGE);
}

/* The sum of `Rss` in smaps over the mappings within a range. */
static unsigned long rss_of(const char *from, size_t bytes) {
    static char row[4096];
    unsigned long begin = 0, end = 0, first, last, kib, sum = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (!smaps)
        abort();
    while (fgets(row, sizeof row, smaps)) {
        if (sscanf(row, "%lx-%lx ", &first, &last) == 2) {
            begin = first;
            end = last;
        } else if (begin >= (uintptr_t)from && end <= (uintptr_t)from + bytes && sscanf(row, "Rss: %lu kB", &kib) == 1)
            sum += kib * 1024;
    }
    fclose(smaps);
    return sum;
}

/* One stack touches all regions. */
NOIPA static void write_regions(char *const regions[], const size_t bytes[], int count) {
    for (int i = 0; i < count; i++)
        write_to(regions[i], bytes[i]);
}

static void huge_and_small(void) {
    char *huge = aligned(map(34 * MIB)), *small = map(16 * MIB);
    if (madvise(huge, 32 * MIB, MADV_HUGEPAGE) || madvise(small, 16 * MIB, MADV_NOHUGEPAGE))
        abort();
    char *const regions[] = {huge, small};
    const size_t bytes[] = {32 * MIB, 16 * MIB};
    write_regions(regions, bytes, 2);
    expect_pages("write_regions", (rss_of(huge, 32 * MIB) + rss_of(small, 16 * MIB)) / PAGE, 0);
}

static void small(void) {
    char *const regions[] = {map(16 * MIB)};
    const size_t bytes[] = {16 * MIB};
    if (madvise(regions[0], bytes[0], MADV_NOHUGEPAGE))
        abort();
    write_regions(regions, bytes, 1);
    expect_pages("write_regions", rss_of(regions[0], bytes[0]) / PAGE, 0);
}

NOIPA static char *huge_to_split(void) {
    char *begin = aligned(map(10 * MIB));
    if (madvise(begin, 8 * MIB, MADV_HUGEPAGE))
        abort();
    write_to(begin, 8 * MIB);
    return begin;
}

NOIPA static void write_again(char *from) { write_to(from, 128 * PAGE); }

/* The second half of each huge page is released, and half of it is touched again. */
static void huge_split(void) {
    char *begin = huge_to_split();
    for (int i = 0; i < 4; i++) {
        char *half = begin + i * HUGE + HUGE / 2;
        if (madvise(half, HUGE / 2, MADV_DONTNEED))
            abort();
        write_again(half);
    }
    expect_pages("huge_to_split", 4 * 256, 10 * MIB / PAGE);
    expect_pages("write_again", 4 * 128, 0);
}

#define RACERS 8
static pthread_barrier_t line_up;
static char *shared_huge;

/* All threads touch each huge page at the same time. */
NOIPA static void *touch_shared(void *number) {
    for (size_t at = 0; at < 32 * MIB; at += HUGE) {
        pthread_barrier_wait(&line_up);
        shared_huge[at + (uintptr_t)number * PAGE] = 1;
    }
    return NULL;
}

static void huge_race(void) {
    pthread_t racers[RACERS];
    shared_huge = aligned(map(34 * MIB));
    if (madvise(shared_huge, 32 * MIB, MADV_HUGEPAGE) || pthread_barrier_init(&line_up, NULL, RACERS))
        abort();
    for (uintptr_t i = 0; i < RACERS; i++)
        if (pthread_create(&racers[i], NULL, touch_shared, (void *)i))
            abort();
    for (int i = 0; i < RACERS; i++)
        if (pthread_join(racers[i], NULL))
            abort();
    expect_pages("touch_shared", rss_of(shared_huge, 32 * MIB) / PAGE, 0);
}

NOIPA static void with_a_hole(void) {
    char *all = map(64 * PAGE);
    write_to(all, 64 * PAGE);
    if (munmap(all + 20 * PAGE, 16 * PAGE))
        abort();
    expect_pages("with_a_hole", 48, 48);
}

NOIPA static void given_back(void) {
    char *all = map(64 * PAGE);
    write_to(all, 64 * PAGE);
    if (madvise(all, 32 * PAGE, MADV_DONTNEED))
        abort();
    expect_pages("given_back", 32, 64);
}

NOIPA static char *to_be_moved(void) {
    char *all = map(32 * PAGE);
    write_to(all, 32 * PAGE);
    return all;
}

/* Moves the touched pages and grows the mapping. */
NOIPA static char *mover(char *all) {
    char *elsewhere = map(48 * PAGE);
    return checked(mremap(all, 32 * PAGE, 48 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere));
}

NOIPA static char *move_again(char *all) {
    char *elsewhere = map(40 * PAGE);
    char *moved = checked(mremap(all, 48 * PAGE, 40 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere));
    write_to(moved + 32 * PAGE, 4 * PAGE);
    return moved;
}

static void moves(void) {
    char *all = move_again(mover(to_be_moved()));
    /* A failed mremap changes nothing. */
    if (mremap(all, 40 * PAGE, 1ul << 60, MREMAP_MAYMOVE) != MAP_FAILED)
        abort();
    expect_pages("to_be_moved", 32, 32);
    expect_pages("mover", 0, 8);
    expect_pages("move_again", 4, 0);
}

NOIPA static void *shared_file(int fd) {
    char *all = checked(mmap(NULL, 100 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    read_from(all, 30 * PAGE);
    write_to(all + 64 * PAGE, 20 * PAGE);
    return all;
}

NOIPA static void *private_file(int fd) {
    char *all = checked(mmap(NULL, 100 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    write_to(all, 25 * PAGE);
    return all;
}

/* Counts present pages: the kernel maps pages of the page cache around a touched one (fault-around). */
static unsigned long present(void *at, unsigned long pages) {
    unsigned long count = 0;
    int map = open("/proc/self/pagemap", O_RDONLY);
    for (unsigned long page = 0; page < pages; page++) {
        uint64_t entry = 0;
        if (pread(map, &entry, 8, (off_t)(((uintptr_t)at / PAGE + page) * 8)) != 8)
            abort();
        count += entry >> 63;
    }
    close(map);
    return count;
}

static void files(void) {
    char path[] = "/tmp/memtrace-pages-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || unlink(path) || ftruncate(fd, 100 * PAGE))
        abort();
    static char page[PAGE];
    for (int i = 0; i < 100; i++)
        if (pwrite(fd, page, PAGE, i * (off_t)PAGE) != (ssize_t)PAGE)
            abort();
    void *shared = shared_file(fd), *private = private_file(fd);
    expect_pages("shared_file", present(shared, 100), 100);
    expect_pages("private_file", present(private, 100), 100);
}

NOIPA static void grow_the_heap(void) {
    if (sbrk(40 * PAGE) == (void *)-1)
        abort();
    write_to((char *)sbrk(0) - 40 * PAGE, 40 * PAGE);
    if (sbrk(-(intptr_t)(10 * PAGE)) == (void *)-1)
        abort();
    expect_pages("grow_the_heap", 30, 30);
}

NOIPA static char *before_the_fork(void) {
    char *all = map(64 * PAGE);
    write_to(all, 64 * PAGE);
    return all;
}

NOIPA static void write_a_copy(char *all) { write_to(all, 16 * PAGE); }

/* The child continues as the victim and writes to a quarter of the pages that it shares with its parent. */
static void forks(void) {
    char *all = before_the_fork();
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child > 0) {
        /* Writes of the parent do not change the child's pages. */
        write_to(all, 64 * PAGE);
        int status;
        waitpid(child, &status, 0);
        _exit(status ? 1 : 0);
    }
    write_a_copy(all);
    expect_pages("before_the_fork", 48, 64);
    expect_pages("write_a_copy", 16, 0);
}

/* read(2) touches the buffer in the kernel. */
NOIPA static void filled_by_the_kernel(void) {
    char *all = map(40 * PAGE);
    int zero = open("/dev/zero", O_RDONLY);
    if (read(zero, all, 24 * PAGE) != (ssize_t)(24 * PAGE))
        abort();
    close(zero);
    expect_pages("filled_by_the_kernel", 24, 40);
}

NOIPA static char *swapped_out(void) {
    char *all = map(1024 * PAGE);
    write_to(all, 1024 * PAGE);
    for (int i = 0; i < 1000 && present(all, 1024); i++) {
        if (madvise(all, 1024 * PAGE, MADV_PAGEOUT))
            abort();
        usleep(10000);
    }
    if (present(all, 1024))
        abort();
    return all;
}

NOIPA static void swapped_in(char *all) { write_to(all, 512 * PAGE); }

static void swaps(void) {
    swapped_in(swapped_out());
    expect_pages("swapped_out", 0, 1024);
    expect_pages("swapped_in", 512, 0);
}

/* With readahead off, each page that is only on disk is a major fault. */
NOIPA static void read_from_disk(int fd) {
    char *all = checked(mmap(NULL, 64 * PAGE, PROT_READ, MAP_SHARED, fd, 0));
    if (madvise(all, 64 * PAGE, MADV_RANDOM))
        abort();
    read_from(all, 40 * PAGE);
}

static void disk(void) {
    char path[] = "/var/tmp/memtrace-pages-XXXXXX";
    int fd = mkstemp(path);
    static char page[PAGE];
    if (fd < 0 || unlink(path))
        abort();
    for (int i = 0; i < 64; i++)
        if (write(fd, page, PAGE) != (ssize_t)PAGE)
            abort();
    if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        abort();
    read_from_disk(fd);
    expect_pages("read_from_disk", 40, 64);
}

NOIPA static void in_the_context(void) {
    write_to(map(16 * PAGE), 16 * PAGE);
    expect_pages("in_the_context", 16, 16);
}

/* The page above the stack is never touched. A stack walk reads up to it. */
NOIPA static void below_an_absent_page(void (*run)(void)) {
    static ucontext_t here, context;
    char *stack = map(4 * PAGE);
    if (getcontext(&context))
        abort();
    context.uc_stack = (stack_t){.ss_sp = stack, .ss_size = 3 * PAGE};
    context.uc_link = &here;
    makecontext(&context, run, 0);
    if (swapcontext(&here, &context))
        abort();
    expect_pages("below_an_absent_page", 1, 4);
}

static void contexts(void) { below_an_absent_page(in_the_context); }

/* The walk of the stack of read(2) faults within the program of a fault in the kernel. */
static void kernel_contexts(void) { below_an_absent_page(filled_by_the_kernel); }

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {
        {"by_pages", reserve_by_pages},
        {"reserve", reserve_and_touch}, {"reads", reads},   {"huge_written", huge_written}, {"huge_read", huge_read},
        {"hole", with_a_hole},          {"back", given_back}, {"moves", moves},             {"files", files},
        {"brk", grow_the_heap},         {"forks", forks},   {"kernel", filled_by_the_kernel}, {"swaps", swaps}, {"disk", disk},
        {"context", contexts},          {"kernel_context", kernel_contexts},
        {"huge_and_small", huge_and_small}, {"small", small}, {"huge_split", huge_split}, {"huge_race", huge_race},
    };
    /* A further argument lets the scenario run without a harness. */
    int is_alone = argc == 3;
    /* Faults in its own code now, not during the scenario. */
    if (mlockall(MCL_CURRENT))
        abort();
    if (!is_alone) {
        print_ready();
        if (!wait_for_harness())
            return 1;
    }
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc >= 2 && !strcmp(argv[1], scenarios[i].name))
            scenarios[i].run();
    static char all[sizeof line + 64];
    snprintf(all, sizeof all, "{\"pid\":%d,\"functions\":{%s}}\n", (int)getpid(), line);
    print_text(all);
    return is_alone || wait_for_harness() ? 0 : 1;
}
