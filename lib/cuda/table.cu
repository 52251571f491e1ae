/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the module. */
#include "lib/cuda/device.cuh"

static int products(const struct gpu_products *p, void *stream)
{
    gpu_matmul_fn *const families[] = {gpu_block_matmul, gpu_super_matmul, gpu_group_matmul,
                                       gpu_dense_matmul};
    uint32_t x_align = kernel_form_of(p->w.type) == FORM_F32 ? sizeof(float) : 64;
    if (!gpu_matrix_fits(&p->w) || p->n_end > p->w.n || !rows_fit(p->rows) || !rows_fit(p->count) ||
        (uintptr_t)p->x % x_align != 0 || p->x_stride % x_align != 0)
        return GPU_UNSUPPORTED;
    if (p->n_begin >= p->n_end || p->rows == 0 || (p->jobs && p->count == 0))
        return 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        int status = families[i](p, stream);
        if (status != GPU_UNSUPPORTED)
            return status;
    }
    return GPU_UNSUPPORTED;
}

static int matmul(const struct kernel_matrix *w, uint32_t n_begin, uint32_t n_end, const void *x,
                  size_t x_stride, uint32_t rows, float *y, size_t y_stride, void *stream)
{
    gpu_products p = {};
    p.w = *w;
    p.x = x;
    p.y = y;
    p.x_stride = x_stride;
    p.y_stride = y_stride;
    p.n_begin = n_begin;
    p.n_end = n_end;
    p.rows = rows;
    return products(&p, stream);
}

/* ---- memory ---- */

static int select_gpu(int number)
{
    int status = (int)cudaSetDevice(number);
    return status != 0 ? status : (int)cudaFree(NULL); /* makes the context */
}

static int memory(size_t *unused, size_t *total)
{
    return (int)cudaMemGetInfo(unused, total);
}

static const char *text(int status)
{
    return cudaGetErrorString((cudaError_t)status);
}

static int allocate(size_t bytes, void **out)
{
    return (int)cudaMalloc(out, bytes > 0 ? bytes : 1);
}

static int release(void *memory)
{
    return (int)cudaFree(memory);
}

static int upload(void *to, const void *from, size_t bytes, void *stream)
{
    return (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream);
}

static int download(void *to, const void *from, size_t bytes, void *stream)
{
    return (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream);
}

static int clear(void *to, size_t bytes, void *stream)
{
    return (int)cudaMemsetAsync(to, 0, bytes, (cudaStream_t)stream);
}

static int wait_for(void *stream)
{
    return (int)cudaStreamSynchronize((cudaStream_t)stream);
}

/* ---- streams ---- */

static int host_allocate(size_t bytes, void **out)
{
    return (int)cudaMallocHost(out, bytes > 0 ? bytes : 1);
}

static int host_release(void *memory)
{
    return (int)cudaFreeHost(memory);
}

static int stream_create(void **stream)
{
    return (int)cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking);
}

static int stream_destroy(void *stream)
{
    return (int)cudaStreamDestroy((cudaStream_t)stream);
}

static int event_create(void **event)
{
    return (int)cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming);
}

static int event_destroy(void *event)
{
    return (int)cudaEventDestroy((cudaEvent_t)event);
}

static int event_record(void *event, void *stream)
{
    return (int)cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}

static int event_wait(void *event)
{
    return (int)cudaEventSynchronize((cudaEvent_t)event);
}

static bool event_happened(void *event)
{
    bool happened = cudaEventQuery((cudaEvent_t)event) == 0;
    if (!happened)
        (void)cudaGetLastError(); /* a launch would return that it has not */
    return happened;
}

static int stream_wait(void *stream, void *event)
{
    return (int)cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}

/* ---- graphs ---- */

static int capture_begin(void *stream)
{
    return (int)cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal);
}

static int capture_end(void *stream, void **graph)
{
    cudaGraph_t recorded;
    int status = (int)cudaStreamEndCapture((cudaStream_t)stream, &recorded);
    if (status != 0)
        return status;
    status = (int)cudaGraphInstantiate((cudaGraphExec_t *)graph, recorded, 0);
    (void)cudaGraphDestroy(recorded);
    return status;
}

static int graph_launch(void *graph, void *stream)
{
    return (int)cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream);
}

static int graph_destroy(void *graph)
{
    return (int)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

extern "C" __attribute__((visibility("default"))) const struct gpu_kernels *gpu_kernels(void)
{
    static const struct gpu_kernels table = {
        GPU_INTERFACE,
        KERNEL_ARITHMETIC,
        gpu_activation,
        matmul,
        products,
        gpu_finish_rows,
        gpu_add_terms_of_rows,
        gpu_alignment,
        gpu_row_bytes,
        gpu_rearranged,
        gpu_rearrange,
        gpu_rows_to_f32,
        gpu_rms_norm,
        gpu_center,
        gpu_bank_rows,
        gpu_pointwise_rows,
        gpu_rope_heads,
        gpu_kv_store_rows,
        gpu_route_rows,
        gpu_attention_workspace,
        gpu_attention,
        gpu_attention_at,
        gpu_jobs_of_routes,
        gpu_conv_rows,
        gpu_delta_gates_rows,
        gpu_delta_rows,
        gpu_scan_rows,
        select_gpu,
        memory,
        text,
        allocate,
        release,
        upload,
        download,
        clear,
        wait_for,
        host_allocate,
        host_release,
        stream_create,
        stream_destroy,
        event_create,
        event_destroy,
        event_record,
        event_wait,
        event_happened,
        stream_wait,
        capture_begin,
        capture_end,
        graph_launch,
        graph_destroy,
    };
    return &table;
}
