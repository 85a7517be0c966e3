/* What ends a kernel early: an address that it cannot reach, a trap, an assertion, a barrier that is not reached. The
 * launch ends, one line says what happened, and from then on every call is refused with that error, as on a device.
 *
 * A bad address of compiled code is a SIGSEGV or SIGBUS of this process. Our handler takes it only on threads that are
 * running a kernel at that moment; all else goes to the handler that was there before. */
/* Its check of longjmp takes a jump from a fiber's stack to the thread's for an error. */
#undef _FORTIFY_SOURCE
#include "vgpu/vgpu_run.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE};
enum { CAUGHT = sizeof caught / sizeof *caught, SIGNAL_STACK = 64 << 10 };

static struct sigaction before[CAUGHT], original[CAUGHT]; /* under ours now; before our first */
static bool installed[CAUGHT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct vgpu_worker *running __attribute__((tls_model("initial-exec")));
static __thread const siginfo_t *passing __attribute__((tls_model("initial-exec")));
static __thread void *signal_stack;

void vgpu_fail(cudaError_t error, const char *format, ...) {
    char line[480];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    int none = 0;
    if (atomic_compare_exchange_strong(&vgpu_refused, &none, (int)error))
        vgpu_say("%s (%s; all further calls fail)", line, cudaGetErrorName(error));
}

_Noreturn void vgpu_escape(struct vgpu_worker *w) {
    vgpu_fibers_leave(w->fibers);
    siglongjmp(w->escape, 1);
}

/* ---- signals ---- */

static void call(const struct sigaction *old, int signal, siginfo_t *info, void *context) {
    if (old->sa_flags & SA_SIGINFO) {
        old->sa_sigaction(signal, info, context);
        return;
    }
    if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
        old->sa_handler(signal);
        return;
    }
    if (old->sa_handler == SIG_IGN && info->si_code <= 0) return; /* sent, not caused: ignored */
    struct sigaction dead = {.sa_handler = SIG_DFL};
    sigaction(signal, &dead, NULL);
    if (info->si_code <= 0) raise(signal); /* else the instruction runs again, and ends the process */
}

/* As if we were not there. A handler that the program put over ours, and we ours over it again, may hand the signal on
 * to what it found: to us. Then the one before our first is next. */
static void pass_on(int signal, siginfo_t *info, void *context) {
    int i = 0;
    while (i < CAUGHT - 1 && caught[i] != signal) i++;
    if (passing == info) {
        call(&original[i], signal, info, context);
        return;
    }
    passing = info;
    call(&before[i], signal, info, context);
    passing = NULL;
}

static void handler(int signal, siginfo_t *info, void *context) {
    struct vgpu_worker *w = running;
    if (!w || !w->armed || info->si_code <= 0) {
        pass_on(signal, info, context);
        return;
    }
    w->armed = 0;
    w->fault_signal = signal;
    w->fault_address = info->si_addr;
    w->fault_unknown = info->si_code == SI_KERNEL;
    vgpu_escape(w);
}

/* The program, or a library of it, may have put its own handler over ours since the last launch. */
static void install(void) {
    struct sigaction ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER}, now;
    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CAUGHT; i++) {
        if (sigaction(caught[i], NULL, &now)) continue;
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handler) continue;
        before[i] = now;
        if (!installed[i]) original[i] = now;
        installed[i] = true;
        sigaction(caught[i], &ours, NULL);
    }
    pthread_mutex_unlock(&lock);
}

/* Once a thread: a stack for the handler, since a kernel may have used up its own; and the signals let in, since a
 * blocked one that an instruction causes ends the process. */
