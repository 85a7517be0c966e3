/* The device as a whole: its properties and settings. */
#include "vgpu/vgpu_engine.h"
#include "vgpu/vgpu_run.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 13000, CLOCK_CPU = 2 /* ACCT_clock_cpu of trace/events.def */ };

void vgpu_say(const char *format, ...) {
    char line[512];
    va_list ap;
    int n = snprintf(line, sizeof line, "acct virtual GPU: ");
    va_start(ap, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, ap);
    va_end(ap);
    if (n > (int)sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    if (write(2, line, (size_t)n) < 0) return; /* stderr is closed: nothing else to tell it with */
}

bool vgpu_env_bytes(const char *name, uint64_t *value) {
    static const char suffixes[] = "KMGT";
    const char *text = getenv(name);
    if (!text || !*text) return false;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *s = *end ? strchr(suffixes, *end & ~0x20) : NULL;
    unsigned shift = s ? 10 * (unsigned)(s - suffixes + 1) : 0;
    end += s != NULL;
    if (s && *end == 'i') end++;
    if (s && (*end == 'B' || *end == 'b')) end++;
    if (errno || *text == '-' || *end || n > UINT64_MAX >> shift) {
        vgpu_say("%s=%s is not a size (a number with K, M, G or T): ignored", name, text);
        return false;
    }
    *value = (uint64_t)n << shift;
    return n != 0;
}

int vgpu_cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

int vgpu_device(int ordinal, struct acct_vgpu_device *out) {
    struct acct_vgpu_device d = {.clock = CLOCK_CPU, .profile = "cpu"};
    struct vgpu_peak peak;
    size_t bytes = out->struct_bytes < sizeof d ? out->struct_bytes : sizeof d;
    if (ordinal) return -1;
    vgpu_peak_get(&peak);
    d.struct_bytes = (uint32_t)bytes;
    d.peak_fp32 = peak.fp32;
    d.peak_fp64 = peak.fp64;
    d.peak_tf32 = peak.tf32;
    d.peak_bf16 = peak.bf16;
    d.peak_fp16 = peak.fp16;
    d.peak_fp8 = peak.fp8;
    snprintf(d.peak_source, sizeof d.peak_source, "%s", peak.source);
    memcpy(out, &d, bytes);
    return 0;
}

static int megahertz(void) {
    long khz = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "re");
    if (f) {
        if (fscanf(f, "%ld", &khz) != 1) khz = 0;
        fclose(f);
    }
    return khz > 0 ? (int)(khz / 1000) : 2000;
}

/* Limits are those of compute capability 9.0; sizes and counts are this machine's. */
static void fill_properties(struct cudaDeviceProp *p) {
    *p = (struct cudaDeviceProp){
        .name = "acct virtual GPU (cpu)",
        .totalGlobalMem = vgpu_capacity(),
        .sharedMemPerBlock = 48 << 10,
        .sharedMemPerBlockOptin = 227 << 10,
        .reservedSharedMemPerBlock = 1 << 10,
        .sharedMemPerMultiprocessor = 228 << 10,
        .regsPerBlock = 65536,
        .regsPerMultiprocessor = 65536,
        .warpSize = 32,
        .memPitch = 2147483647,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .maxThreadsPerMultiProcessor = 2048,
        .maxBlocksPerMultiProcessor = 32,
        .totalConstMem = 65536,
        .major = 9,
        .minor = 0,
        .textureAlignment = 512,
        .texturePitchAlignment = 32,
        .surfaceAlignment = 512,
        .multiProcessorCount = vgpu_cores(),
        .canMapHostMemory = 1,
        .unifiedAddressing = 1,
        .managedMemory = 1,
        .concurrentManagedAccess = 1,
        .hostRegisterSupported = 1,
        .canUseHostPointerForRegisteredMem = 1,
        .maxTexture1D = 131072,
        .maxTexture1DMipmap = 32768,
        .maxTexture2D = {131072, 65536},
        .maxTexture2DMipmap = {32768, 32768},
        .maxTexture2DLinear = {131072, 65000, 2097120},
        .maxTexture2DGather = {32768, 32768},
        .maxTexture3D = {16384, 16384, 16384},
        .maxTexture3DAlt = {8192, 8192, 32768},
        .maxTextureCubemap = 32768,
        .maxTexture1DLayered = {32768, 2048},
        .maxTexture2DLayered = {32768, 32768, 2048},
        .maxTextureCubemapLayered = {32768, 2046},
        .maxSurface1D = 32768,
        .maxSurface2D = {131072, 65536},
        .maxSurface3D = {16384, 16384, 16384},
        .maxSurface1DLayered = {32768, 2048},
        .maxSurface2DLayered = {32768, 32768, 2048},
        .maxSurfaceCubemap = 32768,
        .maxSurfaceCubemapLayered = {32768, 2046},
        .concurrentKernels = 1,
        .asyncEngineCount = 2,
        .streamPrioritiesSupported = 1,
        .memoryBusWidth = 64,
        .l2CacheSize = 0,
        .globalL1CacheSupported = 1,
        .localL1CacheSupported = 1,
        .memoryPoolsSupported = 1,
        .deviceNumaId = -1,
        .hostNumaId = -1,
    };
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    p->l2CacheSize = l3 > 0 && l3 < 0x7fffffff ? (int)l3 : 0;
    memcpy(p->uuid.bytes, "acct-vgpu-cpu-0", 16);
}

