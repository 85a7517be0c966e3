/* Memory as others' tools have got it wrong, a case a run: memory_cases NAME. Says nothing; 0: the calls behaved as the
 * case expects. Written as a user would, knows nothing of acct. */
#include <cuda_runtime_api.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define OK(call) \
    if ((call) != cudaSuccess) return 1

static int once(void) {
    void *p;
    OK(cudaMalloc(&p, MIB));
    return 0;
}

/* Released while another device is the current one. */
static int wrong_device(void) {
    void *p;
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&p, 100 * MIB));
    OK(cudaSetDevice(1));
    OK(cudaFree(p));
    return 0;
}

static int failed(void) {
    void *p = (void *)(uintptr_t)0x1234;
    return cudaMalloc(&p, (size_t)1 << 50) != cudaErrorMemoryAllocation;
}

static int zero(void) {
    void *a = NULL, *b = NULL;
    OK(cudaMalloc(&a, 0));
    OK(cudaMalloc(&b, 0));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(0));
    return 0;
}

static int forks(void) {
    void *p;
    int status;
    OK(cudaMalloc(&p, MIB));
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    OK(cudaFree(p));
    return 0;
}

enum { THREADS = 8, ROUNDS = 2000 };

static void *allocate_and_release(void *failures) {
    for (int i = 0; i < ROUNDS; i++) {
        void *p;
        if (cudaMalloc(&p, 512) != cudaSuccess || cudaFree(p) != cudaSuccess) ++*(int *)failures;
    }
    return NULL;
}

static int threads(void) {
    pthread_t thread[THREADS];
    int failures[THREADS] = {0}, sum = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, allocate_and_release, &failures[i])) return 1;
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL), sum += failures[i];
    return sum != 0;
}

/* Copies whose host side is page-locked, registered, managed, and none of these. */
static int copies(void) {
    static char plain[3 * 1024], registered[5 * 4096];
    void *device, *pinned, *managed;
    OK(cudaMalloc(&device, MIB));
    OK(cudaMallocHost(&pinned, 7000));
    OK(cudaMallocManaged(&managed, 9000, cudaMemAttachGlobal));
    OK(cudaHostRegister(registered, sizeof registered, 0));
    OK(cudaMemcpy(device, pinned, 7000, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(device, registered, sizeof registered, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(device, managed, 9000, cudaMemcpyDefault));
    OK(cudaMemcpy(device, plain, sizeof plain, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(plain, device, 1000, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(pinned, device, 2000, cudaMemcpyDefault));
    OK(cudaMemcpy((char *)device + 65536, device, 4000, cudaMemcpyDeviceToDevice));
    OK(cudaHostUnregister(registered));
    return 0;
}

/* A thing to free, so that the driver's account before it is in the trace. */
static int release(void) {
    void *large, *small[3];
    OK(cudaMalloc(&large, 5 * MIB + 1));
    for (int i = 0; i < 3; i++) OK(cudaMalloc(&small[i], 1000));
    OK(cudaFree(small[1]));
    return 0;
}

/* Takes memory for a while, and keeps it to the end. */
static int keep(void) {
    for (int i = 0; i < 6; i++) {
        void *p;
        OK(cudaMalloc(&p, 3 * MIB));
        usleep(15000);
    }
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } cases[] = {{"once", once},   {"wrong_device", wrong_device}, {"failed", failed}, {"zero", zero},
                 {"forks", forks}, {"threads", threads},           {"copies", copies}, {"release", release},
                 {"keep", keep}};
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) return cases[i].run();
    return 2;
}
