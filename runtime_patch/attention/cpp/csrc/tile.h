// The inner loops: a small matrix product in registers, and one block's softmax.
#pragma once

#include "pack.h"

namespace hogwild {

#if defined(__AVX512F__)
constexpr int kTileRows = 6, kTileColumns = 4;  // of 32 registers
#else
constexpr int kTileRows = 6, kTileColumns = 2;  // of 16 registers
#endif

// c[i][j] = (keep ? keep[i] * c[i][j] : 0) + sum over k of a[i][k] * b[k][j], with `rows`
// rows and `columns` registers of columns. Lanes of a and b are what Dot makes of them.
// ahead: what to ask for meanwhile.
struct Product {
  const uint32_t* a;
  const uint32_t* b;
  float* c;
  int64_t lda, ldb, ldc;
  int depth;
  const float* keep;
  Ahead* ahead;

  Product at(int row, int column) const {
    Product p = *this;
    p.a += row * lda;
    p.b += column * W;
    p.c += row * ldc + column * W;
    if (keep) p.keep += row;
    return p;
  }
};

template <class Dot, int rows, int columns>
void multiply_tile(const Product& p) {
  const uint32_t *a = p.a, *b = p.b;
  const int64_t lda = p.lda, ldb = p.ldb;
  Floats c[rows][columns];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
      c[i][j] = p.keep ? load<Floats>(p.c + i * p.ldc + j * W) * p.keep[i] : Floats{};
    }
  }
  for (int k = 0; k < p.depth; ++k, ++a, b += ldb) {
    p.ahead->step();
    Lanes right[columns];
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) right[j] = load<Lanes>(b + j * W);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Lanes left = spread(a[i * lda]);
#pragma GCC unroll 8
      for (int j = 0; j < columns; ++j) c[i][j] = Dot::add(c[i][j], left, right[j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) store(p.c + i * p.ldc + j * W, c[i][j]);
  }
}

template <class Dot, int columns, int... rows>
void multiply_rows(const Product& p, int count, std::integer_sequence<int, rows...>) {
  using Tile = void (*)(const Product&);
  static constexpr Tile tiles[] = {multiply_tile<Dot, rows + 1, columns>...};
  for (int row = 0; row < count; row += kTileRows) {
    tiles[std::min(kTileRows, count - row) - 1](p.at(row, 0));
  }
}

template <class Dot>
void multiply(const Product& p, int rows, int columns) {
  constexpr auto heights = std::make_integer_sequence<int, kTileRows>{};
  for (int column = 0; column < columns; column += kTileColumns) {
    const Product some = p.at(0, column);
    const int width = std::min(kTileColumns, columns - column);
    if (width == 1) {
      multiply_rows<Dot, 1>(some, rows, heights);
    } else if (width == 2) {
      multiply_rows<Dot, 2>(some, rows, heights);
    } else if constexpr (kTileColumns == 4) {
      width == 3 ? multiply_rows<Dot, 3>(some, rows, heights)
                 : multiply_rows<Dot, 4>(some, rows, heights);
    }
  }
}

// The running softmax of one query vector: weights so far are relative to 2^maximum.
struct Running {
  Floats total;  // the sum of the weights is the sum of its lanes
  float maximum;
};

// Turns a block's scores into weights 2^(factor * score - maximum), 0 from `limit` on.
// Returns what the output so far has to be multiplied with.
template <class Dot>
INLINE float soften(const float* scores, int limit, float factor, Running& row, uint32_t* weights) {
  constexpr int registers = kBlock / W;
  Floats x[registers];
  Floats high = spread(row.maximum);
#pragma GCC unroll 16
  for (int i = 0; i < registers; ++i) {
    x[i] = load<Floats>(scores + i * W) * factor;
    if (limit < (i + 1) * W) {
      const Ints seen = count_up(kLane) + i * W < limit;
      x[i] = seen ? x[i] : spread(-std::numeric_limits<float>::infinity());
    }
    high = largest(high, x[i]);
  }
  float keep = 1.0f;
  // Seldom so after the first blocks, and the largest of all lanes takes long to find.
  if (any_above(high, spread(row.maximum))) {
    const float top = maximum(high);
    keep = exp2<5>(spread(row.maximum - top))[0];
    row.maximum = top;
    row.total = row.total * keep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < registers; ++i) {
    x[i] = exp2<Dot::exp2_terms>(x[i] - row.maximum);
  }
  Floats halves[2] = {x[0], x[1]};
#pragma GCC unroll 16
  for (int i = 2; i < registers; ++i) halves[i % 2] = halves[i % 2] + x[i];
  row.total = row.total + (halves[0] + halves[1]);
#pragma GCC unroll 16
  for (int i = 0; i < registers; i += 2) {
    Dot::store_lanes(weights + i * W / Dot::step, x[i], x[i + 1]);
  }
  return keep;
}

}  // namespace hogwild
