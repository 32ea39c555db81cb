/* A stand-in for libcuda on host memory, for tests of the runner: keeps a log of calls and runs a few "kernels" that
   its test names. It is found only by a path that a test gives. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct { char text[256]; long loads; } Module;
typedef struct { char name[256]; Module *module; } Function;

static FILE *book;
static double now_ms;
static long kept;

static int note(const char *what) {
    const char *path = getenv("STANDIN_CUDA_LOG");
    if (!book && path) book = fopen(path, "a");
    if (book) { fputs(what, book); fputc('\n', book); fflush(book); }
    return 0;
}

/* Children get no environment, so a driver that behaves in another way is built with a macro. */
int cuInit(unsigned flags) {
#ifdef NO_DEVICE
    return 100;
#endif
#ifdef HANGS
    sleep(600);
#endif
#ifdef NEEDS_NETWORK  /* a call that the jail refuses */
    int end = socket(AF_INET, SOCK_STREAM, 0);
    if (end < 0) return 304;
    close(end);
#endif
    return getenv("STANDIN_CUDA_NO_DEVICE") ? 100 : note("cuInit");
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)8; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxSetLimit(int limit, size_t value) { return note(limit == 2 && value == 0 ? "no heap" : "another limit"); }
int cuGetErrorName(int code, const char **text) { *text = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_STANDIN"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "the stand-in says so"; return 0; }

int cuMemAlloc_v2(uint64_t *pointer, size_t size) { *pointer = (uint64_t)(uintptr_t)malloc(size); return *pointer ? 0 : 2; }
int cuMemsetD8_v2(uint64_t pointer, unsigned char byte, size_t size) {
    memset((void *)(uintptr_t)pointer, byte, size);
    return note(size >= 4096 ? "flush" : "fill");
}
int cuMemcpyHtoD_v2(uint64_t pointer, const void *host, size_t size) { memcpy((void *)(uintptr_t)pointer, host, size); return note("write"); }
int cuMemcpyDtoH_v2(void *host, uint64_t pointer, size_t size) { memcpy(host, (void *)(uintptr_t)pointer, size); return note("read"); }

int cuModuleLoadData(void **module, const char *image) {
    if (!strncmp(image, "broken", 6)) return 200;
    Module *made = calloc(1, sizeof *made);
    strncpy(made->text, image, sizeof made->text - 1);
    *module = made;
    return note("load");
}
int cuModuleUnload(void *module) { free(module); return note("unload"); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    Function *made = calloc(1, sizeof *made);
    strncpy(made->name, name, sizeof made->name - 1);
    made->module = module;
    *function = made;
    return strcmp(name, "missing") ? 0 : 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { return note(attribute == 8 ? "shared" : "attribute"); }
int cuFuncGetAttribute(int *value, int attribute, void *function) { *value = attribute == 4 ? 40 : 0; return 0; }

static void *pointer(void **arguments, int number) { return (void *)(uintptr_t)*(uint64_t *)arguments[number]; }

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    Function *f = function;
    char line[512];
    snprintf(line, sizeof line, "launch %s %u %u %u threads %u shared %u", f->name, x, y, z, threads, shared);
    note(line);
    if (!strcmp(f->name, "scale")) {  /* out[i] = in[i] * factor, n elements */
        float *in = pointer(arguments, 0), *out = pointer(arguments, 1), factor = *(float *)arguments[2];
        int n = *(int *)arguments[3];
#ifdef WRONG
        factor += 1;
#endif
        for (int i = 0; i < n; i++) out[i] = in[i] * factor;
    } else if (!strcmp(f->name, "cached")) {  /* right the first time since its module was loaded, then idle */
        float *in = pointer(arguments, 0), *out = pointer(arguments, 1), factor = *(float *)arguments[2];
        int n = *(int *)arguments[3];
        if (f->module->loads++ == 0) for (int i = 0; i < n; i++) out[i] = in[i] * factor;
    } else if (!strcmp(f->name, "counts")) {  /* counts in memory that nobody rewrites, and works every fifth time */
        static int count;
        float *in = pointer(arguments, 0), *out = pointer(arguments, 1), factor = *(float *)arguments[2];
        int n = *(int *)arguments[3];
        if (++count % 5) return 0;
        for (int i = 0; i < n; i++) out[i] = in[i] * factor;
    } else if (!strncmp(f->name, "beyond", 6)) {  /* writes right behind its input or its output */
        float *in = pointer(arguments, 0), *out = pointer(arguments, 1), factor = *(float *)arguments[2];
        int n = *(int *)arguments[3];
        for (int i = 0; i < n; i++) out[i] = in[i] * factor;
        (f->name[6] == 'i' ? in : out)[n] = 1234.5f;
    } else if (!strcmp(f->name, "marks")) {  /* leaves a mark in its input */
        *(float *)pointer(arguments, 0) = 123456.0f;
    } else if (!strcmp(f->name, "recognizes")) {  /* takes no time for the inputs that it had last */
        static float before[64], answer[64];
        float *in = pointer(arguments, 0), *out = pointer(arguments, 1), factor = *(float *)arguments[2];
        int n = *(int *)arguments[3];
        int same = !memcmp(before, in, n * sizeof *in);
        memcpy(before, in, n * sizeof *in);
        for (int i = 0; i < n; i++) out[i] = same ? answer[i] : (answer[i] = in[i] * factor);
        if (same) return 0;
    } else if (!strcmp(f->name, "remembers")) {  /* takes no time for any inputs that it ever had */
        static float before[64][64], answer[64][64];
        static int count;
        float *in = pointer(arguments, 0), *out = pointer(arguments, 1), factor = *(float *)arguments[2];
        int n = *(int *)arguments[3], at = 0;
        while (at < count && memcmp(before[at], in, n * sizeof *in)) at++;
        memcpy(before[at], in, n * sizeof *in);
        for (int i = 0; i < n; i++) out[i] = at < count ? answer[at][i] : (answer[at][i] = in[i] * factor);
        if (at < count) return 0;
        count++;
    } else if (!strcmp(f->name, "crash")) kept = 1;
    now_ms += 0.25;
    return 0;
}
int cuCtxSynchronize(void) { return kept ? 700 : note("wait"); }
int cuEventCreate(void **event, unsigned flags) { *event = calloc(1, sizeof(double)); return 0; }
int cuEventRecord(void *event, void *stream) { *(double *)event = now_ms; return note("event"); }
/* The device is busy with what was queued, unless the variable says for how many questions it is not. */
int cuEventQuery(void *event) {
    static int asked;
    const char *idle = getenv("STANDIN_CUDA_IDLE");
    return idle && asked++ < atoi(idle) ? 0 : 600;
}
int cuEventElapsedTime(float *ms, void *start, void *end) { *ms = (float)(*(double *)end - *(double *)start); return 0; }
