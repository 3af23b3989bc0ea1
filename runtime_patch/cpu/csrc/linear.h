// out = x . weight' + bias for a few rows of x, where reading the weight is what takes time.
//
// The weight stays as the model has it, [outputs, depth] with the depth contiguous, so wide
// inputs can go to a library with the same memory, and a weight update needs no repacking.
// A lane sums over the depth, and the lanes of W sums are added up together at the end. Each
// element of the result is computed in the same order of additions whatever the number of
// rows, so that a row's result does not depend on the batch it is in.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "crew.h"
#include "dot.h"
#include "element_store.h"

namespace hogwild {

template <class T>
using DotOf =
#if defined(__AVX512BF16__)
    std::conditional_t<std::is_same_v<T, BFloat16>, PairDot, FloatDot>;
#else
    FloatDot;
#endif

#if defined(__AVX512F__)
constexpr int kGroup = 8;  // rows of x that are multiplied in one go, of 32 registers
#else
constexpr int kGroup = 4;  // of 16 registers
#endif

constexpr int64_t kAhead = 4096;       // bytes by which the weight is prefetched
constexpr int64_t kPartBytes = 1 << 18;  // of weight in one piece of work

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Lanes of a row of x, whole registers.
template <class T>
constexpr int64_t row_lanes(int64_t depth) {
  constexpr int64_t register_depth = W * DotOf<T>::step;
  return divide_up(depth, register_depth) * W;
}

template <class T>
struct Linear {
  const T* weight;
  const T* bias;  // may be null
  int64_t outputs;
  int64_t depth;
};

// Rows of x as lanes, zeros behind the depth.
//
// One row after the other: with the rows' registers interleaved in the order of their use the
// weight streams at half the speed, presumably because the processor prefetches x instead.
template <class T>
class PackedRows {
 public:
  PackedRows(int64_t rows, int64_t depth)
      : rows_(rows), depth_(depth), registers_(row_lanes<T>(depth) / W), data_(rows * registers_) {}

  int64_t rows() const { return rows_; }
  int64_t depth() const { return depth_; }

  const uint32_t* row(int64_t row) const { return data_[row * registers_].lanes; }

  void set(int64_t row, const T* x) {
    constexpr int64_t step = W * DotOf<T>::step;
    Register* to = data_.data() + row * registers_;
    for (int64_t at = 0; at < depth_; at += step, ++to) {
      T padded[step] = {};
      const T* from = x + at;
      if (at + step > depth_) {
        std::memcpy(padded, from, (depth_ - at) * sizeof(T));
        from = padded;
      }
      store(to->lanes, DotOf<T>::load_keys(from));
    }
  }

 private:
  // Aligned: one that lies across two cache lines takes twice as long to read.
  struct alignas(kBytes) Register {
    uint32_t lanes[W];
  };

  int64_t rows_, depth_, registers_;
  std::vector<Register> data_;
};

// Lane i < count of the result is the sum of the lanes of x[i]; count is a power of 2. The
// order of additions in each sum is the same for every count.
template <int count>
INLINE Floats sum_each(Floats (&x)[count]) {
  if constexpr (count == 1) {
    return x[0];
  } else {
    Floats y[count / 2];
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i) {
      const Lanes a = as_lanes(x[i]), b = as_lanes(x[i + count / 2]);
      y[i] = as_floats(zip_low(a, b, kLane)) + as_floats(zip_high(a, b, kLane));
    }
    return sum_each<count / 2>(y);
  }
}

template <int count, int by = W / 2>
INLINE Floats fold(Floats x) {
  if constexpr (by < count) return x;
  else return fold<count, by / 2>(x + turn<by>(x, kLane));
}

constexpr int round_up_to_power(int x) { return x <= 1 ? 1 : 2 * round_up_to_power((x + 1) / 2); }

