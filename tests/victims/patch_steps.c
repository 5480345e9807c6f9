/* `patch_steps ROUNDS [OPTION]` allocates, reallocates and frees blocks, for each line of the harness:
 *
 *   (empty line)  ROUNDS steps of malloc, calloc, realloc and free
 *   clear         forgets all totals and blocks
 *   bytes N       allocates N bytes, and frees about half of the blocks
 *   stacks R      allocates blocks in three functions, and keeps about 5, 20 and 100 times R bytes
 *   full N        allocates N blocks, and frees a third of them
 *   until         performs steps until the next line
 *   aligned       calls each function that returns aligned blocks
 *   extended      calls the functions that only jemalloc has
 *   fork          forks a child, which prints `child PID`, waits for a line, and performs ROUNDS steps
 *   workers N     forks N children, and prints `workers PID PID …`. The first one makes 80 MiB resident, and answers the lines up to
 *                 `end`. The others wait for its end.
 *   release       frees all blocks of steps, `bytes` and `stacks`
 *   exec          executes itself
 *   load PATH     loads a library
 *
 * It answers with a line of JSON. OPTION:
 *
 *   ballast       makes 80 MiB resident before the first barrier
 *   memfd, exec   a seccomp filter kills the process at memfd_create, or refuses executable mappings
 *   loose         a seccomp filter permits all system calls
 *
 * `patch_steps loop` performs steps for ever, and prints `ok` again and again. */
#define _GNU_SOURCE
#include "patch.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define KEPT 256
#define HELD 65536
#define FULL (1u << 18)
#define BALLAST (80u << 20)
#define MAX_WORKERS 16

static struct site by_malloc = {.name = "take_malloc"}, by_calloc = {.name = "take_calloc"},
                   by_realloc = {.name = "take_realloc"};

static void *kept[KEPT];
static size_t sizes[KEPT];
/* Number of all steps so far, so that the steps of the next line differ. */
static size_t steps_done;

static uint64_t state = 88172645463325252u;

NOINLINE static void *take_malloc(size_t size) {
    void *block = malloc(size); by_malloc.line = __LINE__;
    ledger_alloc(&by_malloc, block, size);
    return block;
}

NOINLINE static void *take_calloc(size_t count, size_t size) {
    void *block = calloc(count, size); by_calloc.line = __LINE__;
    ledger_alloc(&by_calloc, block, count * size);
    return block;
}

NOINLINE static void *take_realloc(void *old, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(old);
    void *block = realloc(old, size); by_realloc.line = __LINE__;
    ledger_end_realloc(&by_realloc, pending, block, size);
    return block;
}

NOINLINE static void release(void *block) {
    ledger_free(block);
    free(block);
}

/* A step of the place `i` of all steps. */
static void step(size_t i) {
    size_t at = i * 7 % KEPT, size;
    if (kept[at])
        check(kept[at], sizes[at], at);
    if (kept[at] && i % 3 == 0 && sizes[at] < 25000) {
        /* A block that grows this much moves. Another one grows in place if there is room. */
        size = i % 2 ? sizes[at] * 4 : sizes[at] + 16;
        kept[at] = take_realloc(kept[at], size);
        expect(kept[at] != NULL, "realloc has failed\n");
        check(kept[at], sizes[at], at);
    } else {
        release(kept[at]);
        size = 64 + i * 37 % 5000;
        if (i % 2) {
            kept[at] = take_calloc(2, size);
            size *= 2;
            expect(kept[at] && ((unsigned char *)kept[at])[size / 2] == 0, "calloc returned no zeros\n");
        } else {
            kept[at] = take_malloc(size);
            expect(kept[at] != NULL, "malloc has failed\n");
        }
    }
    fill(kept[at], size, at);
    sizes[at] = size;
}

static void steps(size_t rounds) {
    for (size_t i = 0; i < rounds; i++)
        step(steps_done++);
}

static void clear(void) {
    static struct site *const all[] = {&by_malloc, &by_calloc, &by_realloc};
    clear_ledger();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->alloc_bytes = all[i]->alloc_count = all[i]->free_bytes = all[i]->free_count = 0;
}

