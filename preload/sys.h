/* System calls as such. libc's functions for the same are cancellation points: a program that cancels a thread would
 * have it die inside the library. Each answers what the kernel does (>= 0), or -1 with errno set. */
#ifndef ACCT_PRELOAD_SYS_H
#define ACCT_PRELOAD_SYS_H

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline long sys_read(int fd, void *p, size_t n) {
    return syscall(SYS_read, fd, p, n);
}
static inline long sys_write(int fd, const void *p, size_t n) {
    return syscall(SYS_write, fd, p, n);
}
static inline int sys_open(const char *path, int flags) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}
static inline int sys_close(int fd) {
    return (int)syscall(SYS_close, fd);
}
static inline int sys_fcntl(int fd, int cmd, unsigned long arg) {
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}
static inline int sys_access(const char *path, int mode) {
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}
static inline int sys_gettid(void) {
    return (int)syscall(SYS_gettid);
}
static inline int sys_getpid(void) {
    return (int)syscall(SYS_getpid);
}

/* Waits until *word is no longer `value`, is woken, or `ms` are over. `shared`: by another process too. */
static inline void sys_futex_wait(void *word, unsigned value, unsigned ms, int shared) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &t, NULL, 0);
}
static inline void sys_futex_wake_all(void *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

/* Blocks all signals / restores the mask. */
static inline void sys_signals_block(unsigned long *old) {
    unsigned long all = ~0ul;
    syscall(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, old, sizeof all);
}
static inline void sys_signals_restore(const unsigned long *old) {
    syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, old, NULL, sizeof *old);
}

#endif
