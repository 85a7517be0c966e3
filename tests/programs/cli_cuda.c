/* A CUDA program for the tests of `acct run`: allocates N blocks, says so, and ends as told.
 *   cli_cuda exit CODE | kill SIGNAL | linger SECONDS | exec PROGRAM [ARGS] | many N */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void allocate(int n) {
    for (int i = 0; i < n; i++) {
        void *p = NULL;
        cudaError_t rc = cudaMalloc(&p, 1000 + (size_t)i);
        if (rc != cudaSuccess) {
            fprintf(stderr, "cudaMalloc: %s\n", cudaGetErrorString(rc));
            exit(99);
        }
        if (i) cudaFree(p);
    }
}

/* The child uses CUDA and outlives its parent. */
static void linger(int seconds) {
    int ready[2];
    char c;
    if (pipe(ready)) exit(98);
    if (fork() == 0) {
        allocate(2);
        close(1);
        close(2);
        if (write(ready[1], "x", 1) != 1) _exit(97);
        sleep((unsigned)seconds);
        _exit(0);
    }
    if (read(ready[0], &c, 1) != 1) exit(96);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "exit";
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "linger")) {
        linger(n);
        return 0;
    }
    allocate(!strcmp(what, "many") ? n : 3);
    printf("allocated\n");
    fflush(stdout);
    if (!strcmp(what, "kill")) raise(n);
    if (!strcmp(what, "exec")) execvp(argv[2], argv + 2);
    return strcmp(what, "exit") ? 0 : n;
}
