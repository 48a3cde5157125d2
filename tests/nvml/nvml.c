/* libnvidia-ml.so.1 as a script says: every call reads the file that NVIDIA_ML_SCRIPT names, so that it may change
 * at any time. Its lines:
 *   driver TEXT | cuda NUMBER | fail CALL_OR_UUID_OR_all CODE | hang CALL
 *   gpu UUID MAJOR MINOR BYTES USED PERCENT MIG NAME…      (a figure of -1: not supported)
 *   mig UUID PARENT NUMBER BYTES USED NAME…
 *   process UUID PID BYTES PERCENT
 * A handle is the UUID; a GPU that the script no longer names is lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, LINES = 256, LENGTH = 512 };

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { unsigned counts[6], slices[2]; unsigned long long memory_mb; } Attributes;
typedef struct { char uuid[96], name[128], parent[96]; long long total, used; int major, minor, percent, mig, number; } Gpu;

static char lines[LINES][LENGTH];
static int count;

static int begin(const char *call, const char *uuid) {
    const char *path = getenv("NVIDIA_ML_SCRIPT");
    FILE *script = path ? fopen(path, "r") : NULL;
    char word[96];
    int code;
    count = 0;
    while (script && count < LINES && fgets(lines[count], LENGTH, script)) {
        lines[count][strcspn(lines[count], "\n")] = 0;
        count++;
    }
    if (script) fclose(script);
    for (int i = 0; i < count; i++) {
        if (sscanf(lines[i], "hang %95s", word) == 1 && !strcmp(word, call)) for (;;) pause();
        if (sscanf(lines[i], "fail %95s %d", word, &code) == 2 &&
            (!strcmp(word, "all") || !strcmp(word, call) || (uuid && !strcmp(word, uuid)))) return code;
    }
    return script ? OK : 9;
}

static int find(const char *uuid, Gpu *out) {
    for (int i = 0; i < count; i++) {
        memset(out, 0, sizeof *out);
        int n = sscanf(lines[i], "gpu %95s %d %d %lld %lld %d %d %127[^\n]", out->uuid, &out->major, &out->minor,
                       &out->total, &out->used, &out->percent, &out->mig, out->name);
        if (n != 8) {
            n = sscanf(lines[i], "mig %95s %95s %d %lld %lld %127[^\n]", out->uuid, out->parent, &out->number, &out->total,
                       &out->used, out->name);
            out->percent = out->mig = -1;
            if (n != 6) continue;
        }
        if (!strcmp(out->uuid, uuid)) return OK;
    }
    return LOST;
}

static int nth(const char *kind, const char *parent, int number, char *uuid) {
    char word[8], of[96];
    int seen = 0, at;
    for (int i = 0; i < count; i++) {
        if (sscanf(lines[i], "%7s %95s %95s %d", word, uuid, of, &at) < 3 || strcmp(word, kind)) continue;
        if (parent ? (!strcmp(of, parent) && at == number) : seen++ == number) return OK;
    }
    return parent ? NOT_FOUND : INVALID;
}

static int text(char *to, unsigned room, const char *from) {
    if (strlen(from) >= room) return TOO_SMALL;
    strcpy(to, from);
    return OK;
}

#define OPEN(call, handle) Gpu gpu; int code = begin(call, handle); \
    if (code == OK) code = find(handle, &gpu); \
    if (code != OK) return code

int nvmlInitWithFlags(unsigned flags) { (void)flags; return begin("init", NULL); }
int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *to, unsigned room) {
    char found[96] = "580.159.04";
    int code = begin("driver", NULL);
    for (int i = 0; i < count; i++) sscanf(lines[i], "driver %95s", found);
    return code ? code : text(to, room, found);
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    int code = begin("cuda", NULL);
    *version = 13000;
    for (int i = 0; i < count; i++) sscanf(lines[i], "cuda %d", version);
    return code;
}

int nvmlDeviceGetCount_v2(unsigned *found) {
    char uuid[96];
    int code = begin("count", NULL);
    for (*found = 0; nth("gpu", NULL, (int)*found, uuid) == OK; ++*found) {}
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, char **handle) {
    char uuid[96];
    int code = begin("handle", NULL);
    if (code == OK) code = nth("gpu", NULL, (int)index, uuid);
    if (code == OK) code = begin("handle", uuid);
    if (code == OK) *handle = strdup(uuid);
    return code;
}

int nvmlDeviceGetUUID(const char *h, char *to, unsigned room) { OPEN("uuid", h); return text(to, room, gpu.uuid); }
int nvmlDeviceGetName(const char *h, char *to, unsigned room) { OPEN("name", h); return text(to, room, gpu.name); }

int nvmlDeviceGetCudaComputeCapability(const char *h, int *major, int *minor) {
    OPEN("capability", h);
    *major = gpu.major;
    *minor = gpu.minor;
    return OK;
}

int nvmlDeviceGetMemoryInfo(const char *h, Memory *to) {
    OPEN("memory", h);
    *to = (Memory){gpu.total, gpu.total - gpu.used, gpu.used};
    return OK;
}

int nvmlDeviceGetUtilizationRates(const char *h, Rates *to) {
    OPEN("utilization", h);
    *to = (Rates){gpu.percent, 0};
    return gpu.percent < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMigMode(const char *h, unsigned *current, unsigned *pending) {
    OPEN("mig", h);
    *current = *pending = gpu.mig;
    return gpu.mig < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMaxMigDeviceCount(const char *h, unsigned *most) { OPEN("most", h); *most = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(const char *h, unsigned index, char **handle) {
    char uuid[96];
    OPEN("instance", h);
    code = nth("mig", h, (int)index, uuid);
    if (code == OK) *handle = strdup(uuid);
    return code;
}

int nvmlDeviceGetAttributes_v2(const char *h, Attributes *to) {
    OPEN("attributes", h);
    memset(to, 0, sizeof *to);
    to->memory_mb = gpu.total >> 20;
    to->slices[0] = to->slices[1] = 1;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const char *h, unsigned *room, Process *to) {
    char uuid[96];
    unsigned found = 0, pid;
    long long used;
    OPEN("processes", h);
    for (int i = 0; i < count; i++) {
        if (sscanf(lines[i], "process %95s %u %lld", uuid, &pid, &used) != 3 || strcmp(uuid, h)) continue;
        if (to && found < *room) to[found] = (Process){pid, used < 0 ? ~0ULL : (unsigned long long)used, 0, 0};
        found++;
    }
    code = found > (to ? *room : 0) ? TOO_SMALL : OK;
    *room = found;
    return code;
}

int nvmlDeviceGetProcessUtilization(const char *h, Sample *to, unsigned *room, unsigned long long since) {
    char uuid[96];
    unsigned found = 0, pid, percent;
    OPEN("process_utilization", h);
    for (int i = 0; i < count; i++) {
        if (sscanf(lines[i], "process %95s %u %*d %u", uuid, &pid, &percent) != 3 || strcmp(uuid, h)) continue;
        if (to && found < *room) to[found] = (Sample){pid, since + 1, percent, 0, 0, 0};
        found++;
    }
    code = found == 0 ? NOT_FOUND : found > (to ? *room : 0) ? TOO_SMALL : OK;
    *room = found;
    return code;
}
