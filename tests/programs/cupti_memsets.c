/* A program whose device times are taken. argv[1] says what it does, argv[2] how many memsets; it prints what it would
 * print without acct. Memsets only: the smallest work that a device has a time for. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *memory;
static int number;

static void sets(int n) {
    if (!memory && cudaMalloc(&memory, 4096)) exit(90);
    for (int i = 0; i < n; i++)
        if (cudaMemset(memory, i, 4096)) exit(91);
}

static void late_sets(void) {
    sets(number);
    cudaDeviceSynchronize();
}

static void *thread_sets(void *arg) {
    sets(number);
    return arg;
}

static int threads(void) {
    pthread_t t[4];
    sets(1);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&t[i], NULL, thread_sets, NULL)) return 92;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    return 0;
}

static int forks(int child_uses_cuda) {
    int status;
    sets(number);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        if (child_uses_cuda) cudaMemset(memory, 1, 1); /* a device that was in use refuses */
        exit(7);
    }
    waitpid(pid, &status, 0);
    sets(number);
    printf("child %d\n", WEXITSTATUS(status));
    return 0;
}

/* Another profiler was here first. Prints what it was told. */
static int subscribes(void) {
    void *lib = dlopen("libcupti.so.13", RTLD_NOW), *handle;
    int (*subscribe)(void *, void (*)(void), void *);
    if (!lib) return 93;
    *(void **)&subscribe = dlsym(lib, "cuptiSubscribe");
    printf("subscribed %d\n", subscribe(&handle, (void (*)(void))late_sets, NULL));
    sets(number);
    return 0;
}

/* The first calls of all are made by the constructor of $PLUGIN, which dlopen runs under the loader's lock. */
static int opens_plugin(void) {
    if (!dlopen(getenv("PLUGIN"), RTLD_NOW)) return 97;
    usleep(500000);
    sets(number);
    return 0;
}

static int run(const char *what, char **argv) {
    if (!strcmp(what, "threads")) return threads();
    if (!strcmp(what, "fork")) return forks(0);
    if (!strcmp(what, "fork-cuda")) return forks(1);
    if (!strcmp(what, "subscribes")) return subscribes();
    if (!strcmp(what, "plugin")) return opens_plugin();
    if (!strcmp(what, "late")) atexit(late_sets);
    sets(number);
    if (!strcmp(what, "exit")) _exit(5);
    if (!strcmp(what, "exec")) {
        char self[] = "/proc/self/exe", sets_[] = "sets";
        char *const args[] = {argv[0], sets_, argv[2], NULL};
        usleep(400000);
        execv(self, args);
        return 94;
    }
    if (!strcmp(what, "wait")) { /* until it is killed */
        printf("ready\n");
        fflush(stdout);
        pause();
    }
    for (int i = 0; !strcmp(what, "steady"); i++) {
        sets(1);
        if (i == 50) printf("ready\n"), fflush(stdout);
        usleep(1000);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 95;
    number = atoi(argv[2]);
    int code = run(argv[1], argv);
    if (cudaDeviceSynchronize()) return 96; /* what has not run by the exit has no times */
    printf("done\n");
    return code;
}
