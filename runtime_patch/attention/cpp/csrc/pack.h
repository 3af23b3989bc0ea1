// Copying a block of keys or values out of the cache into the order in which tiles read them.
#pragma once

#include <algorithm>
#include <iterator>

#include "dot.h"

namespace hogwild {

constexpr int kBlock = 64;      // keys packed at a time
constexpr int kMaxDim = 1024;   // of a head; the row of zeros below is that long

constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// 32-bit lanes of a packed head, made of whole pairs of registers of floats.
template <class Dot>
constexpr int lanes(int dim) {
  return round_up(dim, 2 * W) / Dot::step;
}

// Floats of a packed value row, whole pairs of registers.
constexpr int value_lanes(int dim) { return round_up(dim, 2 * W); }

alignas(64) inline constexpr char kZeros[kMaxDim * 4 + 4 * kBytes] = {};

template <class T>
INLINE const T* zeros() {
  return reinterpret_cast<const T*>(kZeros);
}

// Rows of the next block, into the second level: a block is too large for the first until its
// turn comes.
struct Ahead {
  const char* const* row;
  int count, bytes;
  int at = 0;

  // The next row. Asked for one by one, between products, rows do not hold up the loads that
  // the products wait for: only so many can be on their way at a time.
  INLINE void step() {
    if (at < count) {
      const char* start = row[at++];
      for (int byte = 0; byte < bytes; byte += 64) __builtin_prefetch(start + byte, 0, 2);
    }
  }

  INLINE void rest() {
    while (at < count) step();
  }
};

// Keys or values of one head: element 0 of slot s is at data + s * stride.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  int dim;

  // Pointers to the rows of `count` slots, filled up to kBlock with rows of zeros.
  void find(const int64_t* slots, int count, const T* (&row)[kBlock]) const {
    for (int j = 0; j < count; ++j) row[j] = data + slots[j] * stride;
    for (int j = count; j < kBlock; ++j) row[j] = zeros<T>();
  }

  // The rows of `count` slots, to be asked for; `row` is memory for them.
  Ahead ahead(const int64_t* slots, int count, const char* (&row)[kBlock]) const {
    for (int j = 0; j < count; ++j) row[j] = reinterpret_cast<const char*>(data + slots[j] * stride);
    return {row, count, dim * int(sizeof(T))};
  }
};

// to[lane][key]: keys transposed, zeros for what fills up the last registers.
template <class Dot, class T>
void pack_keys(const T* const (&row)[kBlock], int count, int dim, uint32_t* to) {
  const int whole = dim / (W * Dot::step) * W, all = lanes<Dot>(dim);
  for (int j = 0; j < count; j += W) {
    for (int lane = 0; lane < all; lane += W) {
      Lanes x[W];
      if (lane < whole) {
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) x[i] = Dot::load_keys(row[j + i] + lane * Dot::step);
      } else {
        const int rest = dim - lane * Dot::step;
        for (int i = 0; i < W; ++i) {
          T padded[W * Dot::step] = {};
          std::copy_n(row[j + i] + lane * Dot::step, rest, padded);
          x[i] = Dot::load_keys(padded);
        }
      }
      transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) store(to + (lane + i) * kBlock + j, x[i]);
    }
  }
}

// to[key / step][element]: zeros for what fills up the last registers and the last step.
template <class Dot, class T>
void pack_values(const T* const (&row)[kBlock], int count, int dim, uint32_t* to) {
  const int whole = dim / (2 * W) * (2 * W), all = value_lanes(dim);
  for (int j = 0; j < count; j += Dot::step, to += all) {
    for (int at = 0; at < all; at += 2 * W) {
      Lanes x[2];
      const T* some[Dot::step];
      T padded[Dot::step][2 * W];
      for (int i = 0; i < Dot::step; ++i) some[i] = row[j + i] + at;
      if (at >= whole) {
        for (int i = 0; i < Dot::step; ++i) {
          std::fill(std::copy_n(some[i], dim - at, padded[i]), std::end(padded[i]), T{});
          some[i] = padded[i];
        }
      }
      Dot::load_values(some, x);
      store(to + at, x[0]);
      store(to + at + W, x[1]);
    }
  }
}

}  // namespace hogwild
