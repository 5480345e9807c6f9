/* `gate PROCESSORS PROGRAM ARGUMENTS...`: waits for a line of input, then executes another program. */
#include "victim.h"

int main(int count, char **arguments) {
    unsigned long long ignored;
    if (count < 3)
        return 2;
    set_affinity(arguments[1]);
    ready();
    if (!wait_line(&ignored))
        return 0;
    /* The output of the program goes to the user. */
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 127;
}
