/* libcuda.so.1 as a script says: a GPU without kernels, which counts what is held.
 * The file that NVIDIA_CUDA_SCRIPT names is read at cuInit. Its lines:
 *   memory BYTES          that can be allocated at once (no line: no limit)
 *   fail CALL CODE        each time
 *   uncapturable          what is captured cannot become a graph
 * The file that NVIDIA_CUDA_COUNTS names says, after every change: what is held now, and how many there have been. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, NOT_FOUND = 500, INVALIDATED = 901, LINES = 32 };
enum { CONTEXTS, STREAMS, BUFFERS, GRAPHS, EXECS, KINDS };
static const char *names[KINDS] = {"contexts", "streams", "buffers", "graphs", "execs"};

typedef struct { int capturing; long work; } Stream;  /* the stand-in for an engine looks at the first */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char fails[LINES][64];
static int codes[LINES], failing, uncapturable, ready;
static long held[KINDS], made[KINDS];
static size_t room, used;
static __thread int current;

static void count(int kind, int by) {
    const char *path = getenv("NVIDIA_CUDA_COUNTS");
    pthread_mutex_lock(&lock);
    held[kind] += by;
    if (by > 0) made[kind] += by;
    FILE *file = path ? fopen(path, "w") : NULL;
    for (int i = 0; file && i < KINDS; i++) fprintf(file, "%s %ld %ld\n", names[i], held[i], made[i]);
    if (file) fclose(file);
    pthread_mutex_unlock(&lock);
}

static int begin(const char *call) {
    for (int i = 0; i < failing; i++) if (!strcmp(fails[i], call)) return codes[i];
    return ready ? OK : NOT_INITIALIZED;
}

#define BEGIN(call) do { int code = begin(call); if (code) return code; } while (0)
#define IN_CONTEXT(call) do { BEGIN(call); if (!current) return 201; } while (0)

int cuInit(unsigned flags) {
    const char *path = getenv("NVIDIA_CUDA_SCRIPT");
    FILE *script = path ? fopen(path, "r") : NULL;
    char line[128];
    (void)flags;
    ready = 1;
    while (script && fgets(line, sizeof line, script)) {
        if (!strncmp(line, "uncapturable", 12)) uncapturable = 1;
        sscanf(line, "memory %zu", &room);
        if (failing < LINES && sscanf(line, "fail %63s %d", fails[failing], &codes[failing]) == 2) failing++;
    }
    if (script) fclose(script);
    return begin("cuInit");
}

int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
int cuDeviceGet(int *device, int ordinal) { BEGIN("cuDeviceGet"); *device = ordinal; return OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    BEGIN("cuDevicePrimaryCtxRetain");
    *context = &held;
    count(CONTEXTS, 1);
    return OK;
}
int cuDevicePrimaryCtxRelease(int device) { (void)device; count(CONTEXTS, -1); return begin("cuDevicePrimaryCtxRelease"); }
int cuCtxSetCurrent(void *context) { BEGIN("cuCtxSetCurrent"); current = context == &held; return OK; }

int cuStreamCreate(Stream **stream, unsigned flags) {
    (void)flags;
    IN_CONTEXT("cuStreamCreate");
    *stream = calloc(1, sizeof **stream);
    count(STREAMS, 1);
    return OK;
}
int cuStreamDestroy(Stream *stream) { free(stream); count(STREAMS, -1); return begin("cuStreamDestroy"); }
int cuStreamSynchronize(Stream *stream) {
    IN_CONTEXT("cuStreamSynchronize");
    usleep(200);  /* as if something ran */
    return stream->capturing ? 900 : OK;
}
int cuStreamBeginCapture(Stream *stream, int mode) {
    (void)mode;
    IN_CONTEXT("cuStreamBeginCapture");
    stream->capturing = 1;
    return OK;
}
int cuStreamEndCapture(Stream *stream, void **graph) {
    IN_CONTEXT("cuStreamEndCapture");
    stream->capturing = 0;
    *graph = NULL;
    if (uncapturable) return INVALIDATED;
    *graph = malloc(1);
    count(GRAPHS, 1);
    return OK;
}
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    (void)graph; (void)flags;
    IN_CONTEXT("cuGraphInstantiateWithFlags");
    *exec = malloc(1);
    count(EXECS, 1);
    return OK;
}
int cuGraphDestroy(void *graph) { free(graph); count(GRAPHS, -1); return OK; }
int cuGraphExecDestroy(void *exec) { free(exec); count(EXECS, -1); return OK; }
int cuGraphLaunch(void *exec, Stream *stream) {
    (void)exec;
    IN_CONTEXT("cuGraphLaunch");
    stream->work++;
    return OK;
}

/* An address is that of real memory, which whoever stands in for a kernel may read. */
int cuMemAlloc(uint64_t *address, size_t size) {
    IN_CONTEXT("cuMemAlloc");
    if (!size) return INVALID;
    pthread_mutex_lock(&lock);
    int full = room && used + size > room;
    if (!full) used += size;
    pthread_mutex_unlock(&lock);
    if (full) return NO_MEMORY;
    size_t *block = calloc(1, size + 64);
    *block = size;
    *address = (uint64_t)(uintptr_t)block + 64;
    count(BUFFERS, 1);
    return OK;
}
int cuMemFree(uint64_t address) {
    size_t *block = (size_t *)(uintptr_t)(address - 64);
    pthread_mutex_lock(&lock);
    used -= *block;
    pthread_mutex_unlock(&lock);
    free(block);
    count(BUFFERS, -1);
    return begin("cuMemFree");
}
int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t size, Stream *stream) {
    IN_CONTEXT("cuMemsetD8Async");
    stream->work++;
    memset((void *)(uintptr_t)address, byte, size);
    return OK;
}
int cuMemcpyDtoDAsync(uint64_t to, uint64_t from, size_t size, Stream *stream) {
    IN_CONTEXT("cuMemcpyDtoDAsync");
    stream->work++;
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return OK;
}

#define KNOWN(name) {#name, (void *)name}
static const struct { const char *name; void *is; } known[] = {
    KNOWN(cuInit), KNOWN(cuDriverGetVersion), KNOWN(cuDeviceGet), KNOWN(cuDevicePrimaryCtxRetain),
    KNOWN(cuDevicePrimaryCtxRelease), KNOWN(cuCtxSetCurrent), KNOWN(cuStreamCreate), KNOWN(cuStreamDestroy),
    KNOWN(cuStreamSynchronize), KNOWN(cuStreamBeginCapture), KNOWN(cuStreamEndCapture), KNOWN(cuGraphInstantiateWithFlags),
    KNOWN(cuGraphDestroy), KNOWN(cuGraphExecDestroy), KNOWN(cuGraphLaunch), KNOWN(cuMemAlloc), KNOWN(cuMemFree),
    KNOWN(cuMemsetD8Async), KNOWN(cuMemcpyDtoDAsync),
};

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *how) {
    (void)version; (void)flags;
    *found = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) if (!strcmp(name, known[i].name)) *found = known[i].is;
    if (how) *how = *found ? 0 : 1;
    return *found ? OK : NOT_FOUND;
}
int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
