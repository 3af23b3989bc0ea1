// W floats to the element types, to the nearest with ties to even, as element.h does one.
#pragma once

#include <type_traits>

#include "element.h"

namespace hogwild {

// A register of W elements, as bits: element i of it is a float or 16 bits.
template <class T>
INLINE auto round_to(Floats x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const Lanes bits = as_lanes(x);
    const Lanes rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return __builtin_convertvector(x == x ? rounded : spread(uint32_t(0x7fc0)), Halves);
  } else {
#if defined(__AVX512F__)
    return (Halves)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__) && defined(__F16C__)
    return (Halves)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
    Halves halves;
    for (int i = 0; i < W; ++i) {
      Float16 half;
      from_float(x[i], &half);
      halves[i] = half.bits;
    }
    return halves;
#endif
  }
}

// A place in rows of elements: W of them from `at` on.
struct Whole {
  int64_t at;

  template <class T>
  INLINE Floats load(const T* row) const { return load_floats(row + at); }

  template <class T>
  INLINE void store(T* row, Floats x) const { hogwild::store(row + at, round_to<T>(x)); }
};

// The last place, where there are `count` < W left.
struct Rest {
  int64_t at;
  int64_t count;

  template <class T>
  INLINE Floats load(const T* row) const {
    T padded[W] = {};
    std::memcpy(padded, row + at, count * sizeof(T));
    return load_floats(padded);
  }

  template <class T>
  INLINE void store(T* row, Floats x) const {
    const auto rounded = round_to<T>(x);
    std::memcpy(row + at, &rounded, count * sizeof(T));
  }
};

// visit(place) for all of a row.
template <class Visit>
INLINE void for_places(int64_t size, const Visit& visit) {
  int64_t at = 0;
  for (; at + W <= size; at += W) visit(Whole{at});
  if (at < size) visit(Rest{at, size - at});
}

}  // namespace hogwild
