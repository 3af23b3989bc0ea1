// The element types of the tensors and their conversions from and to float.
#pragma once

#include "vector.h"

namespace hogwild {

struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

INLINE float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

INLINE uint32_t to_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

INLINE float to_float(float x) { return x; }
INLINE float to_float(BFloat16 x) { return from_bits(uint32_t(x.bits) << 16); }

INLINE float to_float(Float16 x) {
  // Shifted into place the exponent is 112 too small; the product mends it, subnormals included.
  const uint32_t magnitude = uint32_t(x.bits & 0x7fff) << 13;
  const uint32_t sign = uint32_t(x.bits & 0x8000) << 16;
  if (magnitude >= 0x0f800000) return from_bits(sign | magnitude | 0x7f800000);  // inf, nan
  return from_bits(sign | to_bits(from_bits(magnitude) * 0x1p112f));
}

INLINE void from_float(float x, float* to) { *to = x; }

// To the nearest, ties to even.
INLINE void from_float(float x, BFloat16* to) {
  const uint32_t bits = to_bits(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  to->bits = uint16_t(x == x ? rounded : 0x7fc0);
}

INLINE void from_float(float x, Float16* to) {
  const uint32_t sign = (to_bits(x) >> 16) & 0x8000;
  const uint32_t bits = to_bits(x) & 0x7fffffff;
  uint32_t half;
  if (bits > 0x7f800000) {
    half = 0x7e00;  // nan
  } else if (bits >= 0x477ff000) {
    half = 0x7c00;  // rounds beyond the largest finite: inf
  } else if (bits < 0x38800000) {
    // Subnormal: adding 0.5 lines the last bit up with the float's own, which then rounds.
    half = to_bits(from_bits(bits) + 0.5f) - to_bits(0.5f);
  } else {
    half = (bits - (112u << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
  }
  to->bits = uint16_t(sign | half);
}

// W elements as floats.
INLINE Floats load_floats(const float* from) { return load<Floats>(from); }

INLINE Floats load_floats(const BFloat16* from) {
  return as_floats(__builtin_convertvector(load<Halves>(from), Lanes) << 16);
}

INLINE Floats load_floats(const Float16* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(load<__m256i>(from));
#elif defined(__AVX2__) && defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(load<__m128i>(from));
#else
  Floats x;
  for (int i = 0; i < W; ++i) x[i] = to_float(from[i]);
  return x;
#endif
}

// Element types that are known at run time only.
enum class Type : int64_t { float32, bfloat16, float16 };

template <class Visit>
void with_type(Type type, Visit visit) {
  switch (type) {
    case Type::float32: return visit(float{});
    case Type::bfloat16: return visit(BFloat16{});
    case Type::float16: return visit(Float16{});
  }
}

}  // namespace hogwild