static void *held[HELD];
static size_t holds;

static void release_held(void) {
    while (holds)
        release(held[--holds]);
}

static void bytes(uint64_t total) {
    release_held();
    clear();
    while (ledger->alloc_bytes < total) {
        void *block = take_malloc(64 + next_random(&state) % 5000);
        if (next_random(&state) & 1 && holds < HELD)
            held[holds++] = block;
        else
            release(block);
    }
    ledger_print("");
}

/* Bytes allocated and kept by a stack. */
struct stack {
    uint64_t allocated, kept;
};

/* Allocates `total` bytes, and keeps about half of the blocks. */
#define STACK(name)                                                                                                         \
    NOINLINE static struct stack name(uint64_t total) {                                                                     \
        struct stack stack = {0};                                                                                           \
        while (stack.allocated < total) {                                                                                   \
            size_t size = 16 + next_random(&state) % 2048;                                                                  \
            if (size > total - stack.allocated)                                                                             \
                size = total - stack.allocated;                                                                             \
            void *block = malloc(size);                                                                                     \
            expect(block != NULL, "malloc has failed\n");                                                                   \
            stack.allocated += size;                                                                                        \
            if (next_random(&state) & 1 && holds < HELD) {                                                                  \
                stack.kept += size;                                                                                         \
                held[holds++] = block;                                                                                      \
            } else {                                                                                                        \
                free(block);                                                                                                \
            }                                                                                                               \
        }                                                                                                                   \
        return stack;                                                                                                       \
    }

STACK(of_five)
STACK(of_twenty)
STACK(of_hundred)

static void stacks(uint64_t interval) {
    while (holds)
        free(held[--holds]);
    /* From half of the bytes to one and a half. Half of the blocks are freed. */
    uint64_t unit = 2 * interval * (50 + next_random(&state) % 101) / 100;
    struct stack few = of_five(5 * unit), some = of_twenty(20 * unit), many = of_hundred(100 * unit);
    char text[300];
    snprintf(text, sizeof text, "{\"of_five\":[%lu,%lu],\"of_twenty\":[%lu,%lu],\"of_hundred\":[%lu,%lu]}\n", few.allocated,
             few.kept, some.allocated, some.kept, many.allocated, many.kept);
    print_text(text);
}

static void *full_blocks[FULL];

static size_t full_size(size_t at) { return 64 + at * 48 % 256; }

/* The ledger is too small for these blocks. */
NOINLINE static void full(size_t count) {
    for (size_t i = 0; i < FULL; i++) {
        free(full_blocks[i]);
        full_blocks[i] = NULL;
    }
    expect(count <= FULL, "too many blocks\n");
    uint64_t alloc_bytes = 0, free_bytes = 0, freed = 0;
    for (size_t i = 0; i < count; i++) {
        full_blocks[i] = malloc(full_size(i));
        expect(full_blocks[i] != NULL, "malloc has failed\n");
        fill(full_blocks[i], full_size(i), i);
        alloc_bytes += full_size(i);
    }
    for (size_t i = 0; i < count; i++) {
        check(full_blocks[i], full_size(i), i);
        if (next_random(&state) % 3)
            continue;
        free(full_blocks[i]);
        full_blocks[i] = NULL;
        free_bytes += full_size(i);
        freed++;
    }
    char text[400];
    snprintf(text, sizeof text,
             "{\"alloc_bytes\":%lu,\"alloc_count\":%lu,\"free_bytes\":%lu,\"free_count\":%lu,\"live_bytes\":%lu,"
             "\"live_count\":%lu}\n",
             alloc_bytes, count, free_bytes, freed, alloc_bytes - free_bytes, count - freed);
    print_text(text);
}

#define ALIGNED_BLOCKS 50
#define ALIGNED_SIZE 192