static const struct cudaDeviceProp *properties(void) {
    static struct cudaDeviceProp p;
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&m);
    if (!p.major) fill_properties(&p);
    pthread_mutex_unlock(&m);
    return &p;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    if (!out) return cudaErrorInvalidValue;
    if (device) return cudaErrorInvalidDevice;
    *out = *properties();
    return cudaSuccess;
}

/* Attributes that are a field of the properties. */
#define FIELD(f) offsetof(struct cudaDeviceProp, f)
static const struct {
    enum cudaDeviceAttr attribute;
    size_t offset;
} int_fields[] = {
    {cudaDevAttrMaxThreadsPerBlock, FIELD(maxThreadsPerBlock)},
    {cudaDevAttrMaxBlockDimX, FIELD(maxThreadsDim[0])},
    {cudaDevAttrMaxBlockDimY, FIELD(maxThreadsDim[1])},
    {cudaDevAttrMaxBlockDimZ, FIELD(maxThreadsDim[2])},
    {cudaDevAttrMaxGridDimX, FIELD(maxGridSize[0])},
    {cudaDevAttrMaxGridDimY, FIELD(maxGridSize[1])},
    {cudaDevAttrMaxGridDimZ, FIELD(maxGridSize[2])},
    {cudaDevAttrWarpSize, FIELD(warpSize)},
    {cudaDevAttrMaxRegistersPerBlock, FIELD(regsPerBlock)},
    {cudaDevAttrMaxRegistersPerMultiprocessor, FIELD(regsPerMultiprocessor)},
    {cudaDevAttrMultiProcessorCount, FIELD(multiProcessorCount)},
    {cudaDevAttrIntegrated, FIELD(integrated)},
    {cudaDevAttrCanMapHostMemory, FIELD(canMapHostMemory)},
    {cudaDevAttrConcurrentKernels, FIELD(concurrentKernels)},
    {cudaDevAttrEccEnabled, FIELD(ECCEnabled)},
    {cudaDevAttrPciBusId, FIELD(pciBusID)},
    {cudaDevAttrPciDeviceId, FIELD(pciDeviceID)},
    {cudaDevAttrPciDomainId, FIELD(pciDomainID)},
    {cudaDevAttrTccDriver, FIELD(tccDriver)},
    {cudaDevAttrGlobalMemoryBusWidth, FIELD(memoryBusWidth)},
    {cudaDevAttrL2CacheSize, FIELD(l2CacheSize)},
    {cudaDevAttrMaxPersistingL2CacheSize, FIELD(persistingL2CacheMaxSize)},
    {cudaDevAttrMaxThreadsPerMultiProcessor, FIELD(maxThreadsPerMultiProcessor)},
    {cudaDevAttrMaxBlocksPerMultiprocessor, FIELD(maxBlocksPerMultiProcessor)},
    {cudaDevAttrAsyncEngineCount, FIELD(asyncEngineCount)},
    {cudaDevAttrUnifiedAddressing, FIELD(unifiedAddressing)},
    {cudaDevAttrMaxTexture1DWidth, FIELD(maxTexture1D)},
    {cudaDevAttrMaxTexture2DWidth, FIELD(maxTexture2D[0])},
    {cudaDevAttrMaxTexture2DHeight, FIELD(maxTexture2D[1])},
    {cudaDevAttrMaxTexture3DWidth, FIELD(maxTexture3D[0])},
    {cudaDevAttrMaxTexture3DHeight, FIELD(maxTexture3D[1])},
    {cudaDevAttrMaxTexture3DDepth, FIELD(maxTexture3D[2])},
    {cudaDevAttrComputeCapabilityMajor, FIELD(major)},
    {cudaDevAttrComputeCapabilityMinor, FIELD(minor)},
    {cudaDevAttrStreamPrioritiesSupported, FIELD(streamPrioritiesSupported)},
    {cudaDevAttrGlobalL1CacheSupported, FIELD(globalL1CacheSupported)},
    {cudaDevAttrLocalL1CacheSupported, FIELD(localL1CacheSupported)},
    {cudaDevAttrManagedMemory, FIELD(managedMemory)},
    {cudaDevAttrIsMultiGpuBoard, FIELD(isMultiGpuBoard)},
    {cudaDevAttrMultiGpuBoardGroupID, FIELD(multiGpuBoardGroupID)},
    {cudaDevAttrHostNativeAtomicSupported, FIELD(hostNativeAtomicSupported)},
    {cudaDevAttrPageableMemoryAccess, FIELD(pageableMemoryAccess)},
    {cudaDevAttrConcurrentManagedAccess, FIELD(concurrentManagedAccess)},
    {cudaDevAttrComputePreemptionSupported, FIELD(computePreemptionSupported)},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, FIELD(canUseHostPointerForRegisteredMem)},
    {cudaDevAttrCooperativeLaunch, FIELD(cooperativeLaunch)},
    {cudaDevAttrHostRegisterSupported, FIELD(hostRegisterSupported)},
    {cudaDevAttrPageableMemoryAccessUsesHostPageTables, FIELD(pageableMemoryAccessUsesHostPageTables)},
    {cudaDevAttrDirectManagedMemAccessFromHost, FIELD(directManagedMemAccessFromHost)},
    {cudaDevAttrMaxAccessPolicyWindowSize, FIELD(accessPolicyMaxWindowSize)},
    {cudaDevAttrSparseCudaArraySupported, FIELD(sparseCudaArraySupported)},
    {cudaDevAttrHostRegisterReadOnlySupported, FIELD(hostRegisterReadOnlySupported)},
    {cudaDevAttrTimelineSemaphoreInteropSupported, FIELD(timelineSemaphoreInteropSupported)},
    {cudaDevAttrMemoryPoolsSupported, FIELD(memoryPoolsSupported)},
    {cudaDevAttrGPUDirectRDMASupported, FIELD(gpuDirectRDMASupported)},
    {cudaDevAttrClusterLaunch, FIELD(clusterLaunch)},
    {cudaDevAttrDeferredMappingCudaArraySupported, FIELD(deferredMappingCudaArraySupported)},
    {cudaDevAttrIpcEventSupport, FIELD(ipcEventSupported)},
    {cudaDevAttrNumaConfig, FIELD(deviceNumaConfig)},
    {cudaDevAttrNumaId, FIELD(deviceNumaId)},
    {cudaDevAttrMpsEnabled, FIELD(mpsEnabled)},
    {cudaDevAttrHostNumaId, FIELD(hostNumaId)},
};

