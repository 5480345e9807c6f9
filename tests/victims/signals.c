/* Signal handlers that allocate, for signals raised at known points, on the normal and on an alternate stack. */
#define _GNU_SOURCE
#include "ledger.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOIPA __attribute__((noipa))
#define ROUNDS 25

static char *page;

NOIPA static void allocate(size_t size) {
    void *block = malloc(size);
    ledger_alloc(NULL, block, size);
}

NOIPA static void on_signal(int number) { allocate(100 + (size_t)number); }

/* Makes the page writable, so that the faulting instruction succeeds when it is restarted. */
NOIPA static void on_fault(int number) {
    allocate(1000 + (size_t)number);
    if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0)
        abort();
}

NOIPA static void by_raise(int number) {
    if (raise(number) != 0)
        abort();
}

/* No function of the C library is on the stack. */
NOIPA static void by_system_call(int number) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_kill), "D"((long)getpid()), "S"((long)number)
                     : "rcx", "r11", "memory");
    if (result != 0)
        abort();
}

NOIPA static void by_fault(int number) {
    if (mprotect(page, 4096, PROT_NONE) != 0)
        abort();
    /* Not the first instruction of a function, unlike by_fault_at_once. */
    *(volatile char *)page = (char)number;
}

NOIPA static void by_fault_at_once(volatile char *at) { *at = 1; }

NOIPA static void all(int number) {
    by_raise(number);
    by_system_call(number);
    by_fault(number);
    if (mprotect(page, 4096, PROT_NONE) != 0)
        abort();
    by_fault_at_once(page);
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (sigaction(number, &action, NULL) != 0)
        abort();
}

int main(void) {
    static char stack[64 * 1024];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || sigaltstack(&own, NULL) != 0)
        abort();
    handle(SIGUSR1, on_signal, 0);
    handle(SIGUSR2, on_signal, SA_ONSTACK);
    ledger_start();
    for (int i = 0; i < ROUNDS; i++) {
        handle(SIGSEGV, on_fault, 0);
        all(SIGUSR1);
        handle(SIGSEGV, on_fault, SA_ONSTACK);
        all(SIGUSR2);
    }
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
