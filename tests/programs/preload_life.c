/* A program that does to its process what programs do. argv[1] names what; what it prints and its exit code are the
 * same with and without acct. */
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void pairs(int n, size_t bytes) {
    for (int i = 0; i < n; i++) {
        void *p;
        if (cudaMalloc(&p, bytes) || cudaFree(p)) exit(99);
    }
}

static void *thread_pairs(void *arg) {
    pairs(3, (size_t)(intptr_t)arg);
    return NULL;
}

/* argv[2] threads one after the other, each with 3 pairs. */
static int turns(int n) {
    for (intptr_t i = 1; i <= n; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, thread_pairs, (void *)i)) return 98;
        pthread_join(t, NULL);
    }
    return 0;
}

static int child_with_calls(void) {
    pairs(1, 100);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        pairs(2, 200);
        exit(4);
    }
    int status;
    waitpid(pid, &status, 0);
    pairs(1, 300);
    printf("child %d\n", WEXITSTATUS(status));
    return 3;
}

static volatile int stop;
static void *busy(void *arg) {
    (void)arg;
    while (!stop) pairs(1, 50);
    return NULL;
}

/* Forks while other threads are in the middle of calls. */
static int fork_among_threads(void) {
    pthread_t t[4];
    int good = 0;
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, busy, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (i % 2) pairs(1, 60);
            _exit(11);
        }
        int status;
        waitpid(pid, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 11;
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    printf("children %d\n", good);
    return 0;
}

/* Forks while another thread's first call starts the recorder: a child each millisecond, which makes a call. */
static int fork_at_start(int n) {
    pthread_t t;
    pid_t child[64];
    int good = 0, made = 0;
    pthread_create(&t, NULL, busy, NULL);
    for (; made < n && made < 64; made++) {
        usleep(1000);
        child[made] = fork();
        if (child[made] == 0) {
            pairs(1, 60);
            _exit(11);
        }
    }
    for (int i = 0; i < made; i++) {
        int status;
        if (waitpid(child[i], &status, 0) == child[i]) good += WIFEXITED(status) && WEXITSTATUS(status) == 11;
    }
    stop = 1;
    pthread_join(t, NULL);
    printf("children %d\n", good);
    return 0;
}

static int vfork_exec(void) {
    pairs(1, 100);
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    pairs(1, 100);
    return WEXITSTATUS(status);
}

static int close_range_all(void) {
    pairs(1, 100);
    syscall(SYS_close_range, 3, ~0u, 0);
    pairs(5, 100);
    printf("closed\n");
    return 2;
}

/* Descriptors 0–2 are free: whoever opens one carelessly takes them. */
static int no_standard_files(void) {
    close(0), close(1), close(2);
    pairs(1, 100);
    int fd = open("/dev/null", O_RDONLY);
    return fd == 0 ? 0 : 50 + fd;
}

static int count_low_descriptors(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.' && atoi(e->d_name) < 64;
    closedir(d);
    return n;
}

static int descriptors(void) {
    int before = count_low_descriptors();
    pairs(1, 100);
    printf("low descriptors %d\n", count_low_descriptors() - before);
    return 0;
}

static void late(void) {
    pairs(1, 700);
}
__attribute__((destructor)) static void very_late(void) {
    if (getenv("LATE")) pairs(1, 800);
}

static int at_exit(void) {
    setenv("LATE", "1", 1);
    atexit(late);
    pairs(1, 600);
    return 12;
}

/* What acct might say must not land in a file that happens to be descriptor 2. */
static int other_stderr(const char *path) {
    close(2);
    if (open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) != 2) return 97;
    pairs(1, 100);
    return 0;
}

static int errno_kept(void) {
    void *p;
    errno = 77;
    cudaMalloc(&p, 100);
    int first = errno;
    errno = 78;
    cudaFree(p);
    printf("errno %d %d\n", first, errno);
    return 0;
}

static int signals_as_they_were(void) {
    sigset_t set, after;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_SETMASK, &set, NULL);
    pairs(1, 100);
    sigprocmask(SIG_SETMASK, NULL, &after);
    printf("mask %d\n", sigismember(&after, SIGUSR1) && !sigismember(&after, SIGUSR2) && !sigismember(&after, SIGTERM));
    return 0;
}

static void *ends_by_pthread_exit(void *arg) {
    (void)arg;
    pairs(2, 100);
    pthread_exit(NULL);
}

static int main_thread_ends_first(void) {
    pthread_t t;
    pairs(1, 100);
    pthread_create(&t, NULL, ends_by_pthread_exit, NULL);
    pthread_detach(t);
    pthread_exit(NULL);
}

static int leaves_a_daemon(void) {
    pairs(1, 100);
    if (fork() == 0) {
        setsid();
        sleep(10);
        _exit(0);
    }
    return 8;
}

/* Prints the most memory that was resident, in KB. */
static int locked(void) {
    struct rusage u;
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 95;
    pairs(1, 100);
    getrusage(RUSAGE_SELF, &u);
    printf("%ld\n", u.ru_maxrss);
    return 0;
}

static void *one_pair(void *arg) {
    pairs(1, 100);
    return arg;
}

/* Prints the bytes of stack that a thread with one pair of calls has used: the first thread of all, and the next. */
static int stack_used(void) {
    enum { BYTES = 1 << 20 };
    for (int i = 0; i < 2; i++) {
        unsigned char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_t a;
        pthread_t t;
        size_t untouched = 0;
        if (stack == MAP_FAILED) return 94;
        memset(stack, 0xab, BYTES);
        pthread_attr_init(&a);
        pthread_attr_setstack(&a, stack, BYTES);
        if (pthread_create(&t, &a, one_pair, NULL) || pthread_join(t, NULL)) return 93;
        while (stack[untouched] == 0xab) untouched++;
        printf("%zu\n", BYTES - untouched);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";
    if (!strcmp(what, "turns")) return turns(atoi(arg));
    if (!strcmp(what, "fork-calls")) return child_with_calls();
    if (!strcmp(what, "fork-threads")) return fork_among_threads();
    if (!strcmp(what, "fork-at-start")) return fork_at_start(atoi(arg));
    if (!strcmp(what, "vfork")) return vfork_exec();
    if (!strcmp(what, "close-range")) return close_range_all();
    if (!strcmp(what, "no-standard-files")) return no_standard_files();
    if (!strcmp(what, "descriptors")) return descriptors();
    if (!strcmp(what, "at-exit")) return at_exit();
    if (!strcmp(what, "other-stderr")) return other_stderr(arg);
    if (!strcmp(what, "errno")) return errno_kept();
    if (!strcmp(what, "signals")) return signals_as_they_were();
    if (!strcmp(what, "pthread-exit")) return main_thread_ends_first();
    if (!strcmp(what, "daemon")) return leaves_a_daemon();
    if (!strcmp(what, "locked")) return locked();
    if (!strcmp(what, "stack")) return stack_used();
    if (!strcmp(what, "pairs")) return pairs(atoi(arg), 512), 0;
    return 96;
}