static int other_attribute(enum cudaDeviceAttr attribute, const struct cudaDeviceProp *p) {
    switch ((int)attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return (int)p->sharedMemPerBlock;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)p->sharedMemPerBlockOptin;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return (int)p->sharedMemPerMultiprocessor;
    case cudaDevAttrReservedSharedMemoryPerBlock:
        return (int)p->reservedSharedMemPerBlock;
    case cudaDevAttrTotalConstantMemory:
        return (int)p->totalConstMem;
    case cudaDevAttrMaxPitch:
        return (int)p->memPitch;
    case cudaDevAttrTextureAlignment:
        return (int)p->textureAlignment;
    case cudaDevAttrTexturePitchAlignment:
        return (int)p->texturePitchAlignment;
    case cudaDevAttrSurfaceAlignment:
        return (int)p->surfaceAlignment;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        return megahertz() * 1000;
    case cudaDevAttrGpuOverlap:
        return 1;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
        return 2;
    case cudaDevAttrComputeMode:
        return cudaComputeModeDefault;
    case cudaDevAttrMemSyncDomainCount:
        return 1;
    default:
        return 0; /* a texture size or a feature that is not there */
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (device) return cudaErrorInvalidDevice;
    if (!value || (int)attribute < 1 || attribute >= cudaDevAttrMax) return cudaErrorInvalidValue;
    const struct cudaDeviceProp *p = properties();
    for (size_t i = 0; i < sizeof int_fields / sizeof *int_fields; i++)
        if (int_fields[i].attribute == attribute) {
            memcpy(value, (const char *)p + int_fields[i].offset, sizeof *value);
            return cudaSuccess;
        }
    *value = other_attribute(attribute, p);
    return cudaSuccess;
}

