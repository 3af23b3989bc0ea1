// The further rotation of a stored query (docs/architecture.md): the arithmetic, for the
// device and, in the tests, for the host.
#pragma once

#include <cstdint>

namespace hogwild {

struct Pair {
  float first, second;
};

// Cosine and sine come from a table made in float64: the modules are built with
// -use_fast_math, whose sinf and cosf are wrong at the angles of long contexts.
__host__ __device__ inline Pair turn(Pair x, float cos, float sin) {
  return {x.first * cos - x.second * sin, x.second * cos + x.first * sin};
}

// Dimensions of pair number i: halves of the rotary part (NeoX), or neighbours.
__host__ __device__ inline int first_of(int i, int /*half*/, bool neox) { return neox ? i : 2 * i; }
__host__ __device__ inline int second_of(int i, int half, bool neox) {
  return neox ? i + half : 2 * i + 1;
}

// One head of one query, by `lanes` threads of which this is number `lane`. Dimensions
// behind the rotary part are copied. source and target must not overlap.
template <typename T>
__host__ __device__ inline void rotate_head(const T* source, T* target, const float* cos,
                                            const float* sin, int dim, int half, bool neox,
                                            int lane, int lanes) {
  for (int i = lane; i < half; i += lanes) {
    const int a = first_of(i, half, neox), b = second_of(i, half, neox);
    const Pair turned =
        turn({static_cast<float>(source[a]), static_cast<float>(source[b])}, cos[i], sin[i]);
    target[a] = T(turned.first);
    target[b] = T(turned.second);
  }
  for (int d = 2 * half + lane; d < dim; d += lanes) target[d] = source[d];
}

}  // namespace hogwild
