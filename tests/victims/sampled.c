/* `sampled steps ROUNDS` allocates, reallocates and frees blocks, and prints their totals.
 * `sampled groups SAMPLES INTERVAL` allocates blocks in many stacks, and frees about half of them. A stack keeps blocks for about
 * SAMPLES samples, if there is one for each INTERVAL bytes. Prints an object: for each stack the bytes allocated and kept.
 * At its last barrier, `sampled` prints the semaphore of its probes for each line `semaphore`. For each line `child`, it executes
 * `sampled await` in a child, with the PID of the child before, and prints 1 if this has succeeded.
 * For a line `map PATH`, it maps a file as code, and prints 1 if this has succeeded.
 * `sampled await` waits until the semaphore of its probes is raised.
 *
 * The allocator samples, or with PROVIDER the functions of sample_probes.h do. */
#include "ledger.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef PROVIDER
#include "sample_probes.h"
#define allocate probed_malloc
#define reallocate probed_realloc
#define release probed_free
#else
#define allocate malloc
#define reallocate realloc
#define release free
#endif

#ifdef SIZE_CLASSES
/* Of tcmalloc, which samples by the size of a block's class. */
size_t nallocx(size_t size, int flags);
#define COUNTED(size) nallocx(size, 0)
#else
#define COUNTED(size) (size)
#endif

#define KEPT 256

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Each block is large, so that a sampler with an interval of one byte takes it. */
static void steps(size_t rounds) {
    static void *kept[KEPT];
    static size_t sizes[KEPT];
    ledger_start();
    for (size_t i = 0; i < rounds; i++) {
        size_t at = i * 7 % KEPT;
        /* A block that grows this much moves. */
        size_t size = sizes[at] * 4;
#ifdef RESIZES_IN_PLACE
        if (i % 2)
            size = sizes[at] + 1;
#endif
        if (kept[at] && i % 3 == 0 && size < 100000) {
            struct pending_realloc pending = ledger_begin_realloc(kept[at]);
            kept[at] = reallocate(kept[at], size);
            ledger_end_realloc(NULL, pending, kept[at], COUNTED(size));
        } else {
            ledger_free(kept[at]);
            release(kept[at]);
            size = 64 + i * 37 % 5000;
            kept[at] = allocate(size);
            ledger_alloc(NULL, kept[at], COUNTED(size));
        }
        if (!kept[at])
            abort();
        sizes[at] = size;
    }
    ledger_print("");
}

struct group {
    uint64_t allocated, kept;
};

typedef void allocate_function(struct group *group, uint64_t bytes);
typedef void group_function(allocate_function *function, struct group *group, uint64_t bytes);

/* Blocks that are freed soon. */
static void *soon[64];

static void add(struct group *group, void *block, size_t size) {
    if (!block)
        abort();
    group->allocated += size;
    if (next_random() & 1) {
        group->kept += size;
        return;
    }
    void **place = &soon[next_random() % 64];
    release(*place);
    *place = block;
}

#define INNER(number)                                                                                                       \
    __attribute__((noipa)) static void inner_##number(struct group *group, uint64_t bytes) {                                \
        while (group->allocated < bytes) {                                                                                  \
            size_t size = 16 + next_random() % 256;                                                                         \
            if (next_random() % 16 == 0)                                                                                    \
                size *= 8;                                                                                                  \
            add(group, allocate(size), COUNTED(size));                                                                      \
        }                                                                                                                   \
    }
#define OUTER(number)                                                                                                       \
    __attribute__((noipa)) static void outer_##number(allocate_function *function, struct group *group, uint64_t bytes) {   \
        function(group, bytes);                                                                                             \
    }
#define TEN(X, tens) X(tens##0) X(tens##1) X(tens##2) X(tens##3) X(tens##4) X(tens##5) X(tens##6) X(tens##7) X(tens##8) X(tens##9)
#define FORTY(X) TEN(X, 1) TEN(X, 2) TEN(X, 3) TEN(X, 4)
#define FIFTY(X) FORTY(X) TEN(X, 5)
#define INNER_POINTER(number) inner_##number,
#define OUTER_POINTER(number) outer_##number,

