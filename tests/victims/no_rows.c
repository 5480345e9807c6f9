/* Calls back through functions in assembly without call frame information. One keeps a frame pointer. The others keep
 * none: the register still belongs to an outer function, or has another value. */
#include "call_back.h"

#define FUNCTION(name, body)                                                                                           \
    __asm__(".pushsection .text\n.type " #name ", @function\n" #name ":\n" body "\n.size " #name                     \
            ", . - " #name "\n.popsection");                                                                           \
    caller name

/* Where the stack of the caller must continue. */
FUNCTION(by_hand, "push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret");
/* The frame pointer is that of an outer function. */
FUNCTION(without_frame, "sub $8, %rsp; call *%rdi; add $8, %rsp; ret");
/* A stack address, with a stack address above it. */
FUNCTION(with_data, "push %rbp; sub $32, %rsp; lea 8(%rsp), %rbp; movq $0, (%rbp); mov %rbp, 8(%rbp); call *%rdi;"
                    "add $32, %rsp; pop %rbp; ret");
/* A stack address, with code above it that follows no call. */
FUNCTION(with_code, "push %rbp; sub $32, %rsp; lea 8(%rsp), %rbp; movq $0, (%rbp); mov %rdi, 8(%rbp); call *%rdi;"
                    "add $32, %rsp; pop %rbp; ret");
/* A frame that is its own caller. */
FUNCTION(with_cycle, "push %rbp; sub $32, %rsp; lea 8(%rsp), %rbp; mov %rbp, (%rbp); lea 1f(%rip), %rax;"
                     "mov %rax, 8(%rbp); call *%rdi; 1: add $32, %rsp; pop %rbp; ret");
/* Not aligned, with a return address above it. */
FUNCTION(unaligned, "push %rbp; sub $32, %rsp; lea 9(%rsp), %rbp; movq $0, (%rbp); lea 1f(%rip), %rax;"
                    "mov %rax, 8(%rbp); call *%rdi; 1: add $32, %rsp; pop %rbp; ret");

/* Keeps a frame pointer, because its frame has no constant size. */
NOIPA static void outer(caller *code, size_t length) {
    char space[length];
    __asm__ volatile("" : : "r"(space) : "memory");
    through(code);
    __asm__ volatile("");
}

int main(void) {
    caller *const codes[] = {by_hand, without_frame, with_data, with_code, with_cycle, unaligned};
    ledger_start();
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        for (size = 1000 * (i + 1); size < 1000 * (i + 1) + 30; size++)
            outer(codes[i], 100);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
