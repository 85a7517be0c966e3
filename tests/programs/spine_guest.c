/* A program with habits that a guest in its house must respect. argv[1]:
 *   close   closes every descriptor, goes on with CUDA calls, ends with exit code 5
 *   wait    has a child of its own and waits for any child: must see exactly that one, and no SIGCHLD but its own
 *   fork    forks after its first CUDA call; the child makes none and ends by exit(); then goes on; code 6
 *   exec    after a CUDA call executes /bin/echo
 *   exit    _exit(7) in mid-work
 * Prints what it saw; whatever it prints is the same without acct. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t children;
static void on_child(int s) {
    (void)s;
    children++;
}

static void work(void) {
    void *p;
    if (cudaMalloc(&p, 1 << 20)) exit(2);
    if (cudaMemset(p, 0, 1 << 20)) exit(2);
    if (cudaFree(p)) exit(2);
}

static int wait_any(void) {
    struct sigaction sa = {.sa_handler = on_child};
    sigaction(SIGCHLD, &sa, NULL);
    work();
    printf("children before: %d\n", waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 1);
    pid_t pid = fork();
    if (pid == 0) _exit(9);
    int status, n = 0;
    pid_t r;
    while ((r = wait(&status)) > 0 || (r < 0 && errno == EINTR))
        if (r > 0) printf("child %s code %d\n", r == pid ? "mine" : "foreign", WEXITSTATUS(status)), n++;
    work();
    printf("children %d signals %d\n", n, (int)children);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(what, "close")) {
        work();
        for (int fd = 0; fd < 4096; fd++) close(fd);
        for (int i = 0; i < 100; i++) work();
        return 5;
    }
    if (!strcmp(what, "wait")) return wait_any();
    if (!strcmp(what, "fork")) {
        work();
        pid_t pid = fork();
        if (pid == 0) {
            printf("child\n");
            exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        work();
        printf("child ended with %d\n", WEXITSTATUS(status));
        return 6;
    }
    if (!strcmp(what, "exec")) {
        work();
        execl("/bin/echo", "echo", "executed", (char *)NULL);
        return 2;
    }
    if (!strcmp(what, "exit")) {
        work();
        _exit(7);
    }
    return 2;
}
