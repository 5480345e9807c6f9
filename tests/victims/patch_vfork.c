/* vfork and fork while the allocator is patched.
 *
 * For the line `wait`, `patch_vfork` starts a child by vfork that prints `vforked` and waits for a line. Until then, this process
 * cannot be stopped (kernel/fork.c, `wait_for_vfork_done`). For an empty line, it starts a hundred children by vfork, some of which
 * execute another program, allocates between them, and prints the totals.
 * `patch_vfork loop` forks and vforks for ever, and prints `ok` again and again. The forked children allocate too. */
#define _GNU_SOURCE
#include "patch.h"

#include <sys/wait.h>

#define CHILDREN 100
#define KEPT 32

static void *kept[KEPT];
static size_t sizes[KEPT];

static void expect_status(pid_t pid, int expected) {
    int status = 0;
    expect(pid > 0 && waitpid(pid, &status, 0) == pid, "no child\n");
    expect(WIFEXITED(status) && WEXITSTATUS(status) == expected, "a child has failed\n");
}

NOINLINE static void start_child(size_t number) {
    pid_t pid = vfork();
    if (pid == 0) {
        if (number % 4 == 0)
            execl("/bin/sh", "sh", "-c", "exit 42", (char *)NULL);
        _exit(42);
    }
    expect_status(pid, 42);
}

static void allocate(size_t rounds) {
    static size_t done;
    for (size_t i = 0; i < rounds; i++, done++) {
        size_t at = done * 7 % KEPT;
        if (kept[at])
            check(kept[at], sizes[at], at);
        ledger_free(kept[at]);
        free(kept[at]);
        sizes[at] = 64 + done * 37 % 3000;
        kept[at] = malloc(sizes[at]);
        expect(kept[at] != NULL, "malloc has failed\n");
        ledger_alloc(NULL, kept[at], sizes[at]);
        fill(kept[at], sizes[at], at);
    }
}

NOINLINE static void wait_for_child(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        static const char text[] = "vforked\n";
        static char byte;
        if (write(STDOUT_FILENO, text, sizeof text - 1) < 0)
            _exit(1);
        do {
            if (read(STDIN_FILENO, &byte, 1) != 1)
                _exit(1);
        } while (byte != '\n');
        _exit(42);
    }
    expect_status(pid, 42);
    print_text("{}\n");
}

static __attribute__((noreturn)) void loop(void) {
    for (size_t number = 0;; number++) {
        pid_t pid = fork();
        if (pid == 0) {
            allocate(200);
            _exit(7);
        }
        allocate(200);
        expect_status(pid, 7);
        start_child(number);
        print_text("ok\n");
    }
}

int main(int count, char **arguments) {
    free(malloc(100));
    if (count > 1 && strcmp(arguments[1], "loop") == 0)
        loop();
    ledger->counting = 1;
    print_ready();
    char line[LINE_SIZE];
    while (read_line(line)) {
        if (begins(line, "wait")) {
            wait_for_child();
            continue;
        }
        for (size_t i = 0; i < CHILDREN; i++) {
            start_child(i);
            allocate(20);
        }
        ledger_print("");
    }
    return 0;
}
