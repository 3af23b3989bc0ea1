// What happens to a row between the linear layers: norm, gated activation, rotation.
//
// All of it is computed in float and rounded to the element type once, at the end.
#pragma once

#include <cmath>

#include "element_store.h"

namespace hogwild {

// out = x / rms(x) * weight. With a residual, x + residual takes the place of x, and is kept,
// rounded, in residual_out; the norm is that of the sum before rounding. out may be x, and
// residual_out the residual.
template <class T, class Weight>
void rms_norm(const T* x, const T* residual, const Weight* weight, int64_t size, float epsilon,
              T* out, T* residual_out) {
  Floats squares = {};
  for_places(size, [&](auto place) {
    Floats value = place.load(x);
    if (residual) value = value + place.load(residual);
    squares = squares + value * value;
  });
  const float scale = 1.0f / std::sqrt(sum(squares) / float(size) + epsilon);
  for_places(size, [&](auto place) {
    Floats value = place.load(x);
    if (residual) {
      value = value + place.load(residual);
      place.store(residual_out, value);
    }
    place.store(out, value * scale * place.load(weight));
  });
}

// out = gate * sigmoid(gate) * up.
template <class T>
void silu_and_mul(const T* gate, const T* up, int64_t size, T* out) {
  constexpr float kLog2E = 1.44269504f;
  for_places(size, [&](auto place) {
    const Floats x = place.load(gate);
    // e^-|x|, which cannot overflow.
    const Floats power = exp2<5>((x > 0 ? -x : x) * kLog2E);
    place.store(out, x * (x > 0 ? spread(1.0f) : power) / (power + 1.0f) * place.load(up));
  });
}

// Turns the first 2 * half elements of each head in place by the angles of one position.
template <class T>
void rotate(T* heads, int64_t count, int64_t dim, const float* cos, const float* sin, int64_t half,
            bool neox) {
  for (T* head = heads; head != heads + count * dim; head += dim) {
    if (neox) {
      for_places(half, [&](auto place) {
        const Floats c = place.load(cos), s = place.load(sin);
        const Floats x = place.load(head), y = place.load(head + half);
        place.store(head, x * c - y * s);
        place.store(head + half, y * c + x * s);
      });
    } else {
      for (int64_t d = 0; d < half; ++d) {
        const float x = to_float(head[2 * d]), y = to_float(head[2 * d + 1]);
        from_float(x * cos[d] - y * sin[d], head + 2 * d);
        from_float(y * cos[d] + x * sin[d], head + 2 * d + 1);
      }
    }
  }
}

}  // namespace hogwild
