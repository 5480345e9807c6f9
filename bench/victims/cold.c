/* `cold PROCESSORS`: malloc and free below a number of nested functions that changes with each pair, so that the caches of
 * memtrace's unwinder never help. */
#include "depth.h"

/* Twice the size of memtrace's address cache: an entry is always replaced before it is needed again. */
#define FUNCTIONS 8192

/* Distance between the starts of two functions. */
#define BYTES 64

#define TEXT_OF(macro) TEXT(macro)
#define TEXT(words) #words

/* A row of functions like those that the compiler generates for deep.c. Each calls the next one; at the requested depth it
 * does a pair of malloc and free. The last one calls the first one. Frame sizes are those of deep.c, rounded up to align the
 * stack. `.org` fails if a function exceeds BYTES. */
__asm__(".pushsection .text\n"
        ".p2align 6\n"
        ".type functions, @function\n"
        "functions:\n"
        ".rept " TEXT_OF(FUNCTIONS) " / 8\n"
        ".irp words, 9, 3, 15, 7, 11, 3, 19, 5\n"
        "1: .cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbp, -16\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 24\n"
        ".cfi_offset %rbx, -24\n"
        "sub $8 * \\words, %rsp\n"
        ".cfi_def_cfa_offset 24 + 8 * \\words\n"
        "mov %rdi, (%rsp)\n"
        "dec %rdi\n"
        "je 2f\n"
        "call 1f\n"
        "jmp 3f\n"
        "2: mov $" TEXT_OF(SIZE) ", %edi\n"
        "call malloc@PLT\n"
        "mov %rax, %rdi\n"
        "call free@PLT\n"
        "3: add $8 * \\words, %rsp\n"
        ".cfi_def_cfa_offset 24\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        "pop %rbp\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".org 1b + " TEXT_OF(BYTES) "\n"
        ".endr\n"
        ".endr\n"
        "1: jmp functions\n"
        ".popsection\n");

extern const char functions[] __attribute__((visibility("hidden")));

static inline __attribute__((always_inline)) uint64_t descend(unsigned long long nested, unsigned long long pairs) {
    static unsigned long long next;
    if (nested == 0)
        exit(2);
    uint64_t start = nanoseconds();
    for (unsigned long long i = 0; i < pairs; i++) {
        ((void (*)(unsigned long long))(functions + next * BYTES))(nested);
        next = (next + nested) % FUNCTIONS;
    }
    return nanoseconds() - start;
}

int main(int count, char **arguments) { return serve(count, arguments, descend); }
