/* The device as a whole: its properties and settings. */
#include "vgpu/vgpu_graph.h"
#include "vgpu/vgpu_profile.h"
#include "vgpu/vgpu_run.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 13000, CLOCK_CPU = 2, CLOCK_MODEL = 3 /* ACCT_clock_* of trace/events.def */ };

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
    if (n) *value = (uint64_t)n << shift;
    return n != 0;
}

int vgpu_cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

/* This machine's peaks are measured, also when dry: what it would take at best. */
static void cpu_peaks(struct acct_vgpu_device *d) {
    struct vgpu_peak peak;
    vgpu_peak_get(&peak);
    d->peak_fp32 = peak.fp32;
    d->peak_fp64 = peak.fp64;
    d->peak_tf32 = peak.tf32;
    d->peak_bf16 = peak.bf16;
    d->peak_fp16 = peak.fp16;
    d->peak_fp8 = peak.fp8;
    d->bytes_per_s = peak.bytes_per_s;
    snprintf(d->peak_source, sizeof d->peak_source, "%s", peak.source);
}

/* Of products: fp64's on matrix units where there are some. */
static void profile_peaks(const struct vgpu_profile *p, struct acct_vgpu_device *d) {
    d->peak_fp32 = p->peak[VGPU_FP32];
    d->peak_fp64 = isnan(p->peak[VGPU_FP64_MATRIX]) ? p->peak[VGPU_FP64] : p->peak[VGPU_FP64_MATRIX];
    d->peak_tf32 = p->peak[VGPU_TF32];
    d->peak_bf16 = p->peak[VGPU_BF16];
    d->peak_fp16 = p->peak[VGPU_FP16];
    d->peak_fp8 = p->peak[VGPU_FP8];
    d->bytes_per_s = p->bytes_per_s;
    snprintf(d->peak_source, sizeof d->peak_source, "%s", p->source);
}

int vgpu_device(int ordinal, struct acct_vgpu_device *out) {
    const struct vgpu_profile *p = vgpu_profile();
    struct acct_vgpu_device d = {.clock = p->model ? CLOCK_MODEL : CLOCK_CPU};
    size_t bytes = out->struct_bytes < sizeof d ? out->struct_bytes : sizeof d;
    if (!vgpu_is_device(ordinal)) return -1;
    d.struct_bytes = (uint32_t)bytes;
    snprintf(d.profile, sizeof d.profile, "%s", p->alias);
    if (p->cpu)
        cpu_peaks(&d);
    else
        profile_peaks(p, &d);
    memcpy(out, &d, bytes);
    return 0;
}

static int cpu_khz(void) {
    long khz = 0;
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "re");
    if (f) {
        if (fscanf(f, "%ld", &khz) != 1) khz = 0;
        fclose(f);
    }
    return khz > 0 ? (int)khz : 2000000;
}

static int clock_khz(void) {
    return vgpu_profile()->cpu ? cpu_khz() : vgpu_profile()->clock_khz;
}

static int memory_clock_khz(void) {
    return vgpu_profile()->cpu ? cpu_khz() : vgpu_profile()->memory_clock_khz;
}

static uint64_t l2_bytes(const struct vgpu_profile *profile) {
    long l3 = profile->cpu ? sysconf(_SC_LEVEL3_CACHE_SIZE) : 0;
    return l3 > 0 ? (uint64_t)l3 : profile->l2_bytes;
}

/* The same at each start, different for each device: FNV-1a of the profile's name, then the ordinal. */
static void make_uuid(cudaUUID_t *uuid, const struct vgpu_profile *profile, int ordinal) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = profile->alias; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    memcpy(uuid->bytes, "acctgpu", 7);
    uuid->bytes[7] = (char)ordinal;
    memcpy(uuid->bytes + 8, &hash, sizeof hash);
}

/* Sizes, counts and limits are the profile's; what is the same on all devices, or of no consequence here, is written
 * down. Features that are not implemented are not offered (clusters, persisting L2). */
