/* Makes CUDA calls for ever (or argv[1] of them) and tells on descriptor 3 (else 1) after each how many it has made:
 * what a recorder must have recorded when the program is killed. A round is 7 recorded calls. */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <fcntl.h>

static uint64_t done;
static int out;

static void call(cudaError_t e) {
    if (e != cudaSuccess) _exit(3);
    done++;
    if (write(out, &done, sizeof done) != sizeof done) _exit(4);
}

int main(int argc, char **argv) {
    uint64_t want = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX;
    out = fcntl(3, F_GETFD) >= 0 ? 3 : 1;
    char host[512] = {0};
    while (done < want) {
        void *p, *q;
        call(cudaMalloc(&p, 4096 + done % 1000));
        call(cudaMalloc(&q, 512));
        call(cudaMemset(p, 1, 512));
        call(cudaMemcpy(q, host, sizeof host, cudaMemcpyHostToDevice));
        call(cudaDeviceSynchronize());
        call(cudaFree(p));
        call(cudaFree(q));
    }
    return 0;
}
