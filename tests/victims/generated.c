/* Generates functions at run time, as a JIT compiler does, and calls back through them. One keeps a frame pointer; the
 * others use the register for other values. */
#define _GNU_SOURCE
#include "call_back.h"

#include <string.h>
#include <sys/mman.h>

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char with_frame_pointer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* push %rbp; xor %ebp,%ebp; call *%rdi; pop %rbp; ret */
static const unsigned char with_zero[] = {0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0xc3};
/* push %rbp; mov %rdi,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char with_code[] = {0x55, 0x48, 0x89, 0xfd, 0xff, 0xd7, 0x5d, 0xc3};
/* push %rbp; sub $32,%rsp; lea 8(%rsp),%rbp; mov %rbp,(%rbp); mov %rbp,8(%rbp); call *%rdi; add $32,%rsp; pop %rbp; ret
 * */
static const unsigned char with_data[] = {0x55, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8d, 0x6c, 0x24, 0x08, 0x48, 0x89, 0x6d,
                                          0x00, 0x48, 0x89, 0x6d, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3};

static caller *write_code(unsigned char *at, const unsigned char *code, size_t length) {
    memcpy(at, code, length);
    return (caller *)at;
}

int main(void) {
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        abort();
    caller *codes[] = {
        write_code(page, with_frame_pointer, sizeof with_frame_pointer),
        write_code(page + 64, with_zero, sizeof with_zero),
        write_code(page + 128, with_code, sizeof with_code),
        write_code(page + 192, with_data, sizeof with_data),
    };
    ledger_start();
    for (size_t i = 0; i < 4; i++)
        for (size = 1000 * (i + 1); size < 1000 * (i + 1) + 30; size++)
            through(codes[i]);
    ledger_print("");
    return wait_for_harness() ? 0 : 1;
}
