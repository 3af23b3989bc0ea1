// The two ways to multiply: float lanes, or pairs of bfloat16 summed into a float lane.
//
// Both work on 32-bit lanes, so that packing, tiles and buffers are written once. A lane
// holds `step` consecutive elements of the summed dimension.
#pragma once

#include "element.h"

namespace hogwild {

struct FloatDot {
  static constexpr int step = 1;
  static constexpr int exp2_terms = 5;

  static INLINE Floats add(Floats sum, Lanes a, Lanes b) {
    return sum + as_floats(a) * as_floats(b);
  }

  // W lanes of a row of keys.
  template <class T>
  static INLINE Lanes load_keys(const T* from) {
    return as_lanes(load_floats(from));
  }

  // 2 W lanes of one value row.
  template <class T>
  static INLINE void load_values(const T* const (&rows)[1], Lanes (&to)[2]) {
    to[0] = as_lanes(load_floats(rows[0]));
    to[1] = as_lanes(load_floats(rows[0] + W));
  }

  // 2 W floats into 2 W / step lanes.
  static INLINE void store_lanes(uint32_t* to, Floats low, Floats high) {
    store(to, low);
    store(to + W, high);
  }

};

#if defined(__AVX512BF16__)
struct PairDot {
  static constexpr int step = 2;
  static constexpr int exp2_terms = 3;

  static INLINE Floats add(Floats sum, Lanes a, Lanes b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }

  static INLINE Lanes load_keys(const BFloat16* from) { return load<Lanes>(from); }

  // 2 W lanes of two value rows: lane i holds element i of the first and of the second.
  static INLINE void load_values(const BFloat16* const (&rows)[2], Lanes (&to)[2]) {
    typedef uint16_t Words __attribute__((vector_size(kBytes)));
    const auto a = load<__m512i>(rows[0]), b = load<__m512i>(rows[1]);
    constexpr Words low = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                           8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    to[0] = (Lanes)_mm512_permutex2var_epi16(a, (__m512i)low, b);
    to[1] = (Lanes)_mm512_permutex2var_epi16(a, (__m512i)(low + 16), b);
  }

  static INLINE void store_lanes(uint32_t* to, Floats low, Floats high) {
    store(to, _mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
  }
};
#endif

}  // namespace hogwild