// `outputs` rows of the weight times `rows` rows of x. Lane output * rows + row of the result.
//
// Two registers of sums for each: the latency of an addition is longer than the time in which a
// register of the weight arrives. What lies ahead in the weight is prefetched from its first
// byte to its last, also where two outputs are computed side by side so that x is loaded less
// often: the processor's own prefetcher then sees one stream.
template <class T, int rows, int outputs>
INLINE Floats multiply_block(const uint32_t* x, const T* weight, int64_t depth) {
  using Dot = DotOf<T>;
  constexpr int64_t step = W * Dot::step;
  constexpr int count = round_up_to_power(rows * outputs);
  const int64_t lanes = row_lanes<T>(depth);
  Floats even[count] = {}, odd[count] = {};
  auto add = [&](Floats(&to)[count], const Lanes (&from_weight)[outputs]) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const Lanes from_x = load<Lanes>(x + r * lanes);
#pragma GCC unroll 4
      for (int o = 0; o < outputs; ++o) {
        to[o * rows + r] = Dot::add(to[o * rows + r], from_weight[o], from_x);
      }
    }
    x += W;
  };
  auto load_weight = [&](int64_t at, Lanes (&to)[outputs]) {
#pragma GCC unroll 4
    for (int o = 0; o < outputs; ++o) to[o] = Dot::load_keys(weight + o * depth + at);
  };
  Lanes some[outputs];
  int64_t at = 0;
  for (; at + 2 * step <= depth; at += 2 * step) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < int64_t(2 * outputs * step * sizeof(T)); line += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(weight + outputs * at) + kAhead + line);
    }
    load_weight(at, some);
    add(even, some);
    load_weight(at + step, some);
    add(odd, some);
  }
  if (at + step <= depth) {
    load_weight(at, some);
    add(even, some);
    at += step;
  }
  if (at < depth) {
    for (int o = 0; o < outputs; ++o) {
      T padded[step] = {};
      std::memcpy(padded, weight + o * depth + at, (depth - at) * sizeof(T));
      some[o] = Dot::load_keys(padded);
    }
    add(odd, some);
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows * outputs; ++i) even[i] = even[i] + odd[i];
  return fold<count>(sum_each<count>(even));
}

template <class T, int rows, int outputs>
INLINE void multiply_outputs(const Linear<T>& layer, const uint32_t* x, int64_t at, T* out,
                             int64_t out_stride) {
  Floats total = multiply_block<T, rows, outputs>(x, layer.weight + at * layer.depth, layer.depth);
  if (layer.bias) {
    float bias[W] = {};
    for (int o = 0; o < outputs; ++o) {
      for (int r = 0; r < rows; ++r) bias[o * rows + r] = to_float(layer.bias[at + o]);
    }
    total = total + load<Floats>(bias);
  }
  // Out of the register, not by way of memory: there the elements would wait for the vector
  // to reach the cache behind the stores before it, and the weight would not be read.
  const auto rounded = round_to<T>(total);
#pragma GCC unroll 8
  for (int o = 0; o < outputs; ++o) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) store(out + r * out_stride + at + o, rounded[o * rows + r]);
  }
}

// Outputs [first, last) of `rows` rows of x.
template <class T, int rows>
void multiply_rows(const Linear<T>& layer, const uint32_t* x, int64_t first, int64_t last, T* out,
                   int64_t out_stride) {
  constexpr int outputs = rows == kGroup / 2 || rows == kGroup / 2 - 1 ? 2 : 1;
  int64_t at = first;
  for (; at + outputs <= last; at += outputs) {
    multiply_outputs<T, rows, outputs>(layer, x, at, out, out_stride);
  }
  for (; at < last; ++at) multiply_outputs<T, rows, 1>(layer, x, at, out, out_stride);
}

template <class T, int... count>
void multiply(const Linear<T>& layer, const PackedRows<T>& x, int64_t first, int64_t last, T* out,
              int64_t out_stride, std::integer_sequence<int, count...>) {
  using Group = void (*)(const Linear<T>&, const uint32_t*, int64_t, int64_t, T*, int64_t);
  static constexpr Group groups[] = {multiply_rows<T, count + 1>...};
  const int64_t columns = W / std::min<int64_t>(x.rows(), kGroup);
  for (int64_t at = first; at < last; at += columns) {
    for (int64_t row = 0; row < x.rows(); row += kGroup) {
      groups[std::min<int64_t>(kGroup, x.rows() - row) - 1](layer, x.row(row), at,
                                                            std::min(last, at + columns),
                                                            out + row * out_stride, out_stride);
    }
  }
}

template <class T>
void linear(Crew& crew, const Linear<T>& layer, const PackedRows<T>& x, T* out,
            int64_t out_stride) {
  // As many parts for each thread, each long enough to be read in a stream and with whole cache
  // lines of the result, which two threads would otherwise take from each other.
  const int64_t bytes = layer.outputs * layer.depth * int64_t(sizeof(T));
  const int64_t parts = crew.threads() * divide_up(bytes, crew.threads() * kPartBytes);
  constexpr int64_t line = 64 / sizeof(T);
  const int64_t part = divide_up(divide_up(layer.outputs, parts), line) * line;
  crew.run(divide_up(layer.outputs, part), [&](int64_t index) {
    multiply(layer, x, index * part, std::min(layer.outputs, (index + 1) * part), out, out_stride,
             std::make_integer_sequence<int, kGroup>{});
  });
}

}  // namespace hogwild
