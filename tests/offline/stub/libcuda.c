// A CUDA driver without a GPU, for tests of what the host asks of it. The environment chooses:
//   STUB_GPU   A100, H100, H200 or MIG (a 1g slice of an H100): whose attributes it has
//   STUB_INIT  the error number that cuInit returns (0 if unset)
//   STUB_RUN   if set, a kernel called transpose does transpose 4-byte elements (device memory is the host's)
//   STUB_LOG   the file to which it appends its calls, one JSON object a line
// A module is text instead of machine code, a line a kernel: "name registers static_shared max_threads
// parameter_size ...".
// Layouts and numbers are those of cuda.h 12 and 13, written again here so that no toolkit is needed.

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, NOT_FOUND = 500 };
enum { CLUSTER_DIMENSION = 4 };

typedef struct {
    const char *key, *name;
    int major, sms, clock_khz, memory_clock_khz, bus_bits, l2_bytes, shared_per_sm, optin;
    size_t memory_bytes;
} Gpu;

static const Gpu gpus[] = {
    {"A100", "NVIDIA A100-SXM4-80GB", 8, 108, 1410000, 1593000, 5120, 41943040, 167936, 166912, 85094694912},
    {"H100", "NVIDIA H100 80GB HBM3", 9, 132, 1980000, 2619000, 5120, 52428800, 233472, 232448, 85029158912},
    {"H200", "NVIDIA H200", 9, 132, 1980000, 3201000, 6016, 62914560, 233472, 232448, 150110011392},
    {"MIG", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9, 16, 1980000, 2619000, 640, 6553600, 233472, 232448, 10401873920},
};

typedef struct Kernel {
    char name[64];
    int registers, static_shared, max_threads, dynamic_shared, count, sizes[16];
    struct Kernel *next;  // of the module
} Kernel;

typedef struct {
    int id, pad;
    union {
        int flag;
        unsigned dim[3];
        char whole[64];
    } value;
} Attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    Attribute *attributes;
    unsigned attribute_count;
} Config;

static void record(const char *format, ...) {
    const char *path = getenv("STUB_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    va_list values;
    va_start(values, format);
    vfprintf(log, format, values);
    va_end(values);
    fputc('\n', log);
    fclose(log);
}

static const Gpu *gpu(void) {
    const char *key = getenv("STUB_GPU");
    for (size_t i = 0; key && i < sizeof gpus / sizeof *gpus; i++)
        if (!strcmp(gpus[i].key, key)) return &gpus[i];
    return &gpus[0];
}

int cuInit(unsigned flags) {
    const char *status = getenv("STUB_INIT");
    record("{\"call\": \"init\", \"flags\": %u}", flags);
    return status ? atoi(status) : SUCCESS;
}

int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
int cuDeviceTotalMem(size_t *bytes, int device) { return *bytes = gpu()->memory_bytes, SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)0xc000, SUCCESS; }
int cuDevicePrimaryCtxRelease(int device) { return SUCCESS; }
int cuCtxSetCurrent(void *context) { return SUCCESS; }