FIFTY(INNER)
FORTY(OUTER)

static allocate_function *const inner[] = {FIFTY(INNER_POINTER)};
static group_function *const outer[] = {FORTY(OUTER_POINTER)};

#define INNERS (sizeof inner / sizeof *inner)
#define OUTERS (sizeof outer / sizeof *outer)

static void groups(uint64_t samples, uint64_t interval) {
    static struct group all[OUTERS][INNERS];
    ledger_start();
    for (size_t i = 0; i < OUTERS; i++) {
        for (size_t j = 0; j < INNERS; j++) {
            /* From half of the samples to one and a half. Half of the bytes are freed. */
            uint64_t percent = 50 + next_random() % 101;
            outer[i](inner[j], &all[i][j], 2 * samples * interval * percent / 100);
        }
    }
    for (size_t i = 0; i < 64; i++)
        release(soon[i]);
    char text[120];
    for (size_t i = 0; i < OUTERS * INNERS; i++) {
        size_t of_outer = i / INNERS, of_inner = i % INNERS;
        struct group *group = &all[of_outer][of_inner];
        snprintf(text, sizeof text, "%s\"outer_%zu inner_%zu\":[%lu,%lu]", i ? "," : "{", of_outer + 10, of_inner + 10,
                 group->allocated, group->kept);
        print_text(text);
    }
    print_text("}\n");
}

#ifdef PROVIDER
/* Returns 0 if the semaphore is raised within ten seconds. */
static int await_semaphore(void) {
    for (int i = 0; i < 10000; i++) {
        if (probe_semaphore())
            return 0;
        usleep(1000);
    }
    return 1;
}

/* Returns 1 if the semaphore of a child was raised. */
static unsigned run_child(void) {
    static pid_t pid;
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    if (pid) {
        arguments.set_tid = (uintptr_t)&pid;
        arguments.set_tid_size = 1;
    }
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0) {
        execl("/proc/self/exe", "sampled", "await", NULL);
        _exit(1);
    }
    int status;
    if (child < 0 || waitpid((pid_t)child, &status, 0) < 0)
        return 0;
    pid = (pid_t)child;
    return status == 0;
}

/* Returns 1 if the file could be mapped. */
static unsigned map(const char *path) {
    int file = open(path, O_RDONLY);
    return file >= 0 && mmap(NULL, 1 << 20, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED;
}
#endif

/* Answers a line at the last barrier. */
static void answer(char *line) {
#ifdef PROVIDER
    char *end = strchr(line, '\n');
    if (end)
        *end = 0;
    unsigned number = line[0] == 'c' ? run_child() : line[0] == 'm' ? map(line + 4) : probe_semaphore();
    char text[100];
    snprintf(text, sizeof text, "%u\n", number);
    print_text(text);
#else
    (void)line;
#endif
}

int main(int count, char **arguments) {
#ifdef SIZE_CLASSES
    /* gperftools takes no sample of the first thread's first 16 MiB: it draws before it has read its interval. */
    void *volatile first = malloc(32u << 20);
    free(first);
#endif
#ifdef PROVIDER
    if (count == 2 && strcmp(arguments[1], "await") == 0)
        return await_semaphore();
#endif
    free(malloc(100));
    if (count == 3 && strcmp(arguments[1], "steps") == 0) {
#ifdef PROVIDER
        start_sampler(1);
#endif
        steps(strtoul(arguments[2], NULL, 10));
    } else if (count == 4 && strcmp(arguments[1], "groups") == 0) {
        uint64_t interval = strtoul(arguments[3], NULL, 10);
#ifdef PROVIDER
        start_sampler(interval);
#endif
        groups(strtoul(arguments[2], NULL, 10), interval);
    } else {
        return 2;
    }
    char line[100];
    for (;;) {
        ssize_t length = read(STDIN_FILENO, line, sizeof line - 1);
        if (length <= 0)
            return 1;
        line[length] = 0;
        if (!strchr("scm", line[0]))
            return 0;
        answer(line);
    }
}
