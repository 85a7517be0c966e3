/* Starting the collector so that the program cannot notice. */
#ifndef ACCT_PRELOAD_SPAWN_H
#define ACCT_PRELOAD_SPAWN_H

#include <stddef.h>

/* Works out where the collector may be, while the working directory is still the one that LD_PRELOAD was meant in. In
 * the constructor. */
void spawn_remember_paths(void);

/* Starts `acct-collect --fd N` with the other end of a socket pair; answers our end (close-on-exec, not below 3), or -1
 * with one line in why. All signals must be blocked. The child has its own session, /dev/null for 0–2, nothing else of
 * the program's descriptors, default signals, no preload; it is no child that the program could wait for, and sends no
 * SIGCHLD. */
int spawn_collector(char *why, size_t why_len);

/* Moves a descriptor out of the way of programs that count on low numbers. -1: none left; fd is closed. */
int spawn_high_fd(int fd);

#endif
