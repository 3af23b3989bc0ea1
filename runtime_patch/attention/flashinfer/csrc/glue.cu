// What surrounds FlashInfer's attention: rotated query rows before it, the merge behind it.
// Both take CPU tensors as well, which the tests use to run the arithmetic on the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "merge.cuh"
#include "rotation.cuh"
#include "tvm_ffi_utils.h"

namespace {

constexpr int kLanes = 32;  // one warp per row and head
constexpr int kHeadsPerBlock = 4;

template <typename T>
struct Rotation {
  const T* q;
  T* rotated;
  const float *cos, *sin;
  const int32_t *row, *table;
  int64_t stride_row, stride_head;
  int heads, dim, half;
  bool neox;

  __host__ __device__ void operator()(int x, int head, int lane, int lanes) const {
    const int64_t angle = static_cast<int64_t>(table[x]) * half;
    hogwild::rotate_head(q + row[x] * stride_row + head * stride_head,
                         rotated + (static_cast<int64_t>(x) * heads + head) * dim, cos + angle,
                         sin + angle, dim, half, neox, lane, lanes);
  }
};

template <typename T>
struct Merging {
  const T* partial;
  const float* lse;
  const int32_t *order, *start;
  T* out;
  int heads, dim;

  __host__ __device__ void operator()(int row, int head, int lane, int lanes) const {
    hogwild::merge_head(partial, lse, order, start[row], start[row + 1],
                        out + (static_cast<int64_t>(row) * heads + head) * dim, head, heads, dim,
                        lane, lanes);
  }
};

template <typename Task>
__global__ void on_device(Task task, int heads) {
  const int head = blockIdx.y * kHeadsPerBlock + threadIdx.y;
  if (head < heads) task(blockIdx.x, head, threadIdx.x, kLanes);
}

template <typename Task>
void run(const Task& task, int64_t rows, int heads, DLDevice device) {
  if (device.device_type == kDLCPU) {
    for (int row = 0; row < rows; ++row) {
      for (int head = 0; head < heads; ++head) task(row, head, 0, 1);
    }
    return;
  }
  ffi::CUDADeviceGuard guard(device.device_id);
  const dim3 grid(rows, (heads + kHeadsPerBlock - 1) / kHeadsPerBlock);
  on_device<<<grid, dim3(kLanes, kHeadsPerBlock), 0, get_stream(device)>>>(task, heads);
  const cudaError_t status = cudaGetLastError();
  TVM_FFI_ICHECK(status == cudaSuccess) << cudaGetErrorString(status);
}

template <typename T>
const T* data(const TensorView& tensor) {
  return static_cast<const T*>(tensor.data_ptr());
}

}  // namespace

// rotated [X, H, D] = q[row], q [T, H, D], turned by the angles of table's rows of
// cos, sin [U, rotary_dim / 2].
void rotate_rows(TensorView q, TensorView row, TensorView table, TensorView cos, TensorView sin,
                 TensorView rotated, bool neox) {
  CHECK_SAME_DTYPE(q, rotated);
  CHECK_CONTIGUOUS(rotated);
  TVM_FFI_ICHECK_EQ(q.stride(2), 1);
  for (const TensorView& index : {row, table}) {
    CHECK_INPUT_TYPE(index, dl_int32);
    TVM_FFI_ICHECK_EQ(index.size(0), rotated.size(0));
  }
  for (const TensorView& values : {cos, sin}) {
    CHECK_INPUT_TYPE(values, dl_float32);
    CHECK_CONTIGUOUS(values);
  }
  DISPATCH_DLPACK_DTYPE_TO_CTYPE_FP32_FP16(q.dtype(), T, [&] {
    const Rotation<T> task{data<T>(q),
                           static_cast<T*>(rotated.data_ptr()),
                           data<float>(cos),
                           data<float>(sin),
                           data<int32_t>(row),
                           data<int32_t>(table),
                           q.stride(0),
                           q.stride(1),
                           static_cast<int>(q.size(1)),
                           static_cast<int>(q.size(2)),
                           static_cast<int>(cos.size(1)),
                           neox};
    run(task, rotated.size(0), task.heads, q.device());
    return true;
  });
}

// out [T, H, D]: row t from the partial results order[start[t] .. start[t + 1]) of
// partial [X, H, D] with base-2 lse [X, H].
void merge_rows(TensorView partial, TensorView lse, TensorView order, TensorView start,
                TensorView out) {
  CHECK_SAME_DTYPE(partial, out);
  CHECK_INPUT_TYPE(lse, dl_float32);
  CHECK_INPUT_TYPE(order, dl_int32);
  CHECK_INPUT_TYPE(start, dl_int32);
  for (const TensorView& tensor : {partial, lse, out}) CHECK_CONTIGUOUS(tensor);
  TVM_FFI_ICHECK_EQ(start.size(0), out.size(0) + 1);
  DISPATCH_DLPACK_DTYPE_TO_CTYPE_FP32_FP16(partial.dtype(), T, [&] {
    const Merging<T> task{data<T>(partial),
                          data<float>(lse),
                          data<int32_t>(order),
                          data<int32_t>(start),
                          static_cast<T*>(out.data_ptr()),
                          static_cast<int>(out.size(1)),
                          static_cast<int>(out.size(2))};
    run(task, out.size(0), task.heads, out.device());
    return true;
  });
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rotate_rows, rotate_rows);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(merge_rows, merge_rows);