static void prepare_thread(void) {
    sigset_t set;
    if (signal_stack) return;
    void *p = mmap(NULL, SIGNAL_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    signal_stack = p;
    stack_t stack = {.ss_sp = p, .ss_size = SIGNAL_STACK};
    sigaltstack(&stack, NULL);
    sigemptyset(&set);
    for (int i = 0; i < CAUGHT; i++) sigaddset(&set, caught[i]);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void vgpu_fault_prepare(void) {
    prepare_thread();
    install();
}

void vgpu_fault_worker(struct vgpu_worker *w) {
    running = w;
}

void vgpu_fault_end(void) {
    stack_t none = {.ss_flags = SS_DISABLE};
    running = NULL;
    if (!signal_stack) return;
    sigaltstack(&none, NULL);
    munmap(signal_stack, SIGNAL_STACK);
    signal_stack = NULL;
}

/* ---- what is said ---- */

void vgpu_say_plain(const char *format, ...) {
    char line[2048];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line - 1, format, ap);
    va_end(ap);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (write(2, line, (size_t)n) < 0) return; /* stderr is closed */
}

/* "block [1,0,0], thread [5,0,0]" as far as it is known. */
static const char *where(const struct vgpu_frame *f, uint32_t thread, char *text, size_t bytes) {
    int n = snprintf(text, bytes, "block [%u,%u,%u]", f->ctaid[0], f->ctaid[1], f->ctaid[2]);
    if (n < (int)bytes && thread != UINT32_MAX)
        snprintf(text + n, bytes - (size_t)n, ", thread [%u,%u,%u]", thread % f->block[0],
                 thread / f->block[0] % f->block[1], thread / f->block[0] / f->block[1]);
    return text;
}

static bool in_guard(const struct vgpu_buffer *b, const void *address) {
    uintptr_t at = (uintptr_t)address, map = (uintptr_t)b->map;
    return b->map && at - map < b->map_bytes;
}

void vgpu_fault_signalled(struct vgpu_worker *w) {
    const char *name = w->launch->kernel->name;
    char at[96] = "interpreted";
    if (w->launch->way == VGPU_COMPILED) where(&w->frame, UINT32_MAX, at, sizeof at);
    const void *p = w->fault_address;
    if (w->fault_signal == SIGFPE)
        vgpu_fail(cudaErrorLaunchFailure, "kernel %s, %s: an arithmetic fault", name, at);
    else if (w->fault_unknown) /* x86 does not tell which address it was */
        vgpu_fail(cudaErrorIllegalAddress, "kernel %s, %s: an address that is not aligned or that no memory can have",
                  name, at);
    else if (in_guard(&w->shared, p))
        vgpu_fail(cudaErrorIllegalAddress, "kernel %s, %s: access at offset %" PRId64 " of %u bytes of shared memory",
                  name, at, (int64_t)((uintptr_t)p - (uintptr_t)w->frame.shared), w->frame.shared_bytes);
    else if (in_guard(&w->local, p))
        vgpu_fail(cudaErrorIllegalAddress, "kernel %s, %s: access outside local memory", name, at);
    else if (vgpu_fibers_guard(w->fibers, p))
        vgpu_fail(cudaErrorLaunchFailure, "kernel %s, %s: the stack of a warp is used up", name, at);
    else
        vgpu_fail(cudaErrorIllegalAddress, "kernel %s, %s: the device cannot reach address %p", name, at, p);
}

static cudaError_t error_of(int kind) {
    switch (kind) {
    case PTX_FAULT_ADDRESS:
        return cudaErrorIllegalAddress;
    case PTX_FAULT_MISALIGNED:
        return cudaErrorMisalignedAddress;
    case PTX_FAULT_ASSERT:
        return cudaErrorAssert;
    case PTX_FAULT_UNSUPPORTED:
        return cudaErrorNotSupported;
    case PTX_FAULT_MEMORY:
        return cudaErrorMemoryAllocation;
    default:
        return cudaErrorLaunchFailure;
    }
}

/* As the vendor's runtime words it: where comes before what. */
static void say_assertion(const struct ptx_fault *f) {
    const char *what = strstr(f->text, " Assertion `");
    int n = what ? (int)(what - f->text) : (int)strlen(f->text);
    vgpu_say_plain("%.*s block: [%u,%u,%u], thread: [%u,%u,%u]%s", n, f->text, f->ctaid[0], f->ctaid[1], f->ctaid[2],
                   f->tid[0], f->tid[1], f->tid[2], what ? what : "");
}

void vgpu_fault_interpreted(const struct vgpu_launch *l, const struct ptx_fault *f) {
    if (f->kind == PTX_FAULT_ASSERT) {
        say_assertion(f);
        vgpu_fail(cudaErrorAssert, "kernel %s: an assertion failed", l->kernel->name);
        return;
    }
    vgpu_fail(error_of(f->kind), "kernel %s, block [%u,%u,%u], thread [%u,%u,%u], PTX line %d: %s", l->kernel->name,
              f->ctaid[0], f->ctaid[1], f->ctaid[2], f->tid[0], f->tid[1], f->tid[2], f->line, f->text);
}

/* As the vendor's runtime words it, without its prefix. */
void vgpu_assert_failed(const struct vgpu_frame *f, uint32_t thread, const char *message, const char *file,
                        uint32_t line, const char *function) {
    const struct vgpu_worker *w = f->runtime;
    vgpu_say_plain("%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.", file, line, function,
                   f->ctaid[0], f->ctaid[1], f->ctaid[2], thread % f->block[0], thread / f->block[0] % f->block[1],
                   thread / f->block[0] / f->block[1], message);
    vgpu_fail(cudaErrorAssert, "kernel %s: an assertion failed", w->launch->kernel->name);
}

void vgpu_trapped(const struct vgpu_frame *f, uint32_t thread) {
    const struct vgpu_worker *w = f->runtime;
    char at[96];
    vgpu_fail(cudaErrorLaunchFailure, "kernel %s, %s: trap", w->launch->kernel->name, where(f, thread, at, sizeof at));
}
