// One vector register of 32-bit lanes, as wide as the instruction set the file is built for.
//
// The compiler's vector extension (GCC, Clang) covers arithmetic on every machine. Intrinsics
// stand only where it has no word for an instruction: conversions, maxima, bf16 dot products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

namespace hogwild {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

constexpr int W = kBytes / 4;  // lanes of a register

typedef float Floats __attribute__((vector_size(kBytes)));
typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef uint32_t Lanes __attribute__((vector_size(kBytes)));
typedef uint16_t Halves __attribute__((vector_size(kBytes / 2)));  // W of them

template <class V, class E>
INLINE V load(const E* from) {
  V x;
  std::memcpy(&x, from, sizeof(V));
  return x;
}

template <class V, class E>
INLINE void store(E* to, V x) {
  std::memcpy(to, &x, sizeof(V));
}

INLINE Floats as_floats(Lanes x) { return (Floats)x; }
INLINE Lanes as_lanes(Floats x) { return (Lanes)x; }

INLINE Lanes spread(uint32_t x) { return x - Lanes{}; }

INLINE Floats spread(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return as_floats(spread(bits));
}

INLINE Floats largest(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

// Whether a lane of a is greater than the same lane of b.
INLINE bool any_above(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ)) != 0;
#else
  const Ints above = a > b;
  int32_t any = 0;
  for (int i = 0; i < W; ++i) any |= above[i];
  return any != 0;
#endif
}

// Picks lanes I... of the two registers laid end to end.
template <int... I>
INLINE Lanes pick(Lanes a, Lanes b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, I...);
#else
  return __builtin_shuffle(a, b, Lanes{I...});
#endif
}

template <int... I>
INLINE Lanes zip_low(Lanes a, Lanes b, std::integer_sequence<int, I...>) {
  return pick(a, b, std::integer_sequence<int, (I % 2 ? W + I / 2 : I / 2)...>{});
}

template <int... I>
INLINE Lanes zip_high(Lanes a, Lanes b, std::integer_sequence<int, I...>) {
  return pick(a, b, std::integer_sequence<int, W / 2 + (I % 2 ? W + I / 2 : I / 2)...>{});
}

template <int by, int... I>
INLINE Floats turn(Floats a, std::integer_sequence<int, I...>) {
  return as_floats(pick(as_lanes(a), as_lanes(a), std::integer_sequence<int, (I + by) % W...>{}));
}

constexpr auto kLane = std::make_integer_sequence<int, W>{};

template <int by = W / 2>
INLINE float maximum(Floats x) {
  x = largest(x, turn<by>(x, kLane));
  if constexpr (by > 1) return maximum<by / 2>(x);
  return x[0];
}

template <int by = W / 2>
INLINE float sum(Floats x) {
  x = x + turn<by>(x, kLane);
  if constexpr (by > 1) return sum<by / 2>(x);
  return x[0];
}

// W registers of W lanes. Zipping the first half with the second log2(W) times transposes.
INLINE void transpose(Lanes (&x)[W]) {
#pragma GCC unroll 4
  for (int stage = 1; stage < W; stage *= 2) {
    Lanes y[W];
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; ++i) {
      y[2 * i] = zip_low(x[i], x[i + W / 2], kLane);
      y[2 * i + 1] = zip_high(x[i], x[i + W / 2], kLane);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) x[i] = y[i];
  }
}

// x = whole + rest with the nearest whole number, for kLowest <= x <= 0, and y * 2^whole, which
// is 0 at kLowest. AVX-512 has an instruction for either, elsewhere floats are taken apart.
struct Split {
#if defined(__AVX512F__)
  static constexpr float kLowest = -160.0f;
#else
  static constexpr float kLowest = -127.0f;
#endif
  Floats whole, rest;

  explicit INLINE Split(Floats x) {
#if defined(__AVX512F__)
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    whole = (Floats)_mm512_roundscale_ps((__m512)x, nearest);
    rest = x - whole;
#else
    whole = x + kRound;
    rest = x - (whole - kRound);
#endif
  }

  INLINE Floats scale(Floats y) const {
#if defined(__AVX512F__)
    return (Floats)_mm512_scalef_ps((__m512)y, (__m512)whole);
#else
    const Ints exponent = (Ints)whole - (Ints)spread(kRound);
    return y * (Floats)((exponent + 127) << 23);
#endif
  }

 private:
  // 1.5 * 2^23: adding it leaves the nearest whole number in the last bits.
  static constexpr float kRound = 12582912.0f;
};

// 2^x for x <= 0; exactly 1 at 0, and exactly 0 at -infinity. 2^f - 1 on [-1/2, 1/2] is f
// times a polynomial fitted for the relative error of 2^f: 1e-7 with five terms, 1e-4 with three.
template <int terms>
INLINE Floats exp2(Floats x) {
  static_assert(terms == 3 || terms == 5);
  const Split split(largest(x, spread(Split::kLowest)));
  const Floats f = split.rest;
  Floats r;
  if constexpr (terms == 5) {
    r = f * 1.326472730e-3f + 9.671512991e-3f;
    r = r * f + 5.550733581e-2f;
    r = r * f + 2.402224243e-1f;
    r = r * f + 6.931470037e-1f;
  } else {
    r = f * 5.500892922e-2f + 2.422109544e-1f;
    r = r * f + 6.932829022e-1f;
  }
  return split.scale(r * f + 1.0f);
}

// 0, 1, ..., W - 1.
template <int... I>
INLINE Ints count_up(std::integer_sequence<int, I...>) {
  return Ints{I...};
}

}  // namespace hogwild
