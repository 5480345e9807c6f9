/* malloc and free at the bottom of a stack as deep as asked, called by functions that have not called them for long:
 * `cold PROCESSORS`. What was looked up for the stack of one pair is of no use to the next. */
#include "depth.h"

/* Twice as many as memtrace remembers addresses: before one has its turn again, another has taken its place. */
#define FUNCTIONS 8192

/* From the beginning of one function to that of the next. */
#define BYTES 64

#define TEXT_OF(macro) TEXT(macro)
#define TEXT(words) #words

/* Functions, one behind the other, as the compiler makes them of those in deep.c: each calls the next until it is deep
 * enough, and there does a pair by itself; what follows the last is the first. The frames have as many words as there,
 * one more where the stack would not be aligned. `.org` refuses to go back, should one not fit. */
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

static inline __attribute__((always_inline)) uint64_t descend(unsigned long long deeper, unsigned long long pairs) {
    static unsigned long long next;
    if (deeper == 0)
        exit(2);
    uint64_t began = nanoseconds();
    for (unsigned long long i = 0; i < pairs; i++) {
        ((void (*)(unsigned long long))(functions + next * BYTES))(deeper);
        next = (next + deeper) % FUNCTIONS;
    }
    return nanoseconds() - began;
}

int main(int count, char **arguments) { return obey(count, arguments, descend); }
