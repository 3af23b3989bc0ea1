// Copying a block of keys or values out of the cache into the order in which tiles read them.
#pragma once

#include <algorithm>

#include "dot.h"

namespace hogwild {

constexpr int kBlock = 64;      // keys packed at a time
constexpr int kMaxDim = 1024;   // of a head; the row of zeros below is that long

constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }

// 32-bit lanes of a packed head, whole registers.
template <class Dot>
constexpr int lanes(int dim) {
  return round_up((dim + Dot::step - 1) / Dot::step, W);
}

// Floats of a packed value row, whole pairs of registers.
constexpr int value_lanes(int dim) { return round_up(dim, 2 * W); }

alignas(64) inline constexpr char kZeros[kMaxDim * 4 + 4 * kBytes] = {};

// Keys or values of one head: element 0 of slot s is at data + s * stride.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  int dim;

  const T* operator[](int64_t slot) const { return data + slot * stride; }

  void prefetch(int64_t slot) const {
    const char* row = reinterpret_cast<const char*>((*this)[slot]);
    for (int byte = 0; byte < dim * int(sizeof(T)); byte += 64) __builtin_prefetch(row + byte);
  }
};

template <class T>
INLINE const T* zeros() {
  return reinterpret_cast<const T*>(kZeros);
}

// The slots of a block, and those of the block behind it, to be fetched in the meantime.
struct Block {
  const int64_t* slots;
  int count;
  int next;  // how many of slots[kBlock], slots[kBlock + 1], ... to prefetch
};

// to[lane][key]: keys transposed, zeros for what fills up the last registers.
template <class Dot, class T>
void pack_keys(const Rows<T>& keys, const Block& block, uint32_t* to) {
  const int whole = keys.dim / (W * Dot::step) * W, all = lanes<Dot>(keys.dim);
  for (int j = 0; j < block.count; j += W) {
    const T* row[W];
    for (int i = 0; i < W; ++i) {
      row[i] = j + i < block.count ? keys[block.slots[j + i]] : zeros<T>();
      if (j + i < block.next) keys.prefetch(block.slots[kBlock + j + i]);
    }
    for (int lane = 0; lane < all; lane += W) {
      Lanes x[W];
      if (lane < whole) {
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) x[i] = Dot::load_keys(row[i] + lane * Dot::step);
      } else {
        const int rest = keys.dim - lane * Dot::step;
        for (int i = 0; i < W; ++i) {
          T padded[W * Dot::step] = {};
          std::copy_n(row[i] + lane * Dot::step, rest, padded);
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
void pack_values(const Rows<T>& values, const Block& block, uint32_t* to) {
  const int all = value_lanes(values.dim);
  for (int j = 0; j < block.count; j += Dot::step, to += all) {
    const T* row[Dot::step];
    for (int i = 0; i < Dot::step; ++i) {
      row[i] = j + i < block.count ? values[block.slots[j + i]] : zeros<T>();
      if (j + i < block.next) values.prefetch(block.slots[kBlock + j + i]);
    }
    for (int at = 0; at < all; at += 2 * W) {
      Lanes x[2];
      if (at + 2 * W <= values.dim) {
        const T* some[Dot::step];
        for (int i = 0; i < Dot::step; ++i) some[i] = row[i] + at;
        Dot::load_values(some, x);
      } else {
        T padded[Dot::step][2 * W] = {};
        const T* some[Dot::step];
        for (int i = 0; i < Dot::step; ++i) {
          std::copy_n(row[i] + at, values.dim - at, padded[i]);
          some[i] = padded[i];
        }
        Dot::load_values(some, x);
      }
      store(to + at, x[0]);
      store(to + at + W, x[1]);
    }
  }
}

}  // namespace hogwild