/* A function that calls an aligning function in its own source line. It has the name of that function, after `by_`. */
#define ALIGNED(function, statement)                                                                                        \
    static struct site of_##function = {.name = "by_" #function};                                                           \
    NOINLINE static void by_##function(void) {                                                                              \
        for (size_t i = 0; i < ALIGNED_BLOCKS; i++) {                                                                       \
            void *block = NULL;                                                                                             \
            statement;                                                                                                      \
            expect(block != NULL, "no aligned block\n");                                                                    \
            ledger_alloc(&of_##function, block, ALIGNED_SIZE);                                                              \
            fill(block, ALIGNED_SIZE, i);                                                                                   \
            if (i % 2)                                                                                                      \
                release(block);                                                                                             \
        }                                                                                                                   \
    }

ALIGNED(posix_memalign, if (posix_memalign(&block, 64, ALIGNED_SIZE) != 0) block = NULL)
ALIGNED(aligned_alloc, block = aligned_alloc(64, ALIGNED_SIZE))
ALIGNED(memalign, block = memalign(128, ALIGNED_SIZE))
ALIGNED(valloc, block = valloc(ALIGNED_SIZE))

static void aligned(void) {
    clear();
    by_posix_memalign();
    by_aligned_alloc();
    by_memalign();
    by_valloc();
    ledger_print("");
}

static void *(*mallocx_function)(size_t size, int flags);
static void *(*rallocx_function)(void *block, size_t size, int flags);
static void (*dallocx_function)(void *block, int flags);
static void (*sdallocx_function)(void *block, size_t size, int flags);

/* The function and the pointer differ in C, but not here (dlsym(3)). */
static void look_up(const char *name, void *place) {
    void *address = dlsym(RTLD_DEFAULT, name);
    memcpy(place, &address, sizeof address);
}

static void look_up_extended(void) {
    look_up("mallocx", &mallocx_function);
    look_up("rallocx", &rallocx_function);
    look_up("dallocx", &dallocx_function);
    look_up("sdallocx", &sdallocx_function);
}

static struct site of_mallocx = {.name = "by_mallocx"}, of_rallocx = {.name = "by_rallocx"};

NOINLINE static void *by_mallocx(size_t size) {
    void *block = mallocx_function(size, 0); of_mallocx.line = __LINE__;
    ledger_alloc(&of_mallocx, block, size);
    return block;
}

NOINLINE static void *by_rallocx(void *old, size_t size) {
    struct pending_realloc pending = ledger_begin_realloc(old);
    void *block = rallocx_function(old, size, 0); of_rallocx.line = __LINE__;
    ledger_end_realloc(&of_rallocx, pending, block, size);
    return block;
}

static void extended(size_t rounds) {
    clear();
    expect(mallocx_function && rallocx_function && dallocx_function && sdallocx_function, "the allocator is no jemalloc\n");
    for (size_t i = 0; i < rounds; i++) {
        size_t size = 64 + i * 37 % 3000;
        void *block = by_mallocx(size);
        expect(block != NULL, "mallocx has failed\n");
        fill(block, size, i);
        if (i % 3 == 0) {
            block = by_rallocx(block, size * 3);
            expect(block != NULL, "rallocx has failed\n");
            check(block, size, i);
            size *= 3;
        }
        if (i % 5 == 0)
            continue;
        ledger_free(block);
        if (i % 2)
            sdallocx_function(block, size, 0);
        else
            dallocx_function(block, 0);
    }
    ledger_print("");
}

static void work(size_t rounds);

static void fork_child(size_t rounds) {
    pid_t pid = fork();
    if (pid == 0) {
        char text[64], line[LINE_SIZE];
        clear();
        snprintf(text, sizeof text, "child %d\n", getpid());
        print_text(text);
        if (!read_line(line))
            _exit(1);
        steps(rounds);
        ledger_print("");
        _exit(0);
    }
    int status = -1;
    expect(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "the child has failed\n");
    print_text("{}\n");
}

static void release_all(void) {
    while (holds)
        release(held[--holds]);
    for (size_t i = 0; i < KEPT; i++) {
        release(kept[i]);
        kept[i] = NULL;
    }
}