static unsigned device_flags = cudaDeviceScheduleAuto;

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
    if (flags & ~(unsigned)cudaDeviceMask) return cudaErrorInvalidValue;
    device_flags = flags;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags) {
    if (!flags) return cudaErrorInvalidValue;
    *flags = device_flags;
    return cudaSuccess;
}

/* Everything is released; only a child of fork and an exiting program stay refused. */
cudaError_t cudaDeviceReset(void) {
    int refused = vgpu_refused;
    if (refused == cudaErrorInitializationError || refused == cudaErrorCudartUnloading) return (cudaError_t)refused;
    vgpu_wait_all();
    pthread_mutex_lock(&vgpu_lock);
    vgpu_streams_reset(vgpu_current());
    pthread_mutex_unlock(&vgpu_lock);
    vgpu_memory_reset();
    vgpu_host_reset();
    vgpu_run_reset();
    vgpu_refused = 0;
    vgpu_cudart_note(cudaSuccess);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    if (!version) return cudaErrorInvalidValue;
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    return cudaDriverGetVersion(version);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    if (!can) return cudaErrorInvalidValue;
    if (device || peer) return cudaErrorInvalidDevice;
    *can = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device) {
    if (!id || bytes < 1) return cudaErrorInvalidValue;
    if (device) return cudaErrorInvalidDevice;
    return snprintf(id, (size_t)bytes, "0000:00:00.0") < bytes ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
    if (!device || !id) return cudaErrorInvalidValue;
    if (strcmp(id, "0000:00:00.0") && strcmp(id, "00:00.0")) return cudaErrorInvalidDevice;
    *device = 0;
    return cudaSuccess;
}

static size_t limits[] = {
    [cudaLimitStackSize] = 1024,
    [cudaLimitPrintfFifoSize] = 1 << 20,
    [cudaLimitMallocHeapSize] = 8 << 20,
    [cudaLimitDevRuntimeSyncDepth] = 2,
    [cudaLimitDevRuntimePendingLaunchCount] = 2048,
    [cudaLimitMaxL2FetchGranularity] = 64,
    [cudaLimitPersistingL2CacheSize] = 0,
};

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    if (!value) return cudaErrorInvalidValue;
    if ((unsigned)limit >= sizeof limits / sizeof *limits) return cudaErrorUnsupportedLimit;
    *value = limits[limit];
    return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    if ((unsigned)limit >= sizeof limits / sizeof *limits) return cudaErrorUnsupportedLimit;
    limits[limit] = value;
    return cudaSuccess;
}

cudaError_t cudaProfilerStart(void) {
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void) {
    return cudaSuccess;
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind) {
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

/* There is no driver below this runtime. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *status) {
    (void)version, (void)flags;
    if (!symbol || !function) return cudaErrorInvalidValue;
    *function = NULL;
    if (status) *status = cudaDriverEntryPointSymbolNotFound;
    return status ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(symbol, function, VERSION, flags, status);
}
