// Merging the partial results of a query row by their log-sum-exps, for the device and, in
// the tests, for the host.
#pragma once

#include <cmath>
#include <cstdint>

namespace hogwild {

// Head `head` of a row whose partial results are order[begin .. end), by `lanes` threads of
// which this is number `lane`. partial [X, heads, dim]; lse [X, heads], base 2, -inf where
// a partial saw no key. At least one partial of every row has seen one.
template <typename T>
__host__ __device__ inline void merge_head(const T* partial, const float* lse,
                                           const int32_t* order, int begin, int end, T* out,
                                           int head, int heads, int dim, int lane, int lanes) {
  float highest = -INFINITY;
  for (int i = begin; i < end; ++i) {
    highest = fmaxf(highest, lse[static_cast<int64_t>(order[i]) * heads + head]);
  }
  float total = 0.f;
  for (int i = begin; i < end; ++i) {
    total += exp2f(lse[static_cast<int64_t>(order[i]) * heads + head] - highest);
  }
  for (int d = lane; d < dim; d += lanes) {
    float sum = 0.f;
    for (int i = begin; i < end; ++i) {
      const int64_t at = static_cast<int64_t>(order[i]) * heads + head;
      sum += exp2f(lse[at] - highest) * static_cast<float>(partial[at * dim + d]);
    }
    out[d] = T(sum / total);
  }
}

}  // namespace hogwild