static void expect_success(pid_t pid) {
    int status = -1;
    expect(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "a worker has failed\n");
}

static void fork_workers(size_t count, size_t rounds) {
    pid_t pids[MAX_WORKERS];
    int end[2];
    expect(count > 0 && count <= MAX_WORKERS && pipe(end) == 0, "no workers\n");
    for (size_t i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            close(end[1]);
            if (i == 0)
                work(rounds);
            char byte;
            /* The parent writes nothing, and closes the pipe. */
            _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
        }
    }
    char text[32 * MAX_WORKERS] = "workers";
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d", pids[i]);
    print_text(strcat(text, "\n"));
    expect_success(pids[0]);
    close(end[1]);
    for (size_t i = 1; i < count; i++)
        expect_success(pids[i]);
    close(end[0]);
    print_text("{}\n");
}

/* Kills the process at memfd_create, refuses executable mappings, or permits all system calls. */
static void filter_calls(const char *kind) {
    const uint32_t number = offsetof(struct seccomp_data, nr), protection = offsetof(struct seccomp_data, args[2]);
    struct sock_filter kills_memfd[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter refuses_code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, protection),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter permits[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof permits / sizeof *permits, permits};
    if (strcmp(kind, "memfd") == 0)
        program = (struct sock_fprog){sizeof kills_memfd / sizeof *kills_memfd, kills_memfd};
    else if (strcmp(kind, "exec") == 0)
        program = (struct sock_fprog){sizeof refuses_code / sizeof *refuses_code, refuses_code};
    expect(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs cannot be set\n");
    expect(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "the filter cannot be set\n");
}

static void apply(const char *option) {
    if (strcmp(option, "ballast") != 0) {
        filter_calls(option);
        return;
    }
    char *ballast = mmap(NULL, BALLAST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(ballast != MAP_FAILED, "no memory\n");
    memset(ballast, 1, BALLAST);
}

static void loop(void) {
    for (;;) {
        steps(20000);
        print_text("ok\n");
    }
}

static void answer(const char *line, size_t rounds) {
    if (begins(line, "clear")) {
        clear();
        print_text("{}\n");
    } else if (begins(line, "bytes ")) {
        bytes(number_after(line, "bytes "));
    } else if (begins(line, "stacks ")) {
        stacks(number_after(line, "stacks "));
    } else if (begins(line, "full ")) {
        full(number_after(line, "full "));
    } else if (begins(line, "aligned")) {
        aligned();
    } else if (begins(line, "extended")) {
        extended(rounds);
    } else if (begins(line, "fork")) {
        fork_child(rounds);
    } else if (begins(line, "workers ")) {
        fork_workers(number_after(line, "workers "), rounds);
    } else if (begins(line, "release")) {
        release_all();
        print_text("{}\n");
    } else if (begins(line, "exec")) {
        char number[32];
        snprintf(number, sizeof number, "%zu", rounds);
        execl("/proc/self/exe", "patch_steps", number, (char *)NULL);
        expect(0, "exec has failed\n");
    } else if (begins(line, "load ")) {
        expect(dlopen(line + strlen("load "), RTLD_NOW | RTLD_LOCAL) != NULL, "the library cannot be loaded\n");
        print_text("{}\n");
    } else {
        do
            steps(rounds);
        while (begins(line, "until") && !has_line());
        ledger_print("");
    }
}

/* Answers lines in a child, until `end`. */
static void work(size_t rounds) {
    char line[LINE_SIZE];
    clear();
    apply("ballast");
    while (read_line(line) && !begins(line, "end"))
        answer(line, rounds);
    _exit(0);
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    free(malloc(100));
    if (strcmp(arguments[1], "loop") == 0)
        loop();
    look_up_extended();
    if (count > 2)
        apply(arguments[2]);
    ledger->counting = 1;
    print_ready();
    char line[LINE_SIZE];
    while (read_line(line))
        answer(line, strtoul(arguments[1], NULL, 10));
    return 0;
}