int cuDeviceGetName(char *name, int size, int device) {
    snprintf(name, size, "%s", gpu()->name);
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const Gpu *g = gpu();
    switch (attribute) {
        case 1: return *value = 1024, SUCCESS;                   // MAX_THREADS_PER_BLOCK
        case 8: return *value = 49152, SUCCESS;                  // MAX_SHARED_MEMORY_PER_BLOCK
        case 12: return *value = 65536, SUCCESS;                 // MAX_REGISTERS_PER_BLOCK
        case 13: return *value = g->clock_khz, SUCCESS;          // CLOCK_RATE
        case 16: return *value = g->sms, SUCCESS;                // MULTIPROCESSOR_COUNT
        case 36: return *value = g->memory_clock_khz, SUCCESS;   // MEMORY_CLOCK_RATE
        case 37: return *value = g->bus_bits, SUCCESS;           // GLOBAL_MEMORY_BUS_WIDTH
        case 38: return *value = g->l2_bytes, SUCCESS;           // L2_CACHE_SIZE
        case 39: return *value = 2048, SUCCESS;                  // MAX_THREADS_PER_MULTIPROCESSOR
        case 75: return *value = g->major, SUCCESS;              // COMPUTE_CAPABILITY_MAJOR
        case 76: return *value = 0, SUCCESS;                     // COMPUTE_CAPABILITY_MINOR
        case 81: return *value = g->shared_per_sm, SUCCESS;      // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        case 82: return *value = 65536, SUCCESS;                 // MAX_REGISTERS_PER_MULTIPROCESSOR
        case 95: return *value = 1, SUCCESS;                     // COOPERATIVE_LAUNCH
        case 97: return *value = g->optin, SUCCESS;              // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        case 106: return *value = 32, SUCCESS;                   // MAX_BLOCKS_PER_MULTIPROCESSOR
        case 111: return *value = 1024, SUCCESS;                 // RESERVED_SHARED_MEMORY_PER_BLOCK
        default: return INVALID_VALUE;
    }
}

int cuStreamCreate(void **stream, unsigned flags) {
    static uintptr_t last = 0x5000;
    *stream = (void *)(last += 16);
    return SUCCESS;
}

int cuStreamDestroy(void *stream) { return SUCCESS; }

int cuMemAlloc(uint64_t *address, size_t bytes) {
    void *memory = NULL;
    int failed = posix_memalign(&memory, 256, bytes);
    *address = (uintptr_t)memory;
    return failed ? 2 : SUCCESS;
}

int cuMemFree(uint64_t address) {
    free((void *)(uintptr_t)address);
    return SUCCESS;
}

int cuMemsetD8(uint64_t address, unsigned char byte, size_t count) {
    memset((void *)(uintptr_t)address, byte, count);
    return SUCCESS;
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    *address = malloc(bytes);
    return *address ? SUCCESS : 2;
}

int cuMemFreeHost(void *address) { return free(address), SUCCESS; }

int cuMemcpyHtoD(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}

int cuMemcpyHtoDAsync(uint64_t to, const void *from, size_t bytes, void *stream) {
    return cuMemcpyHtoD(to, from, bytes);
}

