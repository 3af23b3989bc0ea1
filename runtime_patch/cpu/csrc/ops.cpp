// The operators one by one, called through ctypes by ops.py. No torch headers: this compiles
// in seconds and does not depend on the torch version.

#include "decoder.h"

namespace hogwild {
namespace {

// work(row) for all rows; in parallel where there is enough to do for that.
template <class Work>
void for_rows(int64_t rows, int64_t size, int64_t threads, const Work& work) {
  constexpr int64_t kAlone = 1 << 15;  // elements
  const int64_t part = std::max<int64_t>(1, kAlone / 4 / size);
  Crew::gather(rows * size <= kAlone ? 1 : threads, [&](Crew& crew) {
    crew.run((rows + part - 1) / part, [&](int64_t index) {
      for (int64_t row = index * part; row < std::min(rows, (index + 1) * part); ++row) work(row);
    });
  });
}

bool in_table(const int64_t* positions, int64_t rows, int64_t table_rows) {
  return std::all_of(positions, positions + rows,
                     [=](int64_t at) { return 0 <= at && at < table_rows; });
}

}  // namespace
}  // namespace hogwild

#define EXPORT extern "C" __attribute__((visibility("default")))

// Mirrored by ops.py, which has checked the arguments. Strides are in elements; the last
// dimension is contiguous, and results are contiguous.

EXPORT void hogwild_linear(int64_t type, int64_t threads, const void* x, int64_t x_stride,
                           int64_t rows, const void* weight, const void* bias, int64_t outputs,
                           int64_t depth, void* out) {
  using namespace hogwild;
  with_type(Type(type), [&](auto element) {
    using T = decltype(element);
    const Linear<T> layer{static_cast<const T*>(weight), static_cast<const T*>(bias), outputs,
                          depth};
    PackedRows<T> packed(rows, depth);
    for (int64_t row = 0; row < rows; ++row) {
      packed.set(row, static_cast<const T*>(x) + row * x_stride);
    }
    Crew::gather(threads, [&](Crew& crew) {
      linear(crew, layer, packed, static_cast<T*>(out), outputs);
    });
  });
}

EXPORT void hogwild_rms_norm(int64_t type, int64_t threads, const void* x, int64_t x_stride,
                             const void* residual, int64_t rows, int64_t size, int64_t weight_type,
                             const void* weight, double epsilon, void* out, void* residual_out) {
  using namespace hogwild;
  with_type(Type(type), [&](auto element) {
    using T = decltype(element);
    const T* from = static_cast<const T*>(x);
    const T* added = static_cast<const T*>(residual);
    T *to = static_cast<T*>(out), *sum = static_cast<T*>(residual_out);
    with_type(Type(weight_type), [&](auto weight_element) {
      const auto* scales = static_cast<const decltype(weight_element)*>(weight);
      for_rows(rows, size, threads, [&](int64_t row) {
        rms_norm(from + row * x_stride, added ? added + row * size : nullptr, scales, size,
                 float(epsilon), to + row * size, sum ? sum + row * size : nullptr);
      });
    });
  });
}

EXPORT void hogwild_silu_and_mul(int64_t type, int64_t threads, const void* x, int64_t rows,
                                 int64_t size, void* out) {
  using namespace hogwild;
  with_type(Type(type), [&](auto element) {
    using T = decltype(element);
    const T* gate = static_cast<const T*>(x);
    for_rows(rows, size, threads, [&](int64_t row) {
      const T* from = gate + row * 2 * size;
      silu_and_mul(from, from + size, size, static_cast<T*>(out) + row * size);
    });
  });
}

// Turns q and k in place. table: [positions, 2 * half], cos in front of sin. Does nothing and
// returns 0 if a position is not in the table.
EXPORT int64_t hogwild_rotate(int64_t type, int64_t threads, const int64_t* positions,
                              int64_t rows, const float* table, int64_t table_rows, int64_t half,
                              int64_t neox, int64_t dim, void* q, int64_t q_stride,
                              int64_t q_heads, void* k, int64_t k_stride, int64_t k_heads) {
  using namespace hogwild;
  if (!in_table(positions, rows, table_rows)) return 0;
  with_type(Type(type), [&](auto element) {
    using T = decltype(element);
    for_rows(rows, (q_heads + k_heads) * dim, threads, [&](int64_t row) {
      const float *cos = table + positions[row] * 2 * half, *sin = cos + half;
      rotate(static_cast<T*>(q) + row * q_stride, q_heads, dim, cos, sin, half, neox);
      rotate(static_cast<T*>(k) + row * k_stride, k_heads, dim, cos, sin, half, neox);
    });
  });
  return 1;
}

// Returns 0, and does nothing, if a position is not in the table.
EXPORT int64_t hogwild_decode(const hogwild::Decoder* model, const hogwild::Step* step) {
  using namespace hogwild;
  if (!in_table(step->positions, step->rows, model->table_rows)) return 0;
  with_type(model->type, [&](auto element) {
    Crew::gather(step->threads, [&](Crew& crew) {
      DecoderRun<decltype(element)>(*model, *step, crew).run();
    });
  });
  return 1;
}
