// What one layer hands over: tensors, the plan, its schedule, rotations, memory for partials.
#pragma once

#include "element.h"
#include "schedule.h"

namespace hogwild {

// A tensor [rows or slots, heads, dim] whose last dimension is contiguous.
struct Tensor {
  void* data;
  int64_t row_stride;
  int64_t head_stride;

  int64_t at(int64_t row, int64_t head) const { return row * row_stride + head * head_stride; }
};

// Everything one layer hands over. Mirrored by cpp.py, which has checked it all.
struct Call {
  const Plan* plan;
  const Schedule* schedule;
  Tensor q, k, v, out;
  Type q_type, kv_type;
  int64_t heads, kv_heads, dim, value_dim;
  // cos and sin [., rotary / 2]; read r turns by row turn[r] of them.
  const float* cos;
  const float* sin;
  const int64_t* turn;
  int64_t rotary;
  int64_t neox;  // 0: pairs of neighbours, 1: pairs of halves
  double scale;
  int64_t threads;
  // [partials, heads, value_dim] and [partials, heads, 2]: output, maximum and sum of weights.
  float* partial_out;
  float* partial_weight;

  void read_query(int64_t row, int64_t head, float* to) const {
    with_type(q_type, [&](auto element) {
      const auto* from = static_cast<const decltype(element)*>(q.data) + q.at(row, head);
      for (int64_t d = 0; d < dim; ++d) to[d] = to_float(from[d]);
    });
  }

  // The output is in the query's type.
  void write_output(int64_t row, int64_t head, const float* sums, float total) const {
    const float share = 1.0f / total;
    with_type(q_type, [&](auto element) {
      auto* to = static_cast<decltype(element)*>(out.data) + out.at(row, head);
      for (int64_t d = 0; d < value_dim; ++d) from_float(sums[d] * share, to + d);
    });
  }
};

}  // namespace hogwild