int cuMemcpyDtoH(void *to, uint64_t from, size_t bytes) {
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

int cuStreamSynchronize(void *stream) { return SUCCESS; }
int cuCtxSynchronize(void) { return SUCCESS; }
int cuCtxPushCurrent(void *context) { return record("{\"call\": \"push\"}"), SUCCESS; }
int cuCtxPopCurrent(void **context) { return record("{\"call\": \"pop\"}"), SUCCESS; }
int cuCtxGetCurrent(void **context) { return *context = (void *)0xd000, SUCCESS; }

int cuEventCreate(void **event, unsigned flags) {
    static uintptr_t last = 0x9000;
    *event = (void *)(last += 16);
    return SUCCESS;
}

int cuEventDestroy(void *event) { return SUCCESS; }

int cuEventRecord(void *event, void *stream) {
    record("{\"call\": \"event\", \"event\": %llu, \"stream\": %llu}", (unsigned long long)(uintptr_t)event,
           (unsigned long long)(uintptr_t)stream);
    return SUCCESS;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    record("{\"call\": \"wait\", \"event\": %llu, \"stream\": %llu}", (unsigned long long)(uintptr_t)event,
           (unsigned long long)(uintptr_t)stream);
    return SUCCESS;
}

// DEVICE_ORDINAL of everything but null is 0.
int cuPointerGetAttribute(int *value, int attribute, uint64_t address) {
    return *value = 0, address && attribute == 9 ? SUCCESS : INVALID_VALUE;
}

int cuGetErrorName(int status, const char **name) { return *name = "CUDA_ERROR_OF_THE_STUB", SUCCESS; }

int cuModuleLoadDataEx(Kernel **module, const char *image, unsigned count, int *options, void **values) {
    Kernel *k = calloc(1, sizeof *k);
    int used = 0, step = 0, size;
    if (sscanf(image, "%63s %d %d %d%n", k->name, &k->registers, &k->static_shared, &k->max_threads, &used) != 4)
        return INVALID_IMAGE;
    for (; k->count < 16 && sscanf(image + used, "%d%n", &size, &step) == 1; used += step) k->sizes[k->count++] = size;
    k->dynamic_shared = 49152 - k->static_shared;
    *module = k;
    const char *line = strchr(image, '\n');
    return line && line[1] ? cuModuleLoadDataEx(&k->next, line + 1, count, options, values) : SUCCESS;
}

int cuModuleLoad(Kernel **module, const char *path) {
    char image[256] = "";
    FILE *file = fopen(path, "r");
    if (!file) return 301;
    size_t read = fread(image, 1, sizeof image - 1, file);
    fclose(file);
    return read ? cuModuleLoadDataEx(module, image, 0, NULL, NULL) : INVALID_IMAGE;
}

int cuModuleUnload(Kernel *module) {
    for (Kernel *next; module; module = next) {
        next = module->next;
        free(module);
    }
    return SUCCESS;
}

int cuModuleGetFunction(Kernel **function, Kernel *module, const char *name) {
    while (module && strcmp(name, module->name)) module = module->next;
    *function = module;
    return module ? SUCCESS : NOT_FOUND;
}

int cuFuncGetAttribute(int *value, int attribute, Kernel *k) {
    switch (attribute) {
        case 0: return *value = k->max_threads, SUCCESS;
        case 1: return *value = k->static_shared, SUCCESS;
        case 3: return *value = 0, SUCCESS;
        case 4: return *value = k->registers, SUCCESS;
        case 8: return *value = k->dynamic_shared, SUCCESS;
        default: return INVALID_VALUE;
    }
}

int cuFuncSetAttribute(Kernel *k, int attribute, int value) {
    record("{\"call\": \"set\", \"attribute\": %d, \"value\": %d}", attribute, value);
    if (attribute != 8 || value + k->static_shared > gpu()->optin) return INVALID_VALUE;
    k->dynamic_shared = value;
    return SUCCESS;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel *k, int threads, size_t dynamic) {
    int by_threads = 2048 / threads, by_shared = gpu()->shared_per_sm / ((int)dynamic + k->static_shared + 1024);
    *blocks = (int)dynamic > k->dynamic_shared ? 0 : by_threads < by_shared ? by_threads : by_shared;
    record("{\"call\": \"occupancy\", \"threads\": %d, \"shared\": %zu, \"blocks\": %d}", threads, dynamic, *blocks);
    return SUCCESS;
}

// C[n][m] = A[m][n]; parameters A, C, M, N, lda, ldc.
static void transpose(void **parameters) {
    const uint32_t *A = *(uint32_t **)parameters[0];
    uint32_t *C = *(uint32_t **)parameters[1];
    int size[4];
    for (int i = 0; i < 4; i++) size[i] = *(int *)parameters[2 + i];
    for (int m = 0; m < size[0]; m++)
        for (int n = 0; n < size[1]; n++) C[n * size[3] + m] = A[m * size[2] + n];
}

int cuLaunchKernelEx(const Config *c, Kernel *k, void **parameters, void **extra) {
    char attributes[512] = "", bytes[4096] = "", *a = attributes, *b = bytes;
    for (unsigned i = 0; i < c->attribute_count && i < 8; i++) {
        const Attribute *x = &c->attributes[i];
        const unsigned *d = x->value.dim;
        const char *comma = i ? ", " : "";
        if (x->id == CLUSTER_DIMENSION) a += sprintf(a, "%s[%d, [%u, %u, %u]]", comma, x->id, d[0], d[1], d[2]);
        else a += sprintf(a, "%s[%d, %d]", comma, x->id, x->value.flag);
    }
    for (int i = 0; i < k->count; i++) {
        b += sprintf(b, i ? ", \"" : "\"");
        for (int j = 0; j < k->sizes[i]; j++) b += sprintf(b, "%02x", ((unsigned char *)parameters[i])[j]);
        b += sprintf(b, "\"");
    }
    record("{\"call\": \"launch\", \"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
           "\"shared\": %u, \"stream\": %llu, \"numAttrs\": %u, \"attributes\": [%s], "
           "\"parameters\": [%s], \"extra\": %llu}",
           k->name, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
           (unsigned long long)(uintptr_t)c->stream, c->attribute_count, attributes, bytes,
           (unsigned long long)(uintptr_t)extra);
    if ((int)c->shared > k->dynamic_shared) return INVALID_VALUE;
    if (getenv("STUB_RUN") && !strcmp(k->name, "transpose")) transpose(parameters);
    return SUCCESS;
}

// Writes a map whose first word is the tensor's address and whose other bytes count up.
int cuTensorMapEncodeTiled(unsigned char *map, int type, unsigned rank, void *global, const uint64_t *shape,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int fill) {
    for (int i = 0; i < 128; i++) map[i] = i;
    memcpy(map, &global, sizeof global);
    if (rank != 2) return INVALID_VALUE;
    record("{\"call\": \"encode\", \"map\": %llu, \"type\": %d, \"global\": %llu, \"shape\": [%llu, %llu], "
           "\"stride\": %llu, \"box\": [%u, %u], \"steps\": [%u, %u], \"modes\": [%d, %d, %d, %d]}",
           (unsigned long long)(uintptr_t)map, type, (unsigned long long)(uintptr_t)global,
           (unsigned long long)shape[0], (unsigned long long)shape[1], (unsigned long long)strides[0], box[0], box[1],
           steps[0], steps[1], interleave, swizzle, promotion, fill);
    return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found);

// The bindings get every function from here; those that are not listed do not exist in this driver.
#define HERE(function) {#function, (void *)function}
static const struct {
    const char *name;
    void *function;
} table[] = {
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
    HERE(cuInit),
    HERE(cuDriverGetVersion),
    HERE(cuDeviceGetCount),
    HERE(cuDeviceGet),
    HERE(cuDeviceGetName),
    HERE(cuDeviceTotalMem),
    HERE(cuDeviceGetAttribute),
    HERE(cuDevicePrimaryCtxRetain),
    HERE(cuDevicePrimaryCtxRelease),
    HERE(cuCtxSetCurrent),
    HERE(cuStreamCreate),
    HERE(cuStreamDestroy),
    HERE(cuMemAlloc),
    HERE(cuMemFree),
    HERE(cuMemsetD8),
    HERE(cuMemHostAlloc),
    HERE(cuMemFreeHost),
    HERE(cuMemcpyHtoD),
    HERE(cuMemcpyHtoDAsync),
    HERE(cuMemcpyDtoH),
    HERE(cuStreamSynchronize),
    HERE(cuCtxSynchronize),
    HERE(cuCtxPushCurrent),
    HERE(cuCtxPopCurrent),
    HERE(cuCtxGetCurrent),
    HERE(cuEventCreate),
    HERE(cuEventDestroy),
    HERE(cuEventRecord),
    HERE(cuStreamWaitEvent),
    HERE(cuPointerGetAttribute),
    HERE(cuGetErrorName),
    HERE(cuModuleLoad),
    HERE(cuModuleLoadDataEx),
    HERE(cuModuleUnload),
    HERE(cuModuleGetFunction),
    HERE(cuFuncGetAttribute),
    HERE(cuFuncSetAttribute),
    HERE(cuOccupancyMaxActiveBlocksPerMultiprocessor),
    HERE(cuLaunchKernelEx),
    HERE(cuTensorMapEncodeTiled),
};

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
    *function = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) *function = table[i].function;
    if (found) *found = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
