/* argv[1] threads, each allocates, clears and releases argv[2] blocks whose size names thread and round; eight at once
 * is the classic that loses updates. Exit code 0 if every call succeeded. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static int rounds;
static pthread_barrier_t start;

static void *work(void *arg) {
    intptr_t t = (intptr_t)arg;
    pthread_barrier_wait(&start);
    for (int i = 0; i < rounds; i++) {
        void *p;
        if (cudaMalloc(&p, (size_t)(t + 1) * 1000000 + (size_t)i)) return (void *)1;
        if (cudaFree(p)) return (void *)1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 8;
    rounds = argc > 2 ? atoi(argv[2]) : 1000;
    pthread_t t[64];
    if (n < 1 || n > 64) return 2;
    pthread_barrier_init(&start, NULL, (unsigned)n);
    for (intptr_t i = 0; i < n; i++)
        if (pthread_create(&t[i], NULL, work, (void *)i)) return 2;
    int bad = 0;
    for (int i = 0; i < n; i++) {
        void *r;
        pthread_join(t[i], &r);
        bad |= r != NULL;
    }
    return bad;
}
