/* The beginning of a program that runs with old versions of glibc too: since 2.34 the usual one asks for a newer one
 * (csu/libc-start.c). Without functions for the beginning and the end of its own, glibc finds them by itself or has none
 * to call. */
__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5\n"
        ".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rdx, %r9\n"
        "    pop %rsi\n"
        "    mov %rsp, %rdx\n"
        "    and $-16, %rsp\n"
        "    push %rax\n"
        "    push %rsp\n"
        "    xor %ecx, %ecx\n"
        "    xor %r8d, %r8d\n"
        "    lea main(%rip), %rdi\n"
        "    call __libc_start_main@PLT\n"
        "    hlt\n");