static void fill_properties(struct cudaDeviceProp *p, int ordinal) {
    const struct vgpu_profile *profile = vgpu_profile();
    const struct acct_sm *sm = &profile->limits;
    *p = (struct cudaDeviceProp){
        .totalGlobalMem = profile->total_bytes,
        .sharedMemPerBlock = ACCT_BLOCK_SHARED_BYTES,
        .sharedMemPerBlockOptin = sm->shared_optin_bytes,
        .reservedSharedMemPerBlock = sm->shared_reserved_bytes,
        .sharedMemPerMultiprocessor = sm->shared_bytes,
        .regsPerBlock = ACCT_BLOCK_REGISTERS,
        .regsPerMultiprocessor = sm->registers,
        .warpSize = 32,
        .memPitch = 2147483647,
        .maxThreadsPerBlock = ACCT_BLOCK_THREADS,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .maxThreadsPerMultiProcessor = sm->threads,
        .maxBlocksPerMultiProcessor = sm->blocks,
        .totalConstMem = 65536,
        .major = (int)profile->sm / 10,
        .minor = (int)profile->sm % 10,
        .textureAlignment = 512,
        .texturePitchAlignment = 32,
        .surfaceAlignment = 512,
        .multiProcessorCount = profile->sm_count,
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
        .cooperativeLaunch = 1,
        .asyncEngineCount = 2,
        .streamPrioritiesSupported = 1,
        .memoryBusWidth = profile->cpu ? 64 : profile->memory_bus_bits,
        .l2CacheSize = (int)l2_bytes(profile),
        .pciBusID = ordinal,
        .globalL1CacheSupported = 1,
        .localL1CacheSupported = 1,
        .memoryPoolsSupported = 1,
        .deviceNumaId = -1,
        .hostNumaId = -1,
    };
    snprintf(p->name, sizeof p->name, "%s", profile->name);
    make_uuid(&p->uuid, profile, ordinal);
}

/* Of a device that is there. */
static const struct cudaDeviceProp *properties(int ordinal) {
    static struct cudaDeviceProp all[VGPU_MAX_DEVICES];
    static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    struct cudaDeviceProp *p = &all[ordinal];
    pthread_mutex_lock(&m);
    if (!p->major) fill_properties(p, ordinal);
    pthread_mutex_unlock(&m);
    return p;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    if (!out) return cudaErrorInvalidValue;
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    *out = *properties(device);
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

static int double_ratio(void) {
    const double *peak = vgpu_profile()->peak;
    if (vgpu_profile()->cpu) return 2;
    return peak[VGPU_FP64] > 0 ? (int)lround(peak[VGPU_FP32] / peak[VGPU_FP64]) : 0;
}

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
        return clock_khz();
    case cudaDevAttrMemoryClockRate:
        return memory_clock_khz();
    case cudaDevAttrGpuOverlap:
        return 1;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
        return double_ratio();
    case cudaDevAttrComputeMode:
        return cudaComputeModeDefault;
    case cudaDevAttrMemSyncDomainCount:
        return 1;
    default:
        return 0; /* a texture size or a feature that is not there */
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    if (!value || (int)attribute < 1 || attribute >= cudaDevAttrMax) return cudaErrorInvalidValue;
    const struct cudaDeviceProp *p = properties(device);
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
    vgpu_graph_memory_reset(vgpu_current());
    vgpu_memory_reset(vgpu_current());
    vgpu_peers_reset(vgpu_current());
    vgpu_host_reset(vgpu_current());
    vgpu_run_reset(vgpu_current());
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

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device) {
    if (!id || bytes < 1) return cudaErrorInvalidValue;
    if (!vgpu_is_device(device)) return cudaErrorInvalidDevice;
    return snprintf(id, (size_t)bytes, "0000:%02x:00.0", (unsigned)device) < bytes ? cudaSuccess
                                                                                   : cudaErrorInvalidValue;
}

/* [domain:]bus:device[.function], hexadecimal. */
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (!device || !id) return cudaErrorInvalidValue;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2) return cudaErrorInvalidValue;
    }
    if (domain || slot || function || bus > VGPU_MAX_DEVICES || !vgpu_is_device((int)bus))
        return cudaErrorInvalidDevice;
    *device = (int)bus;
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
